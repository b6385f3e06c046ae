"""Rendered words: same seed, same bytes; plain ones are the text; all are legible."""

import dataclasses
import hashlib

import numpy as np
import pytest
from made_up_words import (
    FAMILIES,
    PLAIN,
    SANS,
    SERIF,
    UNDAMAGED,
    OneWord,
    correlation,
    renderer,
)
from PIL import Image, ImageDraw

from data_prep.words.fonts import Family, find_families, open_face
from data_prep.words.geometry import LONGEST, place
from data_prep.words.layers import draw_layers
from data_prep.words.paint import _away, paint, sample_levels
from data_prep.words.render import _SIZES, contact_sheet
from show_attend_tell.data.characters import CHARACTERS


def rendered(count=40, **options):
    source = renderer(**options)
    return [source.render("train", number) for number in range(count)]


def test_a_word_is_a_crop_of_32_x_100_with_its_characters():
    for crop, word in rendered(200):
        assert crop.shape == (32, 100)
        assert crop.dtype == np.uint8
        assert 1 <= len(word) <= 23
        assert set(word) <= set(CHARACTERS)


def test_the_same_seed_renders_the_same_bytes_in_any_order():
    crops = rendered()
    source = renderer()
    for number in reversed(range(40)):
        crop, word = source.render("train", number)
        assert word == crops[number][1]
        np.testing.assert_array_equal(crop, crops[number][0])


def test_seeds_splits_and_numbers_render_other_words():
    one = renderer(effects=PLAIN)
    others = [one.render("train", 0), one.render("train", 1), one.render("val", 0)]
    others.append(renderer(seed=1, effects=PLAIN).render("train", 0))
    assert len({crop.tobytes() for crop, _ in others}) == 4


def templates(text, font):
    """Draw a text directly in each size, and crop it to its ink."""
    for size in _SIZES:
        image = Image.new("L", (900, 200))
        ImageDraw.Draw(image).text((50, 50), text, 255, open_face(font, size))
        ink = image.crop(image.getbbox())
        yield np.asarray(ink.resize((100, 32), Image.Resampling.BICUBIC))


def likeness(crop, text, font):
    """Return the largest correlation, of either polarity, with a text."""
    return max(abs(correlation(crop, one)) for one in templates(text, font))


@pytest.mark.parametrize("font", [SANS, SERIF])
@pytest.mark.parametrize("text", ["Word", "HOTEL", "x4", "restaurant"])
def test_a_plain_word_is_its_text(font, text):
    options = {"families": [Family("one", (font,))], "words": OneWord(text)}
    for crop, _ in rendered(20, effects=PLAIN, **options):
        assert likeness(crop, text, font) > 0.95
        assert likeness(crop, text[::-1], font) < 0.9


