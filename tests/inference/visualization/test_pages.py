"""The attention page: its content, and its behaviour in a real browser, offline."""

import base64
import dataclasses
import html
import json
import re

import numpy as np
import pytest
from chromium import browser, fits, photos_in, shown_as, wait_for
from made_up_captions import GRID, make_alpha, make_caption

from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.tags import Tag
from show_attend_tell.inference.visualization.attention_figure import (
    attention_map,
    caption_figure,
)
from show_attend_tell.inference.visualization.pages import (
    FRAME_HEIGHT,
    describe_caption,
    stream_page,
    write_attention_page,
)


def page_of(captions) -> str:
    return "".join(stream_page(map(describe_caption, captions)))


def test_gates_that_are_all_one_are_those_of_a_model_without_and_not_shown():
    caption = make_caption()
    without = dataclasses.replace(caption, beta=np.ones_like(caption.beta))
    (photo,) = photos_in(page_of([without]))
    assert photo["beams"][0]["beta"] is None
    for one, shown in ((caption, True), (without, False)):
        axes = caption_figure(one).axes
        words = [text.get_text() for axis in axes for text in axis.texts]
        assert any("p 0" in word for word in words)
        assert any("β" in word for word in words) == shown


def test_a_page_contains_words_numbers_and_attention_of_every_beam():
    caption = make_caption()
    (photo,) = photos_in(page_of([caption]))
    assert photo["grid"] == list(GRID)
    assert photo["size"] == [120, 90]
    best, second, third = photo["beams"]
    assert best["words"] == ["A", "red", "<b>"]
    assert (second["text"], third["words"]) == ("A blue circle.", ["One"])
    np.testing.assert_allclose(best["beta"], caption.beta, atol=1e-3)
    np.testing.assert_allclose(best["p"], np.exp(caption.word_log_probs), atol=1e-3)
    shades = np.frombuffer(base64.b64decode(best["alpha"]), np.uint8).reshape(3, -1)
    scaled = caption.attention.reshape(3, -1) / 0.9
    np.testing.assert_allclose(shades / 255, scaled, atol=0.5 / 255 + 1e-6)
    assert best["peaks"] == [0, 6, 11]
    assert best["locations"] is None


def test_a_page_contains_the_region_of_a_caption():
    caption = make_caption()
    marked = dataclasses.replace(caption, region=(0.25, 0.5, 1.0, 1.0))
    one, two = photos_in(page_of([marked, caption]))
    assert one["region"] == [0.25, 0.5, 1, 1]
    assert two["region"] is None


def test_a_page_lists_the_tags_of_a_photo():
    caption = make_caption()
    tags = (Tag("dog", 0.9), Tag("hot dog", 0.5))
    one, two, three = photos_in(
        page_of([dataclasses.replace(caption, tags=x) for x in (tags, (), None)])
    )
    assert one["note"] == "Tags: dog, hot dog"
    assert two["note"] == three["note"] == ""


def test_a_page_says_why_attention_leaves_the_region():
    caption = make_caption()
    box = {"region": (0.25, 0.5, 1.0, 1.0)}
    short, long = (
        dataclasses.replace(caption, **box, region_words=count) for count in (3, 2)
    )
    one, two, three = photos_in(page_of([short, long, caption]))
    assert one["note"] == three["note"] == ""
    assert two["note"] == (
        "The first 2 words come from the dashed region; attention is free at the "
        "others."
    )


def test_a_page_has_as_many_decimals_as_the_word_of_a_confidence_needs():
    captions = [
        dataclasses.replace(make_caption(), confidence=c) for c in (0.718, 0.72, None)
    ]
    found = photos_in(page_of(captions))
    assert [one["confidence"] for one in found] == ["0.718", "0.72", None]


def test_no_text_can_end_the_script_that_contains_it():
    evil = "</script><script>alert(1)</script><!--"
    text = page_of([make_caption(evil, (2,), path=f"{evil}.jpg")])
    (photo,) = photos_in(text)
    assert photo["beams"][0]["words"] == [evil]
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == page_of([make_caption()]).count("</script>")


