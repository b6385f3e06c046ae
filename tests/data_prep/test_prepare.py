"""Prepare: manifest and vocabulary whole or not at all."""

import dataclasses
import functools
import inspect
import os
from pathlib import Path

import pytest
from data_prep_files import (
    JPEG,
    an_experiment,
    coco_json,
    make_csv,
    make_file,
    make_flickr8k,
    make_zip,
)

from data_prep import estimate as estimates
from data_prep.estimate import Estimate, estimate
from data_prep.prepare import prepare
from data_prep.scenes import scenes
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data import manifest
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.runtime.errors import DataError

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("packed", [True, False])
def test_flickr8k_becomes_a_manifest_and_a_vocabulary(tmp_path, packed):
    data = make_flickr8k(tmp_path / "data", packed)
    report = prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert report.folder == tmp_path / "work" / "tiny"
    assert report.photos == {"train": 2, "val": 1, "test": 1, "none": 1}
    assert report.captions == {"train": 4, "val": 2, "test": 2, "none": 2}
    assert all(photo.path.read_bytes() == JPEG for photo in photos)
    assert not (report.folder / "problems.txt").exists()


def test_the_vocabulary_comes_from_the_training_split_only(tmp_path):
    data = make_flickr8k(tmp_path / "data", packed=False)
    report = prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    words = Vocabulary.load(report.folder / "vocabulary.json").words
    assert words[4:] == ("a", "runs", "cat", "dog")
    assert (report.words, report.coverage) == (4, 1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"vocabulary_size": 6}, ("a", "runs")), ({"min_count": 3}, ("a", "runs"))],
)
def test_size_and_minimum_count_bound_the_vocabulary(tmp_path, change, words):
    data = make_flickr8k(tmp_path / "data", packed=False)
    report = prepare(an_experiment("flickr8k", **change), data, tmp_path / "work")
    assert Vocabulary.load(report.folder / "vocabulary.json").words[4:] == words
    assert report.coverage == pytest.approx(8 / 12)


@pytest.mark.parametrize("packed", [True, False])
def test_preparing_again_gives_the_same_bytes(tmp_path, packed):
    data = make_flickr8k(tmp_path / "data", packed)
    folder = prepare(an_experiment("flickr8k"), data, tmp_path / "work").folder
    before = files_below(folder)
    assert set(before) >= {"manifest.jsonl", "vocabulary.json"}
    prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert files_below(folder) == before


ODD = {"Flickr8k.token": "dog.jpg#0\tA dog .\nodd\ncat.jpg#0\t.\nfox.jpg#0\tA fox .\n"}


def test_problems_are_skipped_and_listed_by_name(tmp_path):
    data = make_flickr8k(tmp_path / "data", True, **ODD)
    report = prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert report.photos == {"train": 1}
    listed = (report.folder / "problems.txt").read_text().splitlines()
    assert "empty caption\tcat.jpg#0" in listed
    assert "missing photo\tfox.jpg" in listed
    assert len(listed) == len(report.problems) == 6
    lines = report.lines()
    assert "train: 1 photos, 1 captions" in lines
    assert "skipped: photo without captions: 3 (cat.jpg, cow.jpg, hen.jpg)" in lines


def test_problems_are_refused_before_any_work(tmp_path):
    data = make_flickr8k(tmp_path / "data", True, **ODD)
    with pytest.raises(DataError, match="refused because of 6 problems") as caught:
        prepare(an_experiment("flickr8k"), data, tmp_path / "work", "refuse")
    assert "\n" not in str(caught.value)
    assert set(files_below(tmp_path / "work")) == {"tiny/problems.txt"}


def test_the_list_of_problems_goes_when_they_are_gone(tmp_path):
    data = make_flickr8k(tmp_path / "data", True, **ODD)
    report = prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert (report.folder / "problems.txt").exists()
    make_flickr8k(tmp_path / "data", packed=True)
    prepare(an_experiment("flickr8k"), data, tmp_path / "work", "refuse")
    assert not (report.folder / "problems.txt").exists()


