"""The page in a real browser: photo, words, keyboard, widths, no outside requests."""

import zipfile

import pytest
from chromium import accessibility_faults, shown_as, upload, wait
from tiny_pipeline import photo_bytes

pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow

CSS = By.CSS_SELECTOR


def words(browser):
    return browser.find_elements(CSS, "#words button")


def pressed(browser):
    return [w.get_attribute("aria-pressed") for w in words(browser)].index("true")


def test_a_photo_gets_its_caption_and_alternatives(captioned):
    announced = captioned.find_element(By.ID, "announced").get_property("textContent")
    assert " ".join(word.text for word in words(captioned)) + "." == announced
    assert len(captioned.find_elements(CSS, "#others tr")) >= 1
    assert captioned.get_log("browser") == []


def test_after_a_file_that_is_no_photo_the_answer_stays_complete(captioned, tmp_path):
    status = captioned.find_element(By.ID, "status").text
    assert "log p" in status
    upload(captioned, "file", tmp_path / "notes.png", b"no photo")
    error = captioned.find_element(By.ID, "error")
    wait(captioned, lambda b: "not a photo" in error.text)
    assert captioned.find_element(By.ID, "status").text == status


def test_after_a_refused_photo_another_can_be_chosen(page, tmp_path, monkeypatch):
    button = page.find_element(CSS, "#invitation label")
    page.execute_script(
        "const send = window.fetch; window.fetch = () => { window.fetch = send;"
        ' return Promise.resolve(new Response(\'{"error": "too large"}\','
        " {status: 413})); }"
    )
    upload(page, "file", tmp_path / "photo.png", photo_bytes())
    wait(page, lambda b: b.find_element(By.ID, "error").text == "too large")
    assert button.is_displayed()
    upload(page, "file", tmp_path / "photo.png")
    wait(page, lambda b: b.find_element(By.ID, "announced").get_property("textContent"))
    assert not button.is_displayed()


def test_arrow_keys_move_through_the_words_and_attention_follows(captioned):
    def pixels():
        return captioned.execute_script("return document.all.view.toDataURL()")

    captioned.execute_script(  # each word attends to one location, each to another
        "answer.attention.forEach((map, k) => map.forEach((row, y) =>"
        " row.forEach((_, x) => { row[x] = Number(y === 0 && x === k % 4); })))"
    )
    whole = pixels()
    words(captioned)[0].click()
    first = pixels()
    assert first != whole
    assert pressed(captioned) == 0
    words(captioned)[0].send_keys(Keys.ARROW_RIGHT)
    assert pressed(captioned) == 1
    assert pixels() != first
    focused = captioned.switch_to.active_element
    assert "percent" in focused.get_attribute("aria-label")
    focused.send_keys(Keys.END)
    assert pressed(captioned) == len(words(captioned)) - 1
    assert "for the word" in captioned.find_element(By.ID, "view").get_attribute(
        "aria-label"
    )


def test_words_appear_one_by_one_unless_motion_is_reduced(page, tmp_path):
    shown_as(page, motion=True)
    page.execute_script(
        "window.counts = []; const words = document.getElementById('words');"
        "new MutationObserver(() => counts.push(words.children.length))"
        ".observe(words, {childList: true})"
    )
    upload(page, "file", tmp_path / "photo.png", photo_bytes())
    wait(page, lambda b: b.find_element(By.ID, "announced").get_property("textContent"))
    announced = page.find_element(By.ID, "announced").get_property("textContent")
    wait(page, lambda b: len(words(page)) >= len(announced.split()))
    wait(page, lambda b: b.find_element(By.ID, "play").text == "Play")
    counts = page.execute_script("return counts.filter(count => count > 0)")
    assert counts == list(range(1, len(words(page)) + 1))
    assert len(words(page)) == len(announced.split())


def test_settings_are_sent(captioned):
    def settings():
        return captioned.execute_script("return answer && answer.settings")

    assert settings() == {"method": "beam", "beam": 3, "locations": "expected"}
    captioned.find_element(CSS, "input[value=sample]").click()
    wait(captioned, lambda b: settings()["method"] == "sample")
    captioned.find_element(By.ID, "again").click()
    wait(captioned, lambda b: settings().get("seed") == 1)
    captioned.find_element(CSS, "#locations [value=likeliest]").click()
    wait(captioned, lambda b: b.execute_script("return answer.locations !== null"))
    captioned.find_element(CSS, "#model option:nth-child(2)").click()
    wait(captioned, lambda b: b.execute_script("return answer.model") == "second")