def test_a_page_names_no_address_outside_of_itself():
    text = page_of([make_caption()])
    assert "default-src 'none'" in text
    without_photos = re.sub(r"data:image/jpeg;base64,[\w+/=]+", "", text)
    assert not re.search(r"(https?:)?//\w", without_photos)


def test_photos_are_written_while_they_are_captioned(tmp_path):
    captioned = []

    def results():
        for number in range(4):
            captioned.append(number)
            yield (
                make_caption(path=f"{number}.jpg") if number % 2 else Failure("x", "x")
            )

    path = tmp_path / "deep" / "page.html"
    page = write_attention_page(results(), path)
    for number, result in enumerate(page):
        assert isinstance(result, Failure) == (number % 2 == 0)
        assert len(captioned) <= number + 2  # none is kept for later
    assert len(photos_in(path.read_text("utf-8"))) == 2


def test_a_name_that_is_not_utf8_is_written(tmp_path):
    path = tmp_path / "page.html"
    list(write_attention_page([make_caption(path="\udcff é.jpg")], path))
    (photo,) = photos_in(path.read_text("utf-8"))
    assert photo["name"] == "\udcff é.jpg"


def test_a_page_that_is_interrupted_leaves_the_old_one(tmp_path):
    path = tmp_path / "page.html"
    list(write_attention_page([make_caption()], path))
    earlier = path.read_bytes()
    started = write_attention_page([make_caption(), make_caption()], path)
    next(started)
    started.close()
    assert path.read_bytes() == earlier
    assert list(tmp_path.iterdir()) == [path]


