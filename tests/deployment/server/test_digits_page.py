"""The tab of digits in a real browser: pen, finger, glimpses, drawings, keyboard."""

import pytest
from chromium import browser as start_browser
from chromium import draw_by_mouse, places_on, shown_as, wait_for
from served import serving
from tiny_digits import GLIMPSES, STEPS, tiny_models
from tiny_pipeline import tiny_pipeline

pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.slow

CSS = By.CSS_SELECTOR


@pytest.fixture(scope="module")
def address():
    with serving({"tiny": tiny_pipeline()}, digits=tiny_models()) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with start_browser(offline=False) as started:
        yield started


@pytest.fixture
def page(browser, address):
    """The tab, opened again, without motion."""
    shown_as(browser)
    browser.get(address)
    assert wait_for(lambda: browser.find_element(By.ID, "tabs").is_displayed())
    browser.find_element(By.ID, "tab-digits").click()
    assert wait_for(lambda: answer(browser, "drawing"))
    return browser


def answer(browser, name):
    return browser.execute_script(f"return digits.{name}")


def result(browser):
    return browser.find_element(By.ID, "digit-result").text


@pytest.fixture
def classified(page):
    draw_by_mouse(page, "pad", (0.5, 0.2), (0.5, 0.5), (0.45, 0.8))
    assert wait_for(lambda: result(page).startswith("After glimpse"))
    return page


def test_the_tab_is_hidden_without_models_of_digits(browser):
    with serving({"tiny": tiny_pipeline()}) as other:
        browser.get(other)
        assert wait_for(lambda: browser.find_elements(CSS, "#examples img"))
        assert not browser.find_element(By.ID, "tabs").is_displayed()
        assert not browser.find_element(By.ID, "digits").is_displayed()


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
    def pixels():
        return classified.execute_script("return document.all.path.toDataURL()")

    whole = pixels()
    first, *_ = classified.find_elements(CSS, "#glimpses button")
    first.click()
    assert result(classified).startswith("After glimpse 1 of")
    assert pixels() != whole
    first.send_keys(Keys.END)
    assert result(classified).startswith(f"After glimpse {GLIMPSES} of")
    assert pixels() == whole
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


def test_a_click_is_a_dot(page):
    draw_by_mouse(page, "pad", (0.5, 0.5), (0.5, 0.5))
    assert 255 in colours(page, "pad")
    assert wait_for(lambda: result(page).startswith("After glimpse"))


def test_a_drawing_grows_step_by_step_and_another_is_another(page):
    def pixels():
        return page.execute_script("return document.all.drawing.toDataURL()")

    drawing = answer(page, "drawing")
    assert len(drawing["canvases"]) == STEPS + 1
    assert page.find_element(By.ID, "step-value").text == f"{STEPS} of {STEPS}"
    step, shown = page.find_element(By.ID, "step"), {pixels()}
    for k in range(STEPS - 1, -1, -1):
        step.send_keys(Keys.ARROW_LEFT)
        assert page.find_element(By.ID, "step-value").text == f"{k} of {STEPS}"
        shown.add(pixels())
    assert len(shown) == STEPS + 1
    page.find_element(By.ID, "another").click()
    assert wait_for(lambda: answer(page, "drawing")["seed"] != drawing["seed"])


def test_a_drawing_is_classified_by_the_other_model(page):
    page.find_element(By.ID, "classify-drawing").click()
    assert wait_for(lambda: result(page).startswith("After glimpse"))


def test_an_error_is_shown_in_one_line(page, tmp_path):
    (tmp_path / "notes.png").write_text("no photo")
    page.find_element(By.ID, "digit-file").send_keys(str(tmp_path / "notes.png"))
    error = page.find_element(By.ID, "digit-error")
    assert wait_for(error.is_displayed)
    assert error.text.startswith("`photo` must be a photo")


def test_a_finger_draws_and_controls_are_44_pixels_high(page):
    touch = "Emulation.setTouchEmulationEnabled"
    shown_as(page, 390, 844)
    page.execute_cdp_cmd(touch, {"enabled": True})
    try:
        points = places_on(page, "pad", (0.5, 0.2), (0.5, 0.5), (0.45, 0.8))
        kinds = ("touchStart", "touchMove", "touchMove")
        for kind, (x, y) in zip(kinds, points, strict=True):
            event = {"type": kind, "touchPoints": [{"x": x, "y": y}]}
            page.execute_cdp_cmd("Input.dispatchTouchEvent", event)
        end = {"type": "touchEnd", "touchPoints": []}
        page.execute_cdp_cmd("Input.dispatchTouchEvent", end)
        assert wait_for(lambda: result(page).startswith("After glimpse"))
        for control in page.find_elements(CSS, "#digits button, #digits label.button"):
            assert control.size["height"] >= 44, control.get_attribute("outerHTML")
        assert page.execute_script(
            "return document.documentElement.scrollWidth <= innerWidth"
        )
    finally:
        page.execute_cdp_cmd(touch, {"enabled": False})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_tab_fits_its_width(classified, width):
    shown_as(classified, width)
    assert classified.execute_script(
        "return document.documentElement.scrollWidth <= innerWidth"
    )


def test_every_control_has_a_name_for_screen_readers(classified):
    tree = classified.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "radio", "slider", "combobox", "img", "textbox", "tab"}
    names = {
        node["name"]["value"]
        for node in tree
        if node.get("role", {}).get("value") in controls and not node["ignored"]
    }
    assert "" not in names
    assert {"Photos", "Digits", "Clear", "Another sample"} <= names


def test_the_tabs_are_moved_through_by_arrow_keys(page):
    tab = page.find_element(By.ID, "tab-digits")
    tab.send_keys(Keys.ARROW_LEFT)
    assert page.find_element(By.ID, "photos").is_displayed()
    assert not page.find_element(By.ID, "digits").is_displayed()
    assert page.switch_to.active_element.text == "Photos"


def test_nothing_is_asked_of_another_machine(classified, address):
    asked = classified.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert any(url.endswith("/digits/classify") for url in asked)
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)
