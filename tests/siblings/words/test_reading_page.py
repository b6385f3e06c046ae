"""The page of words that were read: its content, and its behaviour in a browser."""

import base64
from pathlib import Path

import numpy as np
import pytest
from chromium import browser, photos_in, shown_as, wait_for
from tiny_reader import drawn_crop

from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.visualization.pages import write_attention_page
from show_attend_tell.siblings.words.figures import describe_reading
from show_attend_tell.siblings.words.reading import Reading

GRID = (4, 12)


def reading(word="stop", characters="st0p", peaks=(1, 16, 31, 46)):
    """Return a word whose characters attend to one place each, almost."""
    T = len(characters)
    alpha = np.full((T, GRID[0] * GRID[1]), 0.1 / 47, np.float32)
    alpha[np.arange(T), list(peaks)[:T]] = 0.9
    p = np.linspace(0.9, 0.3, T).astype(np.float32)
    path = Path("crops") / f"{characters}.png"
    crop = drawn_crop(characters or "i")
    return Reading(path, word, -1.5, p, characters, alpha.reshape(T, *GRID), crop)


def write(path, results):
    page = write_attention_page(results, path, describe_reading, "character")
    assert list(page) == results
    return path.read_text(encoding="utf-8")


def test_a_page_has_the_characters_and_attention_of_each_word(tmp_path):
    one, bad = reading(), Failure(Path("no.png"), "no.png: no such photo")
    text = write(tmp_path / "page.html", [one, bad, reading("a", "a", (5,))])
    photo, other = photos_in(text)
    assert (photo["name"], photo["grid"]) == ("st0p.png", list(GRID))
    assert photo["size"] == [96, 32]  # without the columns that no place covers
    (shown,) = photo["beams"]
    assert (shown["text"], shown["words"]) == ("stop", list("st0p"))
    assert shown["logProb"] == -1.5
    assert shown["score"] is shown["beta"] is shown["locations"] is None
    np.testing.assert_allclose(shown["p"], one.probabilities, atol=1e-3)
    shades = np.frombuffer(base64.b64decode(shown["alpha"]), np.uint8)
    wanted = one.attention.ravel() / 0.9
    np.testing.assert_allclose(shades / 255, wanted, atol=0.5 / 255 + 1e-6)
    assert shown["peaks"] == [1, 16, 31, 46]
    assert other["beams"][0]["words"] == ["a"]
    assert "<title>Attention of each character</title>" in text
    assert "β" not in text.partition("<main")[0]


@pytest.mark.slow
def test_characters_are_moved_through_and_an_empty_word_cannot_be_played(tmp_path):
    path = tmp_path / "page.html"
    write(path, [reading(), reading("", "")])
    with browser() as driver:
        shown_as(driver)
        driver.get(path.as_uri())
        move_through(driver)


def move_through(driver):
    def about():
        return [one.text for one in driver.find_elements("css selector", ".about")]

    assert wait_for(lambda: len(about()) == 2)
    assert about() == ["stop: log p -1.50", ": log p -1.50"]
    buttons = driver.find_elements("css selector", ".words button")
    assert [button.text for button in buttons] == list("st0p")
    buttons[0].click()
    assert about()[0] == "s: p 0.90, attention top left"
    buttons[0].send_keys("\ue010")  # End
    assert about()[0] == "p: p 0.30, attention bottom right"
    plays = driver.find_elements("css selector", ".play")
    assert [button.is_enabled() for button in plays] == [True, False]
    plays[0].click()
    assert wait_for(lambda: plays[0].text == "Stop")
    assert wait_for(lambda: plays[0].text == "Play")
    assert driver.get_log("browser") == []
