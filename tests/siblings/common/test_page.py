"""The tabs of digits and words in a real browser: pen, finger, crops, keyboard."""

import itertools

import pytest
from chromium import (
    accessibility_faults,
    draw_by_finger,
    draw_by_mouse,
    fits,
    low_controls,
    shown_as,
    upload,
    wait_for,
)
from served import serving
from tiny_digits import GLIMPSES, STEPS
from tiny_pipeline import tiny_pipeline
from tiny_reader import crop_bytes
from tiny_tabs import tiny_tabs

pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow

CSS = By.CSS_SELECTOR


@pytest.fixture
def digits(page):
    """The tab of digits."""
    page.find_element(By.ID, "tab-digits").click()
    assert wait_for(lambda: answer(page, "drawing"))
    return page


def answer(browser, name, tab="digits"):
    return browser.execute_script(f"return {tab}.{name}")


def picture(browser, canvas):
    return browser.execute_script(f"return document.all.{canvas}.toDataURL()")


def result(browser):
    return browser.find_element(By.ID, "digit-result").text


@pytest.fixture
def words(page):
    """The tab of words."""
    page.find_element(By.ID, "tab-reading").click()
    return page


@pytest.fixture
def read(words, tmp_path):
    """The tab of words with the word of an uploaded crop."""
    upload(words, "crop-file", tmp_path / "stop.png", crop_bytes())
    assert wait_for(lambda: letters(words))
    return words


SERVICES = {"captioned": "/caption", "classified": "/digits/classify", "read": "/read"}


@pytest.fixture(params=SERVICES)
def answered(request):
    """Each of the tabs with an answer, and the path of its service."""
    return request.getfixturevalue(request.param), SERVICES[request.param]


def letters(browser):
    return browser.find_elements(CSS, "#characters button")


@pytest.fixture
def classified(digits):
    draw_by_mouse(digits, "pad", (0.5, 0.2), (0.5, 0.5), (0.45, 0.8))
    assert wait_for(lambda: result(digits).startswith("After glimpse"))
    return digits


def test_tabs_are_hidden_without_their_models(browser):
    def shown():
        names = ("tabs", "digits", "reading", "tab-digits", "tab-reading")
        found = (browser.find_elements(By.ID, name) for name in names)
        elements = itertools.chain.from_iterable(found)
        return {one.get_attribute("id") for one in elements if one.is_displayed()}

    for some, wanted in (
        ([], {"tabs"}),
        (tiny_tabs()[1:], {"tabs", "tab-reading"}),
    ):
        with serving({"tiny": tiny_pipeline()}, tabs=some) as other:
            browser.get(other)
            assert wait_for(lambda wanted=wanted: shown() == wanted)


def test_a_drawn_digit_is_classified_glimpse_by_glimpse(classified):
    seen = answer(classified, "seen")
    assert len(seen["glimpses"]) == GLIMPSES
    ink = [value > 100 for row in seen["digit"] for value in row]
    assert 20 < sum(ink) < 150  # a stroke of two or three pixels
    buttons = classified.find_elements(CSS, "#glimpses button")
    assert len(buttons) == GLIMPSES
    last = seen["glimpses"][-1]["probabilities"]
    share = round(100 * max(last))
    expected = f"After glimpse {GLIMPSES} of {GLIMPSES}: {seen['label']}, {share} %"
    assert result(classified) == expected
    assert classified.get_log("browser") == []


def test_arrow_keys_move_through_the_glimpses_and_the_path_follows(classified):
    whole = picture(classified, "path")
    first, *_ = classified.find_elements(CSS, "#glimpses button")
    first.click()
    assert result(classified).startswith("After glimpse 1 of")
    assert picture(classified, "path") != whole
    first.send_keys(Keys.END)
    assert result(classified).startswith(f"After glimpse {GLIMPSES} of")
    assert picture(classified, "path") == whole
    classified.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert result(classified).startswith(f"After glimpse {GLIMPSES - 1} of")


