"""The page in a real browser: photo, words, keyboard, widths, no outside requests."""

import time
import zipfile

import pytest
from chromium import accessibility_faults, places_on, shown_as, upload, wait
from PIL import Image
from system_folders import OWN, SYSTEM
from tiny_pipeline import photo_bytes

from show_attend_tell.runtime.folders import is_left_alone

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


def test_after_a_file_that_is_no_photo_the_photo_before_is_gone(captioned, tmp_path):
    assert "log p" in captioned.find_element(By.ID, "status").text
    upload(captioned, "file", tmp_path / "notes.png", b"no photo")
    error = captioned.find_element(By.ID, "error")
    wait(captioned, lambda b: "notes.png: not a photo" in error.text)
    for name in ("view", "result", "others-box"):
        assert not captioned.find_element(By.ID, name).is_displayed(), name
    assert captioned.find_element(By.ID, "status").text == ""
    assert captioned.find_element(By.ID, "invitation").is_displayed()
    upload(captioned, "file", tmp_path / "photo.png", photo_bytes(5))
    wait(captioned, lambda b: b.find_element(By.ID, "result").is_displayed())
    assert error.text == ""


def test_attention_waits_until_the_pointer_moves(captioned, tmp_path):
    x, y = places_on(captioned, "words", (0.01, 0.5))[0]
    mouse = {"type": "mouseMoved", "x": x, "y": y}
    captioned.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    assert pressed(captioned) == 0
    captioned.execute_script("showAnswer(); play()")  # the words appear under it anew
    time.sleep(0.3)
    assert "true" not in [w.get_attribute("aria-pressed") for w in words(captioned)]
    mouse["x"] += 2
    captioned.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    assert pressed(captioned) == 0


def test_of_two_photos_the_one_that_is_opened_last_is_shown(captioned):
    captioned.execute_script(
        "const decode = Image.prototype.decode; let count = 0;"
        "const later = new Promise((done) => { window.release = done; });"
        "Image.prototype.decode = async function () {"
        " if (!count++) await later; return decode.call(this); };"
        "window.both = [openPhoto(photo.blob, 'large.png'),"
        " openPhoto(photo.blob, 'small.png')];"
    )
    wait(captioned, lambda b: b.execute_script("return photo.name === 'small.png'"))
    captioned.execute_async_script(
        "release(); Promise.all(both).then(arguments[arguments.length - 1])"
    )
    assert captioned.execute_script("return photo.name") == "small.png"


def test_an_example_that_cannot_be_fetched_is_an_error_of_one_line(page):
    page.execute_script(
        "window.fetch = () => Promise.reject(new TypeError('Failed to fetch'));"
    )
    page.execute_script(
        "startPhotos({models: Object.values(models), examples: [{title: 'Rex'}],"
        " confidence_words: {likely: 0.7, unsure: 0.3}, max_beam: 10});"
        "document.querySelector('#examples button').click()"
    )
    error = page.find_element(By.ID, "error")
    wait(page, lambda b: error.is_displayed())
    assert error.text == "The server does not respond; is it running?"


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


def test_the_tabs_and_errors_need_no_style_of_a_plug_in(page):
    tab = page.find_element(By.ID, "tab-folder")
    assert tab.size["height"] >= 44
    assert tab.value_of_css_property("border-left-width") == "0px"
    error = page.find_element(By.ID, "folder-error")
    assert error.value_of_css_property("font-weight") == "600"


def test_the_note_of_an_example_takes_one_line(page):
    lines = page.execute_script(
        "const example = document.querySelector('#examples button');"
        "const note = example.querySelector('small');"
        "note.textContent = 'A failure: it sees a dog';"
        "return note.offsetHeight / parseFloat(getComputedStyle(note).lineHeight)"
    )
    assert lines < 2


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
    assert table.read_text().splitlines()[1:] == ["trip/b.png,Rex,,,True,"]  # no tags
    reviewed.find_element(By.ID, "approve-shown").click()
    reviewed.find_element(By.ID, "save-xmp").click()
    archive = reviewed.downloads / "captions-xmp.zip"
    wait(reviewed, lambda b: archive.exists())
    with zipfile.ZipFile(archive) as content:
        assert content.namelist() == ["trip/b.png.xmp", "trip/day 1/a.png.xmp"]


