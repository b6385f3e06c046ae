"""A region of a photo on the page, by mouse, finger and numbers; a phone."""

import re
import time

import numpy as np
import pytest

pytest.importorskip("selenium.webdriver")

from captioned_page import CSS, answer_of, wait, words  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


@pytest.fixture
def small_screen(browser):
    """A screen of 390 pixels that is touched."""
    touch = "Emulation.setTouchEmulationEnabled"
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.execute_cdp_cmd(touch, {"enabled": True})
    yield
    browser.execute_cdp_cmd(touch, {"enabled": False})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def phone(small_screen, captioned):
    """The page with a caption on a small screen."""
    return captioned


def test_on_a_phone_the_page_names_tapping_and_controls_are_44_pixels_high(phone):
    text = phone.find_element(By.TAG_NAME, "body").text
    assert "Tap a photo" in text
    assert "Tap a word" in text
    assert not re.search("hover|drop a photo", text, re.IGNORECASE)
    controls = "button, .button, select, input[type=text], input[type=range], label"
    for control in phone.find_elements(CSS, controls):
        if control.is_displayed() and not control.get_attribute("for"):
            assert control.size["height"] >= 44, control.get_attribute("outerHTML")
    for label in phone.find_elements(CSS, "label.button"):
        assert not label.is_displayed() or label.size["height"] >= 44
    assert phone.execute_script(
        "return document.documentElement.scrollWidth <= innerWidth"
    )


def corners(browser, *points):
    """Return points of the photo, given as fractions, in pixels of the window."""
    browser.execute_script("document.all.view.scrollIntoView()")
    left, top, width, height = browser.execute_script(
        "const r = document.all.view.getBoundingClientRect();"
        "return [r.left, r.top, r.width, r.height]"
    )
    return [(left + x * width, top + y * height) for x, y in points]


def touch(browser, *points):
    """Move one finger over the photo."""
    kinds = ["touchStart"] + ["touchMove"] * (len(points) - 1)
    for kind, (x, y) in zip(kinds, corners(browser, *points), strict=True):
        event = {"type": kind, "touchPoints": [{"x": x, "y": y}]}
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", event)
    end = {"type": "touchEnd", "touchPoints": []}
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", end)


def region_of(browser):
    return browser.find_element(By.ID, "region").get_property("value")


def seen_region(browser):
    wait(browser, lambda b: (answer_of(b) or {}).get("region"))
    x0, y0, x1, y1 = answer_of(browser)["seen"]
    left, top, right, bottom = answer_of(browser)["region"]
    across, down = x1 - x0, y1 - y0
    return (
        *(x0 + left * across, y0 + top * down),
        *(x0 + right * across, y0 + bottom * down),
    )


def test_a_dragged_rectangle_is_the_region_of_the_next_caption(captioned):
    (x0, y0), (x1, y1) = corners(captioned, (0.75, 0.7), (0.25, 0.3))
    for kind, x, y in (("Pressed", x0, y0), ("Moved", x1, y1), ("Released", x1, y1)):
        event = {"type": f"mouse{kind}", "x": x, "y": y, "button": "left"}
        event |= {"buttons": int(kind != "Released"), "clickCount": 1}
        captioned.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    # of 96 x 72 pixels, from the corners in the other order
    found = [int(x) for x in region_of(captioned).split(",")]
    assert found == pytest.approx([24, 22, 72, 50], abs=1)
    expected = np.array(found) / [96, 72, 96, 72]
    np.testing.assert_allclose(seen_region(captioned), expected, atol=1e-4)
    captioned.find_element(By.ID, "whole").click()
    wait(captioned, lambda b: answer_of(b)["region"] is None)
    assert region_of(captioned) == ""
    captioned.find_element(By.ID, "region").send_keys("10,20,90,60\t")
    wait(captioned, lambda b: answer_of(b)["region"])
    captioned.find_element(By.ID, "region").clear()
    captioned.find_element(By.ID, "region").send_keys("10,20,900,60\t")
    wait(captioned, lambda b: b.find_element(By.ID, "error").is_displayed())
    error = captioned.find_element(By.ID, "error").text
    assert "inside the photo, 0,0,96,72" in error


def wait_until_still(browser):
    """Wait until the photo stays where it is: a finger leaves the page scrolling."""
    place = "const r = document.getElementById('view').getBoundingClientRect();"
    before, since = None, time.monotonic()
    while time.monotonic() - since < 1:
        if (now := browser.execute_script(place + "return [r.x, r.y]")) != before:
            before, since = now, time.monotonic()
        time.sleep(0.05)


def test_a_finger_marks_a_region_after_the_button_and_scrolls_before(phone):
    touch(phone, (0.5, 0.7), (0.5, 0.5), (0.5, 0.3))
    assert region_of(phone) == ""
    wait_until_still(phone)
    phone.find_element(By.ID, "mark").click()
    phone.execute_script("document.getElementById('view').scrollIntoView()")
    wait_until_still(phone)
    touch(phone, (0.25, 0.25), (0.5, 0.5), (0.75, 0.75))
    found = [int(x) for x in region_of(phone).split(",")]
    assert found == pytest.approx([24, 18, 72, 54], abs=1)
    np.testing.assert_allclose(seen_region(phone), (0.25, 0.25, 0.75, 0.75), atol=0.02)
    assert phone.find_element(By.ID, "mark").get_attribute("aria-pressed") == "false"


def test_a_region_leaves_the_photo_bright_and_its_words_complete(captioned):
    motion = {"name": "prefers-reduced-motion", "value": "no-preference"}
    captioned.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [motion]})
    captioned.find_element(By.ID, "region").send_keys("10,20,90,60\t")
    wait(captioned, lambda b: (answer_of(b) or {}).get("region"))
    state = (
        "return [timer, selected, answer.words.length, answer.wait >= answer.seconds]"
    )
    timer, selected, count, waited = captioned.execute_script(state)
    assert (timer, selected, waited) == (None, -1, True)
    assert len(words(captioned)) == count
    captioned.find_element(By.ID, "play").click()
    captioned.find_element(By.ID, "mark").click()
    assert captioned.execute_script("return [timer, selected]") == [None, -1]