@pytest.mark.parametrize("on_problem", ["skip", "refuse"])
def test_a_damaged_photo_is_a_problem(tmp_path, on_problem):
    data = make_flickr8k(tmp_path / "data", packed=True)
    names = {f"{name}.jpg": JPEG for name in ("dog", "hen", "cow", "pig")}
    archive = make_zip(data / "Flickr8k_Dataset.zip", {**names, "cat.jpg": b"\0" * 999})
    content = bytearray(archive.read_bytes())
    content[content.index(b"cat.jpg") + len("cat.jpg")] ^= 0xFF
    archive.write_bytes(content)
    arguments = an_experiment("flickr8k"), data, tmp_path / "work", on_problem
    if on_problem == "refuse":
        with pytest.raises(DataError, match="damaged archive entry: 1"):
            prepare(*arguments)
        assert not (tmp_path / "work" / "tiny" / "manifest.jsonl").exists()
    else:
        assert prepare(*arguments).photos["train"] == 1


def test_without_training_captions_there_is_no_vocabulary(tmp_path):
    data = make_flickr8k(tmp_path / "data", True, **{"Flickr_8k.trainImages": "\n"})
    with pytest.raises(DataError, match="no training captions"):
        prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert not (tmp_path / "work" / "tiny" / "manifest.jsonl").exists()


