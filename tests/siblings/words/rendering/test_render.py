"""Rendered words: same seed, same bytes; the crop shows its word; all is legible."""

import dataclasses

import numpy as np
import pytest
from made_up_words import FAMILIES, SANS, SERIF, OneWord, renderer
from PIL import Image, ImageDraw

from show_attend_tell.siblings.words.data import CHARACTERS
from show_attend_tell.siblings.words.rendering.fonts import find_families, open_face
from show_attend_tell.siblings.words.rendering.prepare import contact_sheet
from show_attend_tell.siblings.words.rendering.render import (
    LONGEST,
    Layers,
    crop,
    curve,
    draw,
    paint,
    sample_levels,
)


def test_a_seed_renders_the_same_crops_and_characters_in_any_order():
    one, other = renderer(), renderer()
    crops = [one.render("train", number) for number in range(100)]
    for number in reversed(range(100)):
        picture, word = other.render("train", number)
        assert word == crops[number][1]
        np.testing.assert_array_equal(picture, crops[number][0])
        assert (picture.shape, picture.dtype) == ((32, 100), np.uint8)
        assert picture.std() > 2
        assert 1 <= len(word) <= 23
        assert set(word) <= set(CHARACTERS)


def test_seeds_splits_and_numbers_render_other_words():
    one = renderer()
    others = [one.render("train", 0), one.render("train", 1), one.render("val", 0)]
    others.append(renderer(seed=1).render("train", 0))
    assert len({picture.tobytes() for picture, _ in others}) == 4


def drawn(text, number, size=40, font=SANS):
    rng = np.random.default_rng(number)
    layers, box = draw(text, open_face(font, size), rng, lambda rng: "Inn")
    return layers, box, rng


def likeness(mask, text, font):
    """Return the correlation of a mask's ink with a text that is drawn directly."""
    image = Image.new("L", (900, 200))
    ImageDraw.Draw(image).text((50, 50), text, 255, open_face(font, 40))
    shapes = [part.crop(part.getbbox()).resize((100, 32)) for part in (image, mask)]
    return np.corrcoef(*(np.asarray(shape, float).ravel() for shape in shapes))[0, 1]


@pytest.mark.parametrize("font", [SANS, SERIF])
@pytest.mark.parametrize("text", ["Word", "HOTEL", "x4", "restaurant"])
def test_a_word_is_its_text(font, text):
    masks = []
    for number in range(20):
        layers, box, _ = drawn(text, number, font=font)
        masks.append(layers.text.crop(box))
    assert max(likeness(mask, text, font) for mask in masks) > 0.95
    assert np.median([likeness(mask, text, font) for mask in masks]) > 0.6
    assert max(likeness(mask, text[::-1], font) for mask in masks) < 0.9


def test_every_layer_occurs_and_contains_the_word():
    seen = set()
    for number in range(80):
        layers, (x0, y0, x1, y1), _ = drawn("Hotel", number)
        seen |= {name for name, mask in layers._asdict().items() if mask is not None}
        assert {mask.size for mask in layers if mask is not None} == {layers.text.size}
        ink = np.asarray(layers.outline or layers.text)[y0:y1, x0:x1]
        assert ink.any(axis=0)[[0, -1]].all()
        assert ink.any(axis=1)[[0, -1]].all()
    assert seen == {"text", "shadow", "outline", "ruled"}


def test_the_longest_words_are_narrower_than_the_widest_crop():
    """A wider one would lose its last letters, which its label has."""
    source = renderer(families={"one": [SANS]}, words=OneWord("W" * 23))
    for number in range(12):
        assert source.render("train", number)[1] == "w" * 23
    _, (x0, _, x1, _), _ = drawn("W" * 23, 0, size=28)
    assert LONGEST / 3 < x1 - x0 <= LONGEST


def test_a_curve_lifts_the_middle_and_keeps_all_ink():
    mask = Image.new("L", (200, 100))
    ImageDraw.Draw(mask).rectangle([20, 48, 180, 52], 255)
    for rise in (-20.0, 20.0):
        bent = np.asarray(curve(mask, rise), float)
        assert bent.sum() == pytest.approx(np.asarray(mask, float).sum(), rel=0.01)
        rows = [bent[:, x].argmax() for x in (21, 100, 179)]
        assert rows[0] == pytest.approx(rows[2], abs=1)
        assert rows[0] - rows[1] == pytest.approx(0.63 * rise, abs=2)


def test_a_crop_keeps_the_word():
    for number in range(60):
        layers, box, rng = drawn(("iiiiiiiiii", "lll", "Ill")[number % 3], number)
        alone = Image.new("L", layers.text.size)
        alone.paste(layers.text.crop(box), box)
        kept = np.asarray(crop(Layers(alone), box, rng).text, float)
        assert kept.any()
        edges = kept[:, [0, -1]].sum() + kept[[0, -1]].sum()
        assert edges < 0.1 * kept.sum()


def test_text_is_visible_on_every_ground():
    rng = np.random.default_rng(0)
    pairs = np.array([sample_levels(rng) for _ in range(2000)])
    assert (abs(pairs[:, 0] - pairs[:, 1]) >= 30).all()
    assert pairs.min() >= 0
    assert pairs.max() <= 255
    assert 0.45 < (pairs[:, 0] < pairs[:, 1]).mean() < 0.55
    for number in range(150):
        layers, box, rng = drawn("Hotel", number)
        layers = Layers(crop(layers, box, rng).text)
        picture, ink = paint(layers, rng), np.asarray(layers.text)
        assert abs(picture[ink > 200].mean() - picture[ink < 20].mean()) >= 15


def test_grounds_are_cut_from_photos():
    photo = np.tile(np.array([0, 255], np.uint8), (200, 200))  # stripes of one pixel
    blank = Layers(Image.new("L", (60, 40)))
    striped = 0
    for number in range(40):
        change = np.diff(paint(blank, np.random.default_rng(number), [photo])[10])
        striped += (change[1:] * change[:-1] < 0).all()
    assert 16 <= striped <= 32


@pytest.mark.slow
def test_every_installed_font_draws_every_letter_and_a_word():
    for name, fonts in find_families().items():
        for font in fonts:
            for letter in "abcxyzABCXYZ0189":
                assert open_face(font, 32).getmask(letter).getbbox(), name
            picture, _ = renderer(families={name: [font]}).render("train", 0)
            assert picture.std() > 2, font


def test_the_digest_depends_on_all_that_determines_the_bytes():
    variants = [
        renderer(),
        renderer(seed=1),
        renderer(families={"DejaVu Sans": [SANS]}),
        renderer(families={**FAMILIES, "DejaVu Sans": [SERIF]}),
        renderer(words=OneWord()),
        renderer(photos=[np.zeros((5, 5), np.uint8)]),
        dataclasses.replace(renderer(), photos=[np.zeros((1, 25), np.uint8)]),
    ]
    assert len({one.digest() for one in variants}) == len(variants)
    assert renderer().digest() == renderer().digest()


def test_the_contact_sheet_shows_every_crop():
    crops = np.full((10, 32, 100), 7, np.uint8)
    sheet = np.asarray(contact_sheet(crops, ["word"] * 10))
    assert sheet.shape == (2 * 50, 8 * 108)
    assert (sheet[50:82, 108:208] == 7).all()
    assert (sheet[50:82, 216:] == 255).all()