def test_words_of_a_person_stay_and_photos_of_systems_are_left_alone(page, tmp_path):
    folder = tmp_path / "nas"
    system = ("@eaDir", "#recycle", "$RECYCLE.BIN", "__MACOSX", "FOUND.001", "P.lrdata")
    for place in ("", *system, "#1 Rex"):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "a.png").write_bytes(photo_bytes(3))
    for name in ("b.png", "c.png"):
        (folder / name).write_bytes(photo_bytes(2))
    (folder / "b.XMP").touch()
    (folder / "C.png.xmp").touch()
    Image.new("RGB", (40, 40)).save(folder / "d.jpg", comment="Grandma feeds her sheep")
    page.find_element(By.ID, "tab-folder").click()
    page.find_element(By.ID, "folder-files").send_keys(str(folder))
    done = "return folder.rows.length && !folder.running"
    wait(page, lambda b: b.execute_script(done))
    found = dict(
        page.execute_script(
            "return folder.rows.map(row => [row.path, row.about.textContent])"
        )
    )
    assert sorted(found) == [
        *("nas/#1 Rex/a.png", "nas/a.png", "nas/b.png", "nas/c.png", "nas/d.jpg"),
    ]
    for name, words in {"b": "XMP file stays", "c": "XMP file stays"}.items():
        assert words in found[f"nas/{name}.png"]
    assert "a person described it, which stays" in found["nas/d.jpg"]
    assert "stays" not in found["nas/a.png"]
    left = "return arguments[0].filter((name) => LEFT_ALONE.test(name))"
    names = [*SYSTEM, *OWN]
    assert page.execute_script(left, names) == list(filter(is_left_alone, names))
    archive = page.downloads / "captions-xmp.zip"
    archive.unlink(missing_ok=True)  # of another test
    page.find_element(By.ID, "approve-shown").click()
    page.find_element(By.ID, "save-xmp").click()
    wait(page, lambda b: archive.exists())
    with zipfile.ZipFile(archive) as content:
        assert content.namelist() == ["nas/#1 Rex/a.png.xmp", "nas/a.png.xmp"]


def reload(browser):
    """Open the page anew, as after a crash; return the rows that it kept."""
    browser.get(browser.current_url.partition("#")[0])
    wait(browser, lambda b: b.find_element(By.ID, "tabs").is_displayed())
    browser.find_element(By.ID, "tab-folder").click()
    time.sleep(0.5)  # for what the browser keeps
    return rows(browser)


def leaving_is_asked(browser):
    """Whether the browser would ask before it leaves the page."""
    return browser.execute_script(
        "const event = new Event('beforeunload', {cancelable: true});"
        "window.dispatchEvent(event); return event.defaultPrevented"
    )


def test_captions_edits_and_approvals_outlive_the_page(reviewed):
    assert leaving_is_asked(reviewed)
    first, second = reviewed.find_elements(CSS, "[data-state=captioned]")
    text = first.find_element(CSS, "textarea")
    text.clear()
    text.send_keys("Rex")
    second.find_element(CSS, "input").click()
    time.sleep(0.5)
    expected = [row for row in rows(reviewed) if "broken" not in row[0]]
    assert [approved for *_, approved in expected] == [True, True]
    assert reload(reviewed) == expected
    note = reviewed.find_element(By.ID, "folder-note").text
    assert note.startswith("2 captions from your last visit.")
    about = [a.text for a in reviewed.find_elements(CSS, "#rows .about")]
    assert about[0] == "Edited by you"
    assert reviewed.find_element(By.ID, "approved").text == "2 captions approved"
    pictures = "return [...document.querySelectorAll('#rows img')].map(i => i.width)"
    assert all(reviewed.execute_script(pictures))
    reviewed.find_element(CSS, "#rows input").click()
    assert [approved for *_, approved in reload(reviewed)] == [False, True]


def test_a_folder_that_is_chosen_again_captions_only_what_is_new(reviewed, tmp_path):
    reload(reviewed)
    asked = (
        "window.asked = []; const send = window.fetch; window.fetch = (url, options) =>"
        " { asked.push(options.body.get('photo').name); return send(url, options); }"
    )
    reviewed.execute_script(asked)
    (tmp_path / "trip" / "b.png").write_bytes(photo_bytes(9))  # another photo
    (tmp_path / "trip" / "c.png").write_bytes(photo_bytes(4))
    reviewed.find_element(By.ID, "folder-files").send_keys(str(tmp_path / "trip"))
    done = "return asked.length && !folder.running"
    wait(reviewed, lambda b: b.execute_script(done))
    found = reviewed.execute_script("return asked")
    assert found == ["b.png", "broken.jpg", "c.png"]
    assert len(rows(reviewed)) == 4


def test_a_drop_with_unreadable_files_and_folders_is_captioned(page, tmp_path):
    upload(page, "file", tmp_path / "a.png", photo_bytes())
    wait(page, lambda b: b.execute_script("return Boolean(photo)"))
    page.execute_script(
        "const fail = (_, refuse) => refuse(new Error('no permission'));"
        "const file = (name, take) =>"
        " ({isFile: true, name, fullPath: `/trip/${name}`, file: take});"
        "const inside = (name, read) =>"
        " ({name, fullPath: name, createReader: () => ({readEntries: read})});"
        "const photoFile = new File([photo.blob], 'a.png');"
        "const parts = [[file('a.png', (done) => done(photoFile)),"
        " file('b.png', fail), inside('/trip/closed', fail)], []];"
        "const entry = inside('/trip', (done) => done(parts.shift()));"
        "const items = [{webkitGetAsEntry: () => entry}];"
        "takeFiles(new Event('drop'), {files: [photo.blob], items})"
    )
    done = "return folder.rows.length && !folder.running"
    wait(page, lambda b: b.execute_script(done))
    assert [path for path, *_ in rows(page)] == ["trip/a.png"]
    note = page.find_element(By.ID, "folder-note").text
    assert note == "2 items could not be read."