def test_another_first_place_and_clearing(classified):
    before = answer(classified, "seen")["glimpses"][0]["box"]
    classified.find_element(By.ID, "elsewhere").click()
    assert wait_for(lambda: answer(classified, "seen")["glimpses"][0]["box"] != before)
    classified.find_element(By.ID, "clear").click()
    assert result(classified) == ""
    assert not classified.find_elements(CSS, "#glimpses button")
    assert not classified.find_element(By.ID, "elsewhere").is_enabled()
    for name in ("pad", "path"):
        assert colours(classified, name) == [0]


def colours(browser, name):
    """Return the values of red, green and blue that a canvas has."""
    return browser.execute_script(
        "const {width, height} = document.all[arguments[0]];"
        "const context = document.all[arguments[0]].getContext('2d');"
        "const {data} = context.getImageData(0, 0, width, height);"
        "return [...new Set(data.filter((_, k) => k % 4 !== 3))].sort();",
        name,
    )


def test_a_failed_request_removes_the_answer_for_an_earlier_digit(classified):
    fails = "window.kept = fetch; window.fetch = () => Promise.reject();"
    classified.execute_script(fails)
    draw_by_mouse(classified, "pad", (0.2, 0.2), (0.3, 0.2))
    error = classified.find_element(By.ID, "digit-error")
    assert wait_for(error.is_displayed)
    assert error.text == "The server does not respond; is it running?"
    assert not classified.find_elements(CSS, "#glimpses button")
    assert colours(classified, "path") == [0]
    assert 255 in colours(classified, "pad")
    classified.execute_script("window.fetch = window.kept;")


def test_a_click_is_a_dot(digits):
    draw_by_mouse(digits, "pad", (0.5, 0.5), (0.5, 0.5))
    assert 255 in colours(digits, "pad")
    assert wait_for(lambda: result(digits).startswith("After glimpse"))


def test_a_drawing_grows_step_by_step_and_another_is_another(digits):
    drawing = answer(digits, "drawing")
    assert len(drawing["canvases"]) == STEPS + 1
    assert digits.find_element(By.ID, "step-value").text == f"{STEPS} of {STEPS}"
    step, shown = digits.find_element(By.ID, "step"), {picture(digits, "drawing")}
    for k in range(STEPS - 1, -1, -1):
        step.send_keys(Keys.ARROW_LEFT)
        assert digits.find_element(By.ID, "step-value").text == f"{k} of {STEPS}"
        shown.add(picture(digits, "drawing"))
    assert len(shown) == STEPS + 1
    digits.find_element(By.ID, "another").click()
    assert wait_for(lambda: answer(digits, "drawing")["seed"] != drawing["seed"])


def test_a_drawing_is_classified_by_the_other_model(digits):
    digits.find_element(By.ID, "classify-drawing").click()
    assert wait_for(lambda: result(digits).startswith("After glimpse"))


def test_an_error_is_shown_in_one_line(digits, tmp_path):
    upload(digits, "digit-file", tmp_path / "notes.png", b"no photo")
    error = digits.find_element(By.ID, "digit-error")
    assert wait_for(error.is_displayed)
    assert error.text.startswith("`photo` must be a photo")


def test_a_finger_draws_and_controls_are_44_pixels_high(digits):
    shown_as(digits, 390, 844, touch=True)
    draw_by_finger(digits, "pad", (0.5, 0.2), (0.5, 0.5), (0.45, 0.8))
    assert wait_for(lambda: result(digits).startswith("After glimpse"))
    assert low_controls(digits, "#digits button, #digits label.button") == []
    assert fits(digits)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_each_tab_fits_its_width(answered, width):
    browser, _ = answered
    shown_as(browser, width)
    assert fits(browser)


@pytest.mark.parametrize("dark", [False, True])
def test_no_tab_violates_a_rule_of_accessibility(answered, dark):
    browser, _ = answered
    shown_as(browser, dark=dark)
    for summary in browser.find_elements(CSS, "summary"):
        if summary.is_displayed():
            summary.click()
    assert accessibility_faults(browser) == []


