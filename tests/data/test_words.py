"""Prepared words: crops and manifest, and the faults of their files."""

import json

import numpy as np
import pytest

from show_attend_tell.data.words import Word, WordData, write_manifest
from show_attend_tell.runtime.errors import WordsError

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


def test_a_split_has_its_crops_words_and_paths(tmp_path):
    data = WordData.open(write(tmp_path), "train")
    assert len(data) == 2
    assert data.words == ["first", "2nd"]
    assert data.paths == ["", ""]
    assert data.images.shape == (2, 32, 100)
    assert data.images[:, 5, 5].tolist() == [0, 1]
    data = WordData.open(tmp_path, "val")
    assert data.paths == ["train/3.jpg"]
    assert data.images[0, 0, 0] == 2
    everything = WordData.open(tmp_path, "all")
    assert everything.words == [row.word for row in ROWS]


def test_crops_are_mapped_and_not_read(tmp_path):
    data = WordData.open(write(tmp_path), "train")
    assert isinstance(data.images, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0


def error_of(folder, split="train"):
    with pytest.raises(WordsError) as error:
        WordData.open(folder, split)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_absent_files_and_splits_are_named(tmp_path):
    assert "words.jsonl: no such file; run `prepare`" in error_of(tmp_path)
    write(tmp_path, ROWS[:3])
    assert "`split` must be 'train' or 'val'" in error_of(tmp_path, "test")
    (tmp_path / "words.npy").unlink()
    assert "words.npy: no such file; run `prepare`" in error_of(tmp_path)


def test_as_many_crops_as_words(tmp_path):
    write(tmp_path, ROWS)
    write_manifest(tmp_path, ROWS[:3])
    assert "Received: 4 and 3; prepare the words again" in error_of(tmp_path)


def test_a_split_in_two_places_is_refused(tmp_path):
    write(tmp_path, [*ROWS, Word("train", "again")])
    assert "rows of train must follow each other" in error_of(tmp_path)
    assert len(WordData.open(tmp_path, "val")) == 1


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
