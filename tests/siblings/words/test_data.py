"""Prepared words: crops and manifest, and the faults of their files."""

import io
import json
import os

import numpy as np
import pytest
from pictures import image_bytes
from PIL import Image
from refusals import refusal, refused

from show_attend_tell.runtime.errors import DataError, PhotoError
from show_attend_tell.siblings.words.data import (
    Word,
    WordData,
    normalise,
    read_crop,
    write_manifest,
)

ROWS = [
    Word("train", "first"),
    Word("train", "2nd"),
    Word("val", "third", "train/3.jpg"),
    Word("test", "last"),
]


def write(folder, rows=ROWS, images=None):
    if images is None:
        images = np.arange(len(rows), dtype=np.uint8)[:, None, None]
        images = np.broadcast_to(images, (len(rows), 32, 100))
    np.save(folder / "words.npy", images)
    write_manifest(folder, rows)
    return folder


def test_a_split_has_its_crops_and_words(tmp_path):
    data = WordData.open(write(tmp_path), "train")
    assert len(data) == 2
    assert data.words == ["first", "2nd"]
    assert data.images.shape == (2, 32, 100)
    assert data.images[:, 5, 5].tolist() == [0, 1]
    assert WordData.open(tmp_path, "val").images[0, 0, 0] == 2
    everything = WordData.open(tmp_path, "all")
    assert everything.words == [row.word for row in ROWS]
    assert isinstance(data.images, np.memmap)  # mapped and not read
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0


def error_of(folder, split="train"):
    return refusal(DataError, WordData.open, folder, split)


def test_files_and_splits_that_are_absent_or_do_not_fit_are_named(tmp_path):
    assert "words.jsonl: no such file; run `prepare`" in error_of(tmp_path)
    write(tmp_path, ROWS[:3])
    assert "`split` must be 'train' or 'val'" in error_of(tmp_path, "test")
    (tmp_path / "words.npy").unlink()
    assert "words.npy: no such file; run `prepare`" in error_of(tmp_path)
    write(tmp_path, [*ROWS, Word("train", "again")])
    assert "rows of train must follow each other" in error_of(tmp_path)
    assert len(WordData.open(tmp_path, "val")) == 1
    write_manifest(tmp_path, ROWS[:3])
    assert "Received: 5 and 3; prepare the words again" in error_of(tmp_path)


GOOD = json.dumps({"split": "train", "word": "good"})
BAD_ROWS = {
    "no JSON": "{",
    "no object": "[1]",
    "a key is absent": '{"split": "train"}',
    "a key is unknown": '{"split": "train", "word": "a", "caption": "a"}',
    "no string": '{"split": "train", "word": 7}',
    "half a surrogate": '{"split": "train", "word": "a", "path": "\\ud800"}',
    "an unknown split": '{"split": "dev", "word": "a"}',
    "a capital": '{"split": "train", "word": "A"}',
    "an empty word": '{"split": "train", "word": ""}',
    "a long word": json.dumps({"split": "train", "word": "a" * 24}),
    "another character": '{"split": "train", "word": "a-b"}',
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_malformed_row_is_named_by_its_line(tmp_path, row):
    write(tmp_path)
    (tmp_path / "words.jsonl").write_text(f"{GOOD}\n{row}\n")
    assert "words.jsonl: line 2: cannot be read" in error_of(tmp_path)


def test_damaged_crops_are_refused(tmp_path):
    path = write(tmp_path) / "words.npy"
    content = path.read_bytes()
    for damaged in (b"", content[:40], content[:-1], b"0" * 200):
        path.write_bytes(damaged)
        assert "words.npy: cannot be read" in error_of(tmp_path)
    for images in (np.zeros((4, 32, 99), np.uint8), np.zeros((4, 32, 100))):
        write(tmp_path, images=images)
        assert "its crops have the shape" in error_of(tmp_path)


def png(array, **options):
    return io.BytesIO(image_bytes(Image.fromarray(array), **options))


def test_a_crop_of_the_right_size_is_read_as_it_is(rng, tmp_path):
    array = rng.integers(0, 256, (32, 100), dtype=np.uint8)
    np.testing.assert_array_equal(read_crop(png(array)), array)
    path = tmp_path / "word.png"
    path.write_bytes(png(array).getvalue())
    np.testing.assert_array_equal(read_crop(path), array)


def test_a_colour_crop_becomes_grey_and_bicubic(rng):
    array = rng.integers(0, 256, (40, 90, 3), dtype=np.uint8)
    image = Image.fromarray(array).convert("L")
    expected = np.asarray(image.resize((100, 32), Image.Resampling.BICUBIC))
    crop = read_crop(png(array))
    np.testing.assert_array_equal(crop, expected)
    assert crop.dtype == np.uint8
    smallest = read_crop(png(np.full((1, 1), 77, np.uint8)))
    np.testing.assert_array_equal(smallest, np.full((32, 100), 77))


def test_files_that_are_no_crops_are_refused_in_one_line(tmp_path):
    empty, text, pipe = (tmp_path / name for name in ("a.png", "b.png", "c.png"))
    empty.write_bytes(b"")
    text.write_text("word")
    os.mkfifo(pipe)
    cut = tmp_path / "d.png"
    cut.write_bytes(png(np.zeros((50, 50), np.uint8)).getvalue()[:60])
    for path in (empty, text, pipe, cut, tmp_path, tmp_path / "absent.png"):
        with refused(PhotoError) as error:
            read_crop(path)
        assert str(path) in str(error.value)


def test_a_normalised_crop_has_mean_0_and_deviation_1(rng):
    crops = rng.integers(0, 256, (3, 32, 100), dtype=np.uint8)
    crops[1] = 40 + crops[1] // 4
    x = crops.astype(np.float64)
    expected = [(one - one.mean()) / one.std() for one in x]
    found = normalise(crops)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(normalise(crops[1]), found[1], atol=1e-6)


def test_brightness_and_contrast_do_not_matter(rng):
    crop = rng.integers(0, 100, (32, 100), dtype=np.uint8)
    np.testing.assert_allclose(normalise(crop), normalise(2 * crop + 9), atol=1e-4)


def test_a_crop_of_one_grey_level_is_zero_and_its_noise_stays_small():
    crop = np.full((32, 100), 200, np.uint8)
    assert (normalise(crop) == 0).all()
    crop[0, 0] = 201
    assert abs(normalise(crop)).max() <= 1