def test_jupyter_gets_the_page_in_a_frame():
    caption = make_caption()
    shown = caption._repr_html_()
    (content,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(content) == page_of([caption])
    assert 'title="A red &lt;b&gt;."' in shown


@pytest.fixture(scope="module")
def driver():
    with browser() as started:
        yield started


@pytest.fixture
def opened(driver, tmp_path):
    """Open a page of two photos; the second one is of hard attention."""
    hard = make_caption("two stars", (5, 2), locations=np.array([5, 2]))
    path = tmp_path / "page with spaces.html"
    list(write_attention_page([make_caption(), hard], path))
    shown_as(driver)
    driver.get(path.as_uri())
    return driver


def find(driver, selector):
    return driver.find_elements("css selector", selector)


def brightest(driver, selector=".best canvas"):
    """Return row and column, from 0 to 1, of the least shaded point of a photo."""
    return driver.execute_script(
        """const canvas = document.querySelector(arguments[0]);
        const {width, height} = canvas, data =
          canvas.getContext("2d").getImageData(0, 0, width, height).data;
        let best = 0;
        for (let i = 0; i < width * height; i++)
          if (data[4 * i + 3] < data[4 * best + 3]) best = i;
        return [(Math.floor(best / width) + .5) / height, (best % width + .5) / width];
        """,
        selector,
    )


def press(driver, key):
    driver.switch_to.active_element.send_keys(key)


def pressed(driver):
    return [one.text for one in find(driver, ".best [aria-pressed=true]")]


def test_moving_along_the_words_lights_the_photo_at_the_peak_of_attention(opened):
    words = find(opened, "article:first-of-type .best .words button")
    assert [one.text for one in words] == ["A", "red", "<b>"]
    for word, cell in zip(words, (0, 6, 11), strict=True):
        word.click()
        row, column = brightest(opened)
        assert divmod(cell, GRID[1]) == (int(row * GRID[0]), int(column * GRID[1]))
        about = find(opened, ".best .about")[0].text
        assert about.startswith(f"{word.text}: p 0.")


def test_the_browser_smooths_attention_as_the_figures_do(opened):
    find(opened, ".best .words button")[1].click()
    found = opened.execute_script(
        "return spread(Array.from(arguments[0]), arguments[1])",
        make_alpha([6]).ravel().tolist(),
        list(GRID),
    )
    expected = attention_map(make_alpha([6])[0])
    expected = expected.reshape(12, 4, 16, 4).mean((1, 3))  # 16 pixels to 4
    found = np.reshape(found, (12, 16))
    np.testing.assert_allclose(found, expected / expected.max(), atol=0.02)


def test_keys_walk_along_the_words_and_between_the_captions(opened):
    from selenium.webdriver.common.keys import Keys

    press(opened, Keys.ARROW_RIGHT)
    assert opened.switch_to.active_element.text == "A"
    for key, expected in (
        (Keys.ARROW_RIGHT, "red"),
        (Keys.END, "<b>"),
        (Keys.ARROW_RIGHT, "<b>"),
        (Keys.ARROW_DOWN, "circle"),
        (Keys.HOME, "A"),
        (Keys.ARROW_DOWN, "One"),
        (Keys.ARROW_DOWN, "One"),
    ):
        press(opened, key)
        assert opened.switch_to.active_element.text == expected
    outline = opened.switch_to.active_element.value_of_css_property("outline-style")
    assert outline == "solid"
    press(opened, Keys.ESCAPE)
    assert pressed(opened) == []
    assert find(opened, ".best .about")[0].text.startswith("log p")


def test_a_page_opens_with_the_photo_and_its_best_caption_alone(opened):
    shown = [one for one in find(opened, "main img") if one.is_displayed()]
    assert len(shown) == 2  # of two photos
    others = find(opened, ".others")[0]
    assert others.text == "2 other captions"
    others.find_element("css selector", "summary").click()
    assert len([one for one in find(opened, "main img") if one.is_displayed()]) == 4
    about = find(opened, "body > details")[0]
    assert "probability" not in about.text
    about.find_element("css selector", "summary").click()
    assert "probability" in about.text


def test_all_captions_of_a_photo_show_the_same_position(opened):
    find(opened, ".others summary")[0].click()
    find(opened, ".best .words button")[2].click()
    article = find(opened, "article")[0]
    lit = article.find_elements("css selector", "[aria-pressed=true]")
    assert [one.text for one in lit] == ["<b>", "circle"]


def test_playing_goes_through_all_words_and_stops(opened):
    button = find(opened, ".play")[0]
    button.click()
    assert button.text == "Stop"
    assert wait_for(lambda: pressed(opened) == ["red"])
    assert wait_for(lambda: button.text == "Play")
    assert pressed(opened) == []


def test_a_selected_location_is_outlined_in_its_cell(opened):
    words = find(opened, "article:last-of-type .best .words button")
    words[0].click()
    (cell,) = (one for one in find(opened, ".best .cell") if one.is_displayed())
    style = opened.execute_script(
        "return [arguments[0].style.top, arguments[0].style.left]", cell
    )
    assert [float(value.rstrip("%")) for value in style] == pytest.approx(
        [100 / 3, 25], abs=0.01
    )


def test_every_control_and_photo_has_a_name(opened):
    for image in find(opened, ".best img"):
        assert image.get_attribute("alt").startswith("Photo photo.jpg: ")
    label = find(opened, ".words button")[1].get_attribute("aria-label")
    assert label == "red, p 0.70, β 0.50, attention centre"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_pages_fit_the_screen_and_follow_the_theme(opened, width, dark):
    shown_as(opened, width, dark=dark)
    assert fits(opened)
    ground = opened.execute_script("return getComputedStyle(document.body).background")
    level = int(re.search(r"\d+", ground)[0])
    assert (level < 50) == dark


def test_the_page_requests_nothing_but_itself(opened):
    requests = [json.loads(one["message"]) for one in opened.get_log("performance")]
    asked = [
        one["message"]["params"]["request"]["url"]
        for one in requests
        if one["message"]["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)


def test_in_a_frame_the_page_sets_its_height(driver, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html>" + make_caption()._repr_html_(), "utf-8")
    shown_as(driver, 900)
    driver.get(path.as_uri())
    frame = find(driver, "iframe")[0]
    assert wait_for(lambda: frame.size["height"] != FRAME_HEIGHT)
