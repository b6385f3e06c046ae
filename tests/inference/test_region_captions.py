"""Captions of regions: from Python, on the command line, in JSON and in figures."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from show_attend_tell.inference.visualization.attention_figure import (
    attention_figure,
    caption_figure,
    figure_to_array,
    maps_figure,
)

LEFT = (6, 5, 22, 35)  # of a photo of 60 x 40 pixels


@pytest.fixture(scope="session")
def captioned(pipeline, photo):
    return pipeline.caption(photo, region=LEFT)


def test_attention_is_inside_the_region(captioned, pipeline, photo):
    rows, columns = pipeline.captioner.grid
    x0, y0, x1, y1 = captioned.region
    row, column = np.mgrid[:rows, :columns]
    outside = (column + 1) / columns <= x0
    outside |= column / columns >= x1
    outside |= ((row + 1) / rows <= y0) | (row / rows >= y1)
    assert outside.any()
    whole = pipeline.caption(photo)
    first = pipeline.decoding().region_words
    assert first < len(captioned.words)
    assert captioned.attention[:first, outside].sum(-1).max() < 0.01
    assert captioned.attention[first:, outside].sum(-1).min() > 0.1
    assert whole.attention[:, outside].sum(-1).min() > 0.1
    assert whole.region is None


def test_the_region_is_of_the_photo_as_displayed(pipeline, photo, tmp_path):
    upright, exif = Image.open(photo), Image.Exif()
    exif[0x0112] = 6  # to be displayed turned by 90 degrees clockwise
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    turned.save(tmp_path / "turned.png", exif=exif)
    one = pipeline.caption(photo, region=LEFT)
    two = pipeline.caption(tmp_path / "turned.png", region=LEFT)
    assert one.text == two.text
    np.testing.assert_array_equal(one.attention, two.attention)


def test_the_command_line_writes_the_caption_of_the_region(run, captioned, photo):
    text = ",".join(map(str, LEFT))
    code, lines, _ = run(photo, "--region", text, "--json")
    assert code == 0
    found = json.loads(lines[0])
    assert found["text"] == captioned.text
    np.testing.assert_allclose(found["region"], captioned.region, atol=1e-6)
    assert found["region_words"] == captioned.region_words
    code, lines, _ = run(photo, "--json")
    assert not {"region", "region_words"} & json.loads(lines[0]).keys()


def test_a_malformed_region_is_wrong_usage(run, photo):
    code, lines, err = run(photo, "--region", "1,2,3")
    assert (code, lines) == (2, [])
    assert "\nError: `region` must be four numbers" in err


def test_a_region_outside_the_photo_is_one_line_and_exit_status_1(run, photo):
    code, lines, err = run(photo, "--region", "0,0,61,40")
    assert (code, lines, err.count("\n")) == (1, [], 1)
    assert err.startswith("error: `region` must be inside the photo")


def test_a_region_with_a_minimum_confidence_is_wrong_usage(run, photo):
    code, lines, err = run(photo, "--region", "0,0,9,9", "--min-confidence", 0.5)
    assert (code, lines) == (2, [])
    assert "\nError: `min_confidence` needs captions of the whole photo" in err


def test_the_figure_has_the_outline_of_the_region_in_every_panel():
    grey = np.full((80, 80, 3), 128, np.uint8)
    one = (["word"], np.full((1, 4, 4), 1 / 16))
    plain = figure_to_array(attention_figure(grey, *one))
    outlined = figure_to_array(attention_figure(grey, *one, region=(0.25, 0.5, 1, 1)))
    changed = np.argwhere((plain != outlined).any(-1))  # rows and columns
    height, width = plain.shape[:2]
    left = changed[changed[:, 1] < width / 2]
    assert len(left) > 100
    assert len(changed) == pytest.approx(2 * len(left), rel=0.05)  # in both panels
    assert (left[:, 0] > 0.3 * height).all()  # the lower half of the photo only


def test_the_figure_says_how_many_words_come_from_the_region(pipeline, photo):
    found = pipeline.caption(photo, region=LEFT)
    assert found.region_words == pipeline.decoding().region_words
    assert pipeline.caption(photo).region_words is None
    for count, noted in ((len(found.words), False), (len(found.words) - 1, True)):
        caption = dataclasses.replace(found, region_words=count)
        rows = [("head", caption.attention)]
        figures = [
            caption_figure(caption),
            maps_figure(
                caption.view, caption.words, rows, region_words=caption.region_words
            ),
        ]
        for figure in figures:
            notes = [text.get_text() for text in figure.texts]
            assert any("from the dashed region" in note for note in notes) == noted
