"""The crops of IIIT5K: archives and folders, validation photos, and damaged files."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from data_prep_files import make_file, make_zip
from made_up_words import crop_bytes, crop_files
from refusals import refusal

from data_prep.prepare import prepare
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import WordData
from show_attend_tell.siblings.words.iiit5k import read_iiit5k
from show_attend_tell.siblings.words.settings import WordSettings


def unpack(folder, files):
    for name, content in files.items():
        make_file(folder / name, content)
    return folder


def rows(crops):
    return [(crop.row.split, crop.row.word, crop.row.path) for crop in crops]


@pytest.mark.parametrize("packed", [False, True])
def test_both_splits_are_read_where_they_are_present(tmp_path, packed):
    for split in ("train", "test"):
        files = crop_files(split, 10 if split == "train" else 3)
        if packed:
            make_zip(tmp_path / f"IIIT5K_{split}.zip", files)
        else:
            unpack(tmp_path, files)
        crops, problems = read_iiit5k(tmp_path, 4)
        assert not problems
        splits = [crop.row.split for crop in crops]
        expected = ["train"] * 6 + ["val"] * 4
        assert splits == expected + ["test"] * (3 if split == "test" else 0)
    assert rows(crops)[-1] == ("test", "word2", "test/1_1.jpg")
    for crop in crops:
        number = int(crop.row.word.removeprefix("word"))
        np.testing.assert_allclose(crop.image, 10 * number, atol=2)


def test_an_archive_or_a_folder_around_the_files_is_read(tmp_path):
    files = {f"IIIT5K/{name}": value for name, value in crop_files().items()}
    path = make_zip(tmp_path / "any.zip", files)
    packed, _ = read_iiit5k(path, 4)
    unpacked, _ = read_iiit5k(unpack(tmp_path / "here", files), 4)
    assert rows(packed) == rows(unpacked)
    assert packed[0].row.path == "train/0_1.jpg"


@pytest.mark.parametrize("around", ["", "./", "words/"])
def test_an_archive_made_by_macos_is_read(tmp_path, around):
    files = {f"{around}{name}": value for name, value in crop_files().items()}
    files |= {f"__MACOSX/{around}._train.tags": b"\0\5\x16\7"}
    crops, problems = read_iiit5k(make_zip(tmp_path / "any.zip", files), 4)
    assert len(crops) == 10
    assert not problems


def test_crops_of_a_photo_are_in_the_same_split_but_the_count_is_exact(tmp_path):
    make_zip(tmp_path / "a.zip", crop_files(count=60, per_photo=3))
    crops, _ = read_iiit5k(tmp_path, 21)
    photos = {split: set() for split in ("train", "val")}
    for crop in crops:
        photos[crop.row.split].add(crop.row.path.split("_")[0])
    assert len(photos["val"]) == 7
    assert not photos["train"] & photos["val"]
    again, _ = read_iiit5k(tmp_path, 21)
    assert rows(again) == rows(crops)
    for count in (1, 5, 20, 59):
        crops, _ = read_iiit5k(tmp_path, count)
        assert sum(crop.row.split == "val" for crop in crops) == count


def test_crops_with_problems_are_skipped_and_named(tmp_path):
    files = crop_files()
    lines = files["train.tags"].decode().splitlines()
    lines[0] = lines[0].replace("Word0", "don't")
    lines[1] = lines[1].replace("Word1", "w" * 24)
    lines[2] = "train/1_1.png"
    lines += ["train/99_1.png absent", "train/98_1.png empty", "train/97_1.png cut"]
    files["train.tags"] = "\n".join(lines).encode()
    files["train/98_1.jpg"] = b""
    files["train/97_1.jpg"] = crop_bytes(5)[:100]
    make_zip(tmp_path / "a.zip", files)
    crops, problems = read_iiit5k(tmp_path, 2)
    assert len(crops) == 7
    counts = [int(line.split(": ")[1].split()[0]) for line in problems.summary()]
    assert counts == [2, 1, 1, 2]
    assert "malformed line: 1 (train.tags: line 3)" in problems.summary()
    assert "missing crop: 1 (train/99_1.png)" in problems.summary()


@pytest.mark.parametrize("packed", [False, True])
def test_tags_name_no_files_outside_the_folder(tmp_path, packed):
    outside = tmp_path / "outside.jpg"
    outside.write_bytes(crop_bytes(5))
    files = crop_files()
    files["train.tags"] += f"\n../outside.jpg a\n{outside} a\n. a".encode()
    folder = tmp_path / "data"
    folder.mkdir()
    if packed:
        make_zip(folder / "a.zip", files)
    else:
        unpack(folder, files)
    crops, problems = read_iiit5k(folder, 4)
    assert len(crops) == 10
    assert len(problems) == 3


error_of = functools.partial(refusal, DataError, read_iiit5k)


def test_absent_empty_and_damaged_data_are_named(tmp_path):
    assert "no such folder" in error_of(tmp_path / "absent", 4)
    assert "must have train.tags with its crops" in error_of(tmp_path, 4)
    make_zip(tmp_path / "a.zip", {"train.tags": b"train/1_1.png word"})
    assert "Received: none (missing crop: 1 (train/1_1.png))" in error_of(tmp_path, 4)
    make_zip(tmp_path / "a.zip", {"train.tags": b"\xff\xfe\xff"})
    assert "train.tags: cannot be read" in error_of(tmp_path, 4)
    path = make_zip(tmp_path / "a.zip", crop_files())
    assert "less than the 10 training crops" in error_of(tmp_path, 10)
    path.write_bytes(path.read_bytes()[:-30])
    assert "a.zip: cannot be read" in error_of(tmp_path, 4)


@pytest.mark.parametrize("on_problem", ["skip", "refuse"])
def test_crops_of_photos_are_prepared_with_their_problems(tmp_path, on_problem):
    files = crop_files()
    files["train.tags"] += b"\ntrain/99_1.png absent"
    path = make_zip(tmp_path / "IIIT5K_train.zip", files)
    experiment = SimpleNamespace(data=WordSettings("crops", "iiit5k", validation=4))
    arguments = experiment, path, tmp_path / "work", on_problem
    if on_problem == "refuse":
        with pytest.raises(DataError, match="missing crop: 1"):
            prepare(*arguments)
        return
    lines = prepare(*arguments).lines()
    assert lines[:2] == ["train: 6 words", "val: 4 words"]
    assert "skipped: missing crop: 1 (train/99_1.png)" in lines
    data = WordData.open(tmp_path / "work/crops", "val")
    assert data.images.shape == (4, 32, 100)
    assert (tmp_path / "work/crops/contact_sheet.png").is_file()
