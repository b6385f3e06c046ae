"""The tab of words in a real browser: crops, pen, letters, drops, keyboard, tabs."""

import pytest
from chromium import browser as start_browser
from chromium import draw_by_mouse, shown_as, wait_for
from served import serving
from tiny_digits import tiny_models
from tiny_page_reader import crop_bytes, tiny_page_reader
from tiny_pipeline import tiny_pipeline

pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.slow

CSS = By.CSS_SELECTOR


@pytest.fixture(scope="module")
def address():
    with serving({"tiny": tiny_pipeline()}, reader=tiny_page_reader()) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with start_browser(offline=False) as started:
        yield started


def open_page(browser, address):
    shown_as(browser)
    browser.get(address)
    assert wait_for(lambda: browser.find_element(By.ID, "tabs").is_displayed())


@pytest.fixture
def page(browser, address):
    """The tab, opened again."""
    open_page(browser, address)
    browser.find_element(By.ID, "tab-reading").click()
    return browser


def answer(browser):
    return browser.execute_script("return reading.answer")


def letters(browser):
    return browser.find_elements(CSS, "#characters button")


def pixels(browser):
    return browser.execute_script("return document.all.crop.toDataURL()")


@pytest.fixture
def read(page, tmp_path):
    """The tab with the word of an uploaded crop."""
    (tmp_path / "stop.png").write_bytes(crop_bytes())
    page.find_element(By.ID, "crop-file").send_keys(str(tmp_path / "stop.png"))
    assert wait_for(lambda: letters(page))
    return page


def test_the_tab_is_hidden_without_a_reader(browser):
    with serving({"tiny": tiny_pipeline()}) as other:
        browser.get(other)
        assert wait_for(lambda: browser.find_elements(CSS, "#examples img"))
        assert not browser.find_element(By.ID, "tabs").is_displayed()
        assert not browser.find_element(By.ID, "reading").is_displayed()


def test_the_tab_of_digits_is_hidden_without_its_models(page):
    assert not page.find_element(By.ID, "tab-digits").is_displayed()
    assert page.find_element(By.ID, "reading").is_displayed()


def test_the_letters_of_an_uploaded_crop_show_where_the_model_looked(read):
    word = answer(read)["word"]
    assert [button.text for button in letters(read)] == list(word)
    assert read.find_element(By.ID, "reading-result").text.startswith(f"{word}: p ")
    whole = pixels(read)
    letters(read)[0].click()
    first = pixels(read)
    assert first != whole
    detail = read.find_element(By.ID, "character-detail")
    assert detail.text.startswith(f"{word[0]}: character 1 of {len(word)}")
    letters(read)[0].send_keys(Keys.END)
    assert detail.text.startswith(f"{word[-1]}: character {len(word)} of {len(word)}")
    assert len(word) == 1 or pixels(read) != first
    assert read.get_log("browser") == []


def test_a_drawn_word_is_cut_out_and_read(page):
    draw_by_mouse(page, "paper", (0.4, 0.4), (0.4, 0.5), (0.4, 0.6))
    draw_by_mouse(page, "paper", (0.5, 0.4), (0.5, 0.5), (0.5, 0.6))
    assert wait_for(lambda: answer(page))
    width, height = page.execute_script(
        "return [reading.crop.image.naturalWidth, reading.crop.image.naturalHeight]"
    )
    assert (width, height) == (pytest.approx(84, abs=4), pytest.approx(64, abs=4))
    page.find_element(By.ID, "clear-paper").click()
    assert page.execute_script("return reading.ink") is None


def test_a_dropped_crop_is_read_and_not_captioned(page):
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
    page.execute_async_script(drop)
    assert wait_for(lambda: page.execute_script("return reading.crop?.name"))
    assert page.execute_script("return reading.crop.name") == "dropped.png"
    assert page.find_element(By.ID, "reading").is_displayed()
    assert page.execute_script("return photo") is None
    page.find_element(By.ID, "tab-photos").click()
    page.execute_async_script(drop)
    assert wait_for(lambda: page.execute_script("return photo?.name"))


def test_an_error_is_shown_in_one_line(page, tmp_path):
    error = page.find_element(By.ID, "reading-error")
    (tmp_path / "notes.png").write_text("no photo")
    page.find_element(By.ID, "crop-file").send_keys(str(tmp_path / "notes.png"))
    assert wait_for(error.is_displayed)
    assert error.text.startswith("notes.png: not a photo")
    (tmp_path / "empty.png").write_bytes(crop_bytes(" "))
    page.find_element(By.ID, "crop-file").send_keys(str(tmp_path / "empty.png"))
    assert wait_for(lambda: error.text.startswith("`photo` must show a word"))


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_tab_fits_its_width(read, width):
    shown_as(read, width)
    assert read.execute_script(
        "return document.documentElement.scrollWidth <= innerWidth"
    )


def test_controls_are_44_pixels_high_on_phones(read):
    touch = "Emulation.setTouchEmulationEnabled"
    shown_as(read, 390, 844)
    read.execute_cdp_cmd(touch, {"enabled": True})
    try:
        for control in read.find_elements(CSS, "#reading button, #reading .button"):
            assert control.size["height"] >= 44, control.get_attribute("outerHTML")
    finally:
        read.execute_cdp_cmd(touch, {"enabled": False})
        read.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_every_control_has_a_name_for_screen_readers(read):
    tree = read.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "radio", "slider", "combobox", "img", "textbox", "tab"}
    names = {
        node["name"]["value"]
        for node in tree
        if node.get("role", {}).get("value") in controls and not node["ignored"]
    }
    assert "" not in names
    assert {"Photos", "Words", "Clear"} <= names


def test_arrow_keys_move_through_three_tabs(browser):
    others = {"digits": tiny_models(), "reader": tiny_page_reader()}
    with serving({"tiny": tiny_pipeline()}, **others) as address:
        open_page(browser, address)
        browser.find_element(By.ID, "tab-photos").send_keys(Keys.ARROW_RIGHT)
        for name, main in [("Digits", "digits"), ("Words", "reading")]:
            assert browser.switch_to.active_element.text == name
            shown = browser.find_elements(CSS, "main")
            assert [one.get_attribute("id") for one in shown if one.is_displayed()] == [
                main
            ]
            browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        assert browser.switch_to.active_element.text == "Photos"


def test_nothing_is_asked_of_another_machine(read, address):
    asked = read.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert any(url.endswith("/read") for url in asked)
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)