@pytest.fixture
def stopped(page, tmp_path):
    """A list of two photos that is stopped while the first caption is awaited.

    ``release()`` lets the answers come, and ``asked`` has the photos that were sent.
    """
    page.execute_script(
        "window.asked = []; const send = window.fetch; window.held ="
        " new Promise((done) => { window.release = done; });"
        "window.fetch = async (url, options) =>"
        " { asked.push(options.body.get('photo').name); await held;"
        " return send(url, options); }"
    )
    page.find_element(By.ID, "tab-folder").click()
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(photo_bytes(3))
    choose_both(page, tmp_path)
    wait(page, lambda b: b.execute_script("return asked.length"))
    page.find_element(By.ID, "folder-stop").click()
    return page


def choose_both(browser, folder):
    both = "\n".join(str(folder / name) for name in ("a.png", "b.png"))
    browser.find_element(By.ID, "files").send_keys(both)


def test_a_stop_leaves_the_other_photos_waiting(stopped):
    stopped.execute_script("release()")
    wait(stopped, lambda b: not b.find_element(By.ID, "folder-stop").is_displayed())
    states = stopped.execute_script("return folder.rows.map(({state}) => state)")
    assert states == ["captioned", "waiting"]


def test_photos_chosen_again_after_a_stop_are_captioned_once(stopped, tmp_path):
    choose_both(stopped, tmp_path)
    stopped.execute_script("release()")
    done = "return folder.rows.every(({state}) => state === 'captioned')"
    wait(stopped, lambda b: b.execute_script(f"{done} && !folder.running"))
    assert stopped.execute_script("return asked") == ["a.png", "b.png"]


def test_an_edit_while_a_file_is_saved_is_kept(reviewed):
    reviewed.execute_script(
        "const send = window.fetch; window.fetch = async (url, options) => {"
        " const response = await send(url, options);"
        " const text = document.querySelector('[data-state=captioned] textarea');"
        " text.value = 'Rex'; text.dispatchEvent(new Event('input'));"
        " return response; }"
    )
    reviewed.find_element(By.ID, "approve-shown").click()
    reviewed.find_element(By.ID, "save-csv").click()
    status = reviewed.find_element(By.ID, "folder-status")
    wait(reviewed, lambda b: status.text.startswith("Saved 2 captions"))
    assert leaving_is_asked(reviewed)
    assert reload(reviewed) == [["trip/b.png", "Rex", True]]


def test_what_is_saved_or_discarded_is_kept_no_longer(reviewed):
    reviewed.find_element(CSS, "[data-state=captioned] input").click()
    reviewed.find_element(By.ID, "save-csv").click()
    status = reviewed.find_element(By.ID, "folder-status")
    wait(reviewed, lambda b: status.text.startswith("Saved 1 caption"))
    assert leaving_is_asked(reviewed)
    assert [path for path, *_ in reload(reviewed)] == ["trip/day 1/a.png"]
    reviewed.find_element(By.ID, "folder-discard").click()
    reviewed.switch_to.alert.dismiss()
    assert len(reload(reviewed)) == 1
    reviewed.find_element(By.ID, "folder-discard").click()
    reviewed.switch_to.alert.accept()
    wait(reviewed, lambda b: not b.find_element(By.ID, "review").is_displayed())
    assert not leaving_is_asked(reviewed)
    assert reload(reviewed) == []


def test_when_all_is_saved_the_page_is_left_without_a_question(reviewed):
    reviewed.find_element(By.ID, "approve-shown").click()
    reviewed.find_element(By.ID, "save-csv").click()
    status = reviewed.find_element(By.ID, "folder-status")
    wait(reviewed, lambda b: status.text.startswith("Saved 2 captions"))
    assert not leaving_is_asked(reviewed)
    reviewed.find_element(CSS, "[data-state=captioned] textarea").send_keys("!")
    assert leaving_is_asked(reviewed)


def test_a_browser_that_keeps_nothing_says_so(reviewed):
    reviewed.execute_script("opened = Promise.reject(new Error('private'))")
    reviewed.find_element(CSS, "[data-state=captioned] textarea").send_keys("!")
    kept = reviewed.find_element(By.ID, "folder-kept")
    wait(reviewed, lambda b: kept.text.startswith("This browser keeps no captions"))
    assert reviewed.find_element(By.ID, "approved").text == "1 caption approved"


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
