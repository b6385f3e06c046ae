"""A region of a photo on the page, by mouse, finger and numbers; a phone."""

import re
import time

import numpy as np
import pytest
from chromium import (
    draw_by_finger,
    draw_by_mouse,
    fits,
    low_controls,
    places_on,
    shown_as,
    wait,
)

pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By

pytestmark = pytest.mark.slow
PHONE = pytest.mark.parametrize(
    "page", [{"width": 390, "height": 844, "touch": True}], indirect=True
)


def answer_of(browser):
    return browser.execute_script("return answer")


@PHONE
def test_on_a_phone_the_page_names_tapping_and_controls_are_44_pixels_high(captioned):
    text = captioned.find_element(By.TAG_NAME, "body").text
    assert "Tap a photo" in text
    assert "Tap a word" in text
    assert not re.search("hover|drop a photo", text, re.IGNORECASE)
    controls = "button, .button, select, input[type=text], input[type=range]"
    assert low_controls(captioned, f"{controls}, label:not([for])") == []
    assert fits(captioned)


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
    draw_by_mouse(captioned, "view", (0.75, 0.7), (0.25, 0.3), (0.25, 0.3))
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


@PHONE
def test_a_finger_marks_a_region_after_the_button_and_scrolls_before(captioned):
    draw_by_finger(captioned, "view", (0.5, 0.7), (0.5, 0.5), (0.5, 0.3))
    assert region_of(captioned) == ""
    wait_until_still(captioned)
    captioned.find_element(By.ID, "mark").click()
    places_on(captioned, "view")
    wait_until_still(captioned)
    draw_by_finger(captioned, "view", (0.25, 0.25), (0.5, 0.5), (0.75, 0.75))
    found = [int(x) for x in region_of(captioned).split(",")]
    assert found == pytest.approx([24, 18, 72, 54], abs=1)
    np.testing.assert_allclose(
        seen_region(captioned), (0.25, 0.25, 0.75, 0.75), atol=0.02
    )
    assert (
        captioned.find_element(By.ID, "mark").get_attribute("aria-pressed") == "false"
    )


def test_a_region_leaves_the_photo_bright_and_its_words_complete(captioned):
    shown_as(captioned, motion=True)
    captioned.find_element(By.ID, "region").send_keys("10,20,90,60\t")
    wait(captioned, lambda b: (answer_of(b) or {}).get("region"))
    state = (
        "return [timer, selected, answer.words.length, answer.wait >= answer.seconds]"
    )
    timer, selected, count, waited = captioned.execute_script(state)
    assert (timer, selected, waited) == (None, -1, True)
    assert len(captioned.find_elements("css selector", "#words button")) == count
    captioned.find_element(By.ID, "play").click()
    captioned.find_element(By.ID, "mark").click()
    assert captioned.execute_script("return [timer, selected]") == [None, -1]