def test_figure_and_json_are_saved(captioned):
    captioned.find_element(By.ID, "json").click()
    captioned.find_element(By.ID, "figure").click()
    wanted = {"été 1.json", "été 1-attention.png"}
    wait(captioned, lambda b: wanted <= {f.name for f in b.downloads.iterdir()})
    png = (captioned.downloads / "été 1-attention.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_the_caption_is_edited_and_saved_with_the_photos_name(captioned):
    text = captioned.find_element(By.ID, "text")
    announced = captioned.find_element(By.ID, "announced").get_property("textContent")
    assert text.get_property("value") == announced
    text.clear()
    text.send_keys("Rex")
    captioned.find_element(By.ID, "save-text").click()
    saved = captioned.downloads / "été 1.txt"
    wait(captioned, lambda b: saved.exists())
    assert saved.read_text() == "Rex\n"


@pytest.fixture
def reviewed(page, tmp_path):
    """The tab of a folder with two photos, one that is damaged, and another file."""
    folder = tmp_path / "trip"
    (folder / "day 1").mkdir(parents=True)
    (folder / "b.png").write_bytes(photo_bytes(2, size=(40, 90)))
    (folder / "day 1" / "a.png").write_bytes(photo_bytes(3))
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "notes.txt").write_text("no photo")
    page.find_element(By.ID, "tab-folder").click()
    page.find_element(By.ID, "folder-files").send_keys(str(folder))
    done = "return folder.rows.length && !folder.running"
    wait(page, lambda b: b.execute_script(done))
    return page


def rows(browser):
    """Return the visible rows: path, text, and whether it is approved."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#rows li:not([hidden])')].map(row =>"
        " [row.querySelector('.name').textContent, row.querySelector('textarea').value,"
        " row.querySelector('input').checked])"
    )


def test_a_folder_is_captioned_with_progress_and_failures_are_named(reviewed):
    assert [path for path, *_ in rows(reviewed)] == [
        *("trip/b.png", "trip/broken.jpg", "trip/day 1/a.png"),
    ]
    assert reviewed.find_element(By.ID, "folder-note").text == "1 other file ignored."
    progress = reviewed.find_element(By.ID, "folder-progress")
    assert progress.get_property("value") == progress.get_property("max") == 3
    failed = reviewed.find_element(CSS, "[data-state=failed] .about").text
    assert "`photo` must be a photo" in failed
    shape = "const i = document.querySelector('#rows img');"
    wide, high = reviewed.execute_script(shape + "return [i.width, i.height]")
    assert wide / high == pytest.approx(40 / 90, abs=0.03)  # not cropped


def test_rows_are_searched_and_sorted_by_confidence(reviewed):
    reviewed.execute_script(
        "folder.rows.forEach((row, k) => { if (row.answer)"
        " Object.assign(row.answer, {confidence: [0.1, 0, 0.7][k],"
        " confidence_word: ['probably wrong', '', 'likely'][k]}); showRow(row); })"
    )
    reviewed.find_element(CSS, "#folder-sort [value=certain]").click()
    assert [path for path, *_ in rows(reviewed)][:2] == [
        "trip/day 1/a.png",
        "trip/b.png",
    ]
    about = reviewed.find_element(CSS, "#rows .about").text
    assert about == "likely, confidence 0.70"
    reviewed.find_element(By.ID, "folder-search").send_keys("wrong b.p")
    assert [path for path, *_ in rows(reviewed)] == ["trip/b.png"]


def test_edited_captions_are_approved_and_saved(reviewed):
    text = reviewed.find_element(CSS, "#rows textarea")
    text.clear()
    text.send_keys("Rex")
    assert reviewed.find_element(By.ID, "approved").text == "1 caption approved"
    reviewed.find_element(By.ID, "save-csv").click()
    table = reviewed.downloads / "captions.csv"
    wait(reviewed, lambda b: table.exists())
    assert table.read_text().splitlines()[1:] == ["trip/b.png,Rex,,,True"]
    reviewed.find_element(By.ID, "approve-shown").click()
    reviewed.find_element(By.ID, "save-xmp").click()
    archive = reviewed.downloads / "captions-xmp.zip"
    wait(reviewed, lambda b: archive.exists())
    with zipfile.ZipFile(archive) as content:
        assert content.namelist() == ["trip/b.png.xmp", "trip/day 1/a.png.xmp"]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_follows_the_colour_scheme_with_contrast(captioned, dark):
    shown_as(captioned, dark=dark)
    ground, ink = captioned.execute_script(
        "const s = getComputedStyle(document.body);"
        "return [s.backgroundColor, s.color].map("
        "t => t.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"
    )
    assert (ground < ink) == dark
    assert abs(ground - ink) > 500


@pytest.mark.parametrize("dark", [False, True])
def test_the_review_of_a_folder_violates_no_rule_of_accessibility(reviewed, dark):
    shown_as(reviewed, dark=dark)
    assert accessibility_faults(reviewed) == []