def test_nothing_is_asked_of_another_machine(answered, address):
    browser, service = answered
    asked = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert any(url.endswith(service) for url in asked)
    assert sum(url.endswith("/about") for url in asked) == 1  # for all tabs
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)


def test_arrow_keys_move_through_the_tabs(page):
    page.find_element(By.ID, "tab-photos").send_keys(Keys.ARROW_RIGHT)
    for name, main in [
        ("Folder", "folder"),
        ("Digits", "digits"),
        ("Words", "reading"),
    ]:
        assert page.switch_to.active_element.text == name
        shown = [one for one in page.find_elements(CSS, "main") if one.is_displayed()]
        assert [one.get_attribute("id") for one in shown] == [main]
        page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert page.switch_to.active_element.text == "Photos"


# --- words ---


def test_the_letters_of_an_uploaded_crop_show_where_the_model_looked(read):
    read.get_log("browser")  # reading removes the messages of earlier tests
    word = answer(read, "answer", "reading")["word"]
    assert [button.text for button in letters(read)] == list(word)
    assert read.find_element(By.ID, "reading-result").text.startswith(f"{word}: p ")
    whole = picture(read, "crop")
    letters(read)[0].click()
    first = picture(read, "crop")
    assert first != whole
    detail = read.find_element(By.ID, "character-detail")
    assert detail.text.startswith(f"{word[0]}: character 1 of {len(word)}")
    letters(read)[0].send_keys(Keys.END)
    assert detail.text.startswith(f"{word[-1]}: character {len(word)} of {len(word)}")
    assert len(word) == 1 or picture(read, "crop") != first
    assert read.get_log("browser") == []


def test_a_drawn_word_is_cut_out_without_wide_gaps_and_read(words):
    draw_by_mouse(words, "paper", (0.4, 0.4), (0.4, 0.5), (0.4, 0.6))
    draw_by_mouse(words, "paper", (0.5, 0.4), (0.5, 0.5), (0.5, 0.6))
    assert wait_for(lambda: answer(words, "answer", "reading"))
    width, height = words.execute_script(
        "return [reading.crop.image.naturalWidth, reading.crop.image.naturalHeight]"
    )
    assert (width, height) == (pytest.approx(58, abs=4), pytest.approx(64, abs=4))
    words.find_element(By.ID, "clear-paper").click()
    assert words.execute_script("return reading.ink") is None


def test_a_dropped_crop_is_read_and_not_captioned(words):
    drop = """
        const done = arguments[arguments.length - 1];
        const canvas = document.createElement("canvas");
        canvas.getContext("2d").fillText("drop", 10, 20);
        canvas.toBlob((blob) => {
          const data = new DataTransfer();
          data.items.add(new File([blob], "dropped.png", {type: "image/png"}));
          document.body.dispatchEvent(new DragEvent("drop",
            {dataTransfer: data, bubbles: true, cancelable: true}));
          done();
        });"""
    words.execute_async_script(drop)
    assert wait_for(lambda: words.execute_script("return reading.crop?.name"))
    assert words.execute_script("return reading.crop.name") == "dropped.png"
    assert words.find_element(By.ID, "reading").is_displayed()
    assert words.execute_script("return photo") is None
    words.find_element(By.ID, "tab-photos").click()
    words.execute_async_script(drop)
    assert wait_for(lambda: words.execute_script("return photo?.name"))


def test_a_file_that_is_no_word_is_reported_in_one_line(words, tmp_path):
    error = words.find_element(By.ID, "reading-error")
    upload(words, "crop-file", tmp_path / "notes.png", b"no photo")
    assert wait_for(error.is_displayed)
    assert error.text.startswith("notes.png: not a photo")
    upload(words, "crop-file", tmp_path / "empty.png", crop_bytes(" "))
    assert wait_for(lambda: error.text.startswith("`photo` must show a word"))


def test_controls_are_44_pixels_high_on_phones(read):
    shown_as(read, 390, 844, touch=True)
    assert low_controls(read, "#reading button, #reading .button") == []