def test_a_kill_while_writing_leaves_the_earlier_manifest(tmp_path, monkeypatch):
    data = make_flickr8k(tmp_path / "data", packed=False)
    folder = prepare(an_experiment("flickr8k"), data, tmp_path / "work").folder
    before = (folder / "manifest.jsonl").read_bytes()

    def die(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert (folder / "manifest.jsonl").read_bytes() == before


def test_photos_and_captions_of_different_sets_are_refused(tmp_path):
    data = make_flickr8k(tmp_path / "data", packed=False)
    make_file(data / "text" / "Flickr8k.token.txt", "other.jpg#0\tA dog .\n")
    with pytest.raises(DataError, match=r"no photo has captions: .* \(other\.jpg\)"):
        prepare(an_experiment("flickr8k"), data, tmp_path / "work")


def test_a_source_without_a_folder_is_one_line(tmp_path):
    with pytest.raises(DataError, match="`data` must be the folder"):
        prepare(an_experiment("coco"), None, tmp_path / "work")


def test_coco_photos_are_unpacked_from_both_archives(tmp_path):
    data = tmp_path / "data"
    for split, number in (("train", 1), ("val", 2)):
        name = f"COCO_{split}2014_{number}.jpg"
        make_zip(data / f"{split}2014.zip", {f"{split}2014/{name}": JPEG})
        text = coco_json({name: ["A man ."]}, first=number)
        make_file(data / "annotations" / f"captions_{split}2014.json", text)
    report = prepare(an_experiment("coco"), data, tmp_path / "work")
    assert report.photos == {"train": 1, "val": 1}
    for photo in manifest.read_manifest(report.folder / "manifest.jsonl"):
        assert photo.path == report.folder / "photos" / photo.id
        assert photo.path.read_bytes() == JPEG


def test_own_photos_stay_where_they_are(tmp_path):
    make_file(tmp_path / "data" / "a.jpg")
    rows = [["file", "caption", "split"], ["a.jpg", "A dog .", "train"]]
    make_csv(tmp_path / "data" / "captions.csv", rows)
    report = prepare(an_experiment("folder"), tmp_path / "data", tmp_path / "work")
    (photo,) = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert photo.path == tmp_path / "data" / "a.jpg"


def test_the_estimate_counts_photos_and_bytes_without_writing(tmp_path):
    data = make_flickr8k(tmp_path / "data", packed=True)
    expected = estimate(an_experiment("flickr8k"), data, tmp_path / "work")
    assert (expected.photos, expected.mirrored) == (4, 0)
    assert expected.unpacked_bytes == 5 * len(JPEG)
    assert expected.dense_bytes == 4 * 196 * 512 * 2
    assert expected.stored_bytes == expected.dense_bytes // 6
    assert expected.lines()[0] == "4 photos"
    assert not (tmp_path / "work").exists()


def test_the_estimate_counts_mirror_images_and_what_is_unpacked_already(tmp_path):
    data = make_flickr8k(tmp_path / "data", packed=True)
    experiment = an_experiment("flickr8k")
    encoder = dataclasses.replace(experiment.encoder, mirror=True, network="ResNet101")
    experiment = dataclasses.replace(experiment, encoder=encoder)
    prepare(experiment, data, tmp_path / "work")
    expected = estimate(experiment, data, tmp_path / "work", shape=(49, 2048))
    assert (expected.mirrored, expected.unpacked_bytes) == (2, 0)
    assert expected.stored_bytes == expected.dense_bytes == 6 * 49 * 2048 * 2


def test_the_estimate_of_scenes_knows_how_many_are_drawn(tmp_path):
    experiment = an_experiment("scenes")
    encoder = EncoderSettings("SceneNet", "annotations", "scenes", image_size=112)
    experiment = dataclasses.replace(experiment, encoder=encoder)
    expected = estimate(experiment, None, tmp_path / "work")
    counts = inspect.signature(scenes.generate).parameters
    assert expected.photos == sum(counts[s].default for s in ("train", "val", "test"))
    assert expected.dense_bytes == expected.photos * 196 * 64 * 2
    assert expected.feature_seconds < 60


def test_scenes_are_drawn_into_the_folder(tmp_path, monkeypatch):
    few = functools.partial(scenes.generate, train=4, val=1, test=1)
    monkeypatch.setattr(scenes, "generate", few)
    report = prepare(an_experiment("scenes"), None, tmp_path / "work")
    assert report.photos == {"train": 4, "val": 1, "test": 1}
    for photo in manifest.read_manifest(report.folder / "manifest.jsonl"):
        assert photo.path.parent == report.folder / "photos"
        assert photo.path.is_file()
        assert photo.objects


def test_a_full_disk_is_one_line_before_any_work(tmp_path, monkeypatch):
    data = make_flickr8k(tmp_path / "data", packed=True)
    monkeypatch.setattr(estimates, "free_bytes", lambda folder: 1500)
    with pytest.raises(DataError, match=r"need about 136\.7 kB and 1\.5 kB are free"):
        prepare(an_experiment("flickr8k"), data, tmp_path / "work")
    assert files_below(tmp_path / "work") == {}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (2.5e9, "2.5 GB"),
        (4e16, "40000.0 TB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert estimates.size_text(count) == text


def test_times_are_written_for_people():
    times = {"unpack_seconds": 0.1, "feature_seconds": 4000.0}
    lines = Estimate(1, 0, 0, 0, 0, 0, **times).lines()
    assert lines[1].endswith("about 1 s")
    assert "67 min" in lines[2]


def test_the_real_flickr8k_gives_the_known_counts(tmp_path):
    if not REAL.is_dir():
        pytest.skip("needs the Flickr8k archives beside the repository")
    experiment = an_experiment("flickr8k", vocabulary_size=10_000, min_count=5)
    report = prepare(experiment, REAL, tmp_path)
    assert report.photos == {"train": 6000, "val": 1000, "none": 91}
    assert report.captions == {"train": 30000, "val": 5000, "none": 455}
    assert report.problems.counts() == {"missing photo": 1}
    assert report.problems.names("missing photo") == ["2258277193_586949ec62.jpg.1"]
    assert report.words == 2538
    assert report.coverage == pytest.approx(0.974, abs=5e-4)
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert all(photo.path.is_file() for photo in photos)