@pytest.mark.parametrize(
    "change",
    [
        {"spaced": 1.0},
        {"strokes": (0.0, 0.0, 1.0)},
        {"shadow": 1.0},
        {"outline": 1.0},
        {"ruled": 1.0},
        {"board": 1.0, "margin_x": (0.3, 0.3)},
        {"neighbours": 1.0, "margin_x": (0.5, 0.5), "margin_y": (0.5, 0.5)},
        {"rotation": 3.0},
        {"shear": 0.1},
        {"perspective": (0.1, 0.15)},
        {"arc": 1.0},
        {"heavy": 1.0},
        {"turned": 1.0},
        {"leaning": 1.0},
        {"shaded": 1.0},
        {"relief": 1.0},
        {"margin_x": (0.1, 0.3)},
        {"margin_y": (0.1, 0.3)},
        {"field": 25.0},
        {"texture": 1.0},
        {"reduced": 1.0},
        {"blur": 1.5},
        {"motion": 1.0},
        {"sharpened": 1.0},
        {"noise": 12.0},
        {"compressed": 1.0},
        {"gamma": (0.7, 1.4)},
        {"inverted": 1.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_effect_changes_the_crop_and_leaves_the_word(change):
    # Words after the first, as some effects are rare in small pictures.
    words = OneWord("MASSACHUSETTS")
    plain = rendered(6, effects=PLAIN, words=words)
    changed = rendered(6, effects=dataclasses.replace(PLAIN, **change), words=words)
    assert any(
        (one[0] != two[0]).any() for one, two in zip(plain, changed, strict=True)
    )
    assert {word for _, word in changed} == {"massachusetts"}
    assert all(crop.std() > 3 for crop, _ in changed)


def test_the_longest_words_are_narrower_than_the_widest_crop():
    """A wider one would lose its last letters, which its label has."""
    effects = dataclasses.replace(PLAIN, spaced=1.0, spacing=(0.3, 0.3))
    source = renderer(effects=effects, words=OneWord("W" * 23))
    for number in range(12):
        layers, _ = source._draw(np.random.default_rng(number))
        x0, _, x1, _ = layers.box
        assert LONGEST / 3 < x1 - x0 <= LONGEST


def test_letters_lean_to_the_right():
    effects = dataclasses.replace(PLAIN, leaning=1.0)
    for number in range(5):
        rng = np.random.default_rng(number)
        layers = draw_layers("IIII", SANS, 50, rng, effects, lambda rng: "")
        ink = np.asarray(place(layers, rng, effects).text)
        rows = np.flatnonzero(ink.any(axis=1))
        top, bottom = (np.flatnonzero(ink[row])[0] for row in (rows[1], rows[-2]))
        assert top > bottom + 3


def test_small_capitals_are_lower_than_the_first_letter():
    rng = np.random.default_rng(0)
    effects = dataclasses.replace(PLAIN, small_caps=1.0)
    layers = draw_layers("HHH", SANS, 50, rng, effects, lambda rng: "")
    ink = np.asarray(layers.text) > 128
    heights = [np.flatnonzero(column).size for column in ink.T if column.any()]
    assert heights[0] > 1.15 * heights[-1]


def test_an_arc_keeps_all_ink_of_a_word():
    effects = dataclasses.replace(PLAIN, arc=1.0)
    for number in range(60):
        rng = np.random.default_rng(number)
        size = (20, 60)[number % 2]
        text = ("iiiiiiiiii", "lll", "Ill ill")[number % 3]
        layers = draw_layers(text, SANS, size, rng, effects, lambda rng: "")
        ink = np.asarray(layers.text).sum()
        bent = np.asarray(place(layers, rng, effects).text).sum()
        assert 0.9 < bent / ink < 1.1


def test_levels_of_text_and_ground_differ_by_the_contrast():
    rng = np.random.default_rng(0)
    pairs = np.array([sample_levels(rng, 30.0) for _ in range(2000)])
    assert (abs(pairs[:, 0] - pairs[:, 1]) >= 30).all()
    assert pairs.min() >= 0
    assert pairs.max() <= 255
    assert 0.45 < (pairs[:, 0] < pairs[:, 1]).mean() < 0.55
    for level in (0.0, 100.0, 127.5, 255.0):
        found = np.array([_away(level, rng, 60.0) for _ in range(500)])
        assert (abs(found - level) >= 60).all()
        assert found.min() >= 0
        assert found.max() <= 255


def test_text_is_visible_on_uneven_grounds():
    effects = dataclasses.replace(UNDAMAGED, board=0.0, shadow=0.0, outline=0.0)
    effects = dataclasses.replace(effects, ruled=0.0, texture=1.0)
    for number in range(150):
        rng = np.random.default_rng(number)
        layers = draw_layers("Hotel", SANS, 40, rng, effects, lambda rng: "Inn")
        layers = place(layers, rng, effects)
        picture = paint(layers, rng, effects)
        ink = np.asarray(layers.text)
        assert abs(picture[ink > 200].mean() - picture[ink < 20].mean()) >= 15


def test_grounds_are_cut_from_photos():
    photo = np.tile(np.array([0, 255], np.uint8), (50, 100))  # stripes of one pixel
    effects = dataclasses.replace(PLAIN, texture=1.0)
    wide = dataclasses.replace(PLAIN, margin_x=(1.0, 1.0))
    striped = 0
    for number in range(20):
        rng = np.random.default_rng(number)
        layers = place(draw_layers("I", SANS, 60, rng, PLAIN, str), rng, wide)
        change = np.diff(paint(layers, rng, effects, [photo])[10, :12])
        striped += (abs(change) > 3).all() and (change[1:] * change[:-1] < 0).all()
    assert 8 <= striped <= 16


@pytest.mark.slow
def test_every_installed_font_draws_every_letter_and_a_word():
    for family in find_families():
        for font in family.fonts:
            for letter in "abcxyzABCXYZ0189":
                assert open_face(font, 32).getmask(letter).getbbox(), family.name
            source = renderer(families=[Family(family.name, (font,))], effects=PLAIN)
            crop, _ = source.render("train", 0)
            assert crop.std() > 3, font


def test_the_digest_depends_on_all_that_determines_the_bytes():
    variants = [
        renderer(),
        renderer(seed=1),
        renderer(effects=PLAIN),
        renderer(families=FAMILIES[:1]),
        renderer(words=OneWord()),
        dataclasses.replace(renderer(), photos=[np.zeros((5, 5), np.uint8)]),
    ]
    assert len({one.digest() for one in variants}) == len(variants)
    assert renderer().digest() == renderer().digest()


def test_the_contact_sheet_shows_every_crop():
    crops = np.full((10, 32, 100), 7, np.uint8)
    sheet = np.asarray(contact_sheet(crops, ["word"] * 10))
    assert sheet.shape == (2 * 50, 8 * 108)
    assert hashlib.sha256(sheet).digest() != hashlib.sha256(sheet * 0).digest()
    assert (sheet[50:82, 108:208] == 7).all()
    assert (sheet[50:82, 216:] == 255).all()
