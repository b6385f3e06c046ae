"""Test extraction from the manifest to the feature file, with interruptions."""

import dataclasses
import logging
import os
import shutil
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
import tiny_run
from tiny_pipeline import write_photos

from data_prep import photo_features
from data_prep.extract import extract
from data_prep.feature_part import PartContent
from data_prep.feature_writer import FeatureWriter
from data_prep.photo_features import BATCH, DecodedPhoto, encode_photos
from show_attend_tell.config.experiments import limit_experiment
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.features import UNKNOWN_FILE, FeatureReader, PhotoFile
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import DataError

SIDE = 16
ROWS = 64  # of a shard, so that few photos have two
TRAIN, VAL = ROWS + 10, 5
BROKEN, ABSENT = 3, TRAIN + 1
SIZE = 4096  # bytes of a photo with padding
NAME = "features-SceneNet-annotations"


shared_encoder = cache(Encoder)


def experiment(also=None, **encoder) -> Experiment:
    return tiny_run.experiment(
        data={"name": "tiny", "also": also or {}},
        encoder={
            **{"network": "SceneNet", "layer": "annotations", "weights": "none"},
            **{"image_size": SIDE, **encoder},
        },
    )


def run(work: Path, mirror: bool = False, **options):
    return extract(experiment(mirror=mirror), work, progress=False, **options)


def prepare(work: Path) -> list[Photo]:
    """Write tiny photos, one of them damaged and one absent, and their manifest."""
    folder, splits = work / "tiny", ["train"] * TRAIN + ["val"] * VAL + ["none"]
    names = [f"{number}.png" for number in range(len(splits))]
    write_photos(folder / "photos", names, 18, names[BROKEN], names[ABSENT])
    photos = [
        Photo(name, f"photos/{name}", split, ("a photo",))
        for name, split in zip(names, splits, strict=True)
    ]
    manifest.write_manifest(folder / "manifest.jsonl", photos)
    return photos


@pytest.fixture(scope="module", autouse=True)
def _small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureWriter, "part_rows", ROWS)
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_encoder():
    """Build and compile an encoder once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.extract.Encoder", shared_encoder)
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    work = tmp_path_factory.mktemp("work")
    prepare(work)
    return work


@pytest.fixture(scope="module")
def report(work):
    return run(work, mirror=True)


def check_features(path: Path, names: list[str], mirrored: bool) -> None:
    """Compare features with those of the encoder, photo by photo."""
    encoder = shared_encoder(experiment().encoder)
    with FeatureReader(path, encoder.identity()) as reader:
        assert reader.attributes["mirrored"] == mirrored
        for name in names:
            image = load_photo(path.parent / "photos" / name)
            expected = encoder.encode(encoder.preprocess(image, mirrored)[None])
            features = reader.read([reader.rows[name]])
            np.testing.assert_allclose(features, expected, rtol=5e-3, atol=1e-3)


class OfLargeValues:
    """An encoder whose annotations leave the range of float16."""

    def encode(self, squares):
        return np.array([[[1e9]], [[-1e9]], [[1.0]]], np.float32)


def test_features_are_clipped_to_the_range_of_float16_and_unreadable_photos_are_zeros():
    square = np.zeros((8, 8, 3), np.uint8)
    texts = ("", "", "truncated")
    photos = [
        DecodedPhoto(square, text, PhotoFile(9, number))
        for number, text in enumerate(texts)
    ]
    content = encode_photos(OfLargeValues(), iter(photos))
    assert content.features.dtype == np.float16
    largest = np.finfo(np.float16).max
    np.testing.assert_array_equal(content.features.ravel(), [largest, -largest, 0])
    assert content.problems == ["", "", "truncated"]
    assert content.files == [PhotoFile(9, 0), PhotoFile(9, 1), PhotoFile(9, 2)]


class OfSmallValues:
    """An encoder whose annotations are 0 in float16."""

    def __init__(self, values):
        self.values = values

    def encode(self, squares):
        return np.full((len(squares), 4, 2), self.values, np.float32)


def test_features_that_float16_makes_zeros_are_refused_unless_they_are_zeros():
    photos = [DecodedPhoto(np.zeros((8, 8, 3), np.uint8), "", UNKNOWN_FILE)]
    for values in (0, 1e-7, (1e-16, 1e-7)):
        encode_photos(OfSmallValues(values), iter(photos))
    for values in (3e-16, -1e-9):
        with pytest.raises(DataError, match=f"at most {abs(values):.0e}; check"):
            encode_photos(OfSmallValues(values), iter(photos))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_encoder_of_infinite_values_is_refused(tmp_path, monkeypatch, value):
    prepare(tmp_path)
    encode = Encoder.encode

    def broken(encoder, squares):
        annotations = np.array(encode(encoder, squares))
        annotations[1, 0, 0] = value
        return annotations

    monkeypatch.setattr(Encoder, "encode", broken)
    with pytest.raises(DataError, match=r"photo '1\.png' must be finite"):
        run(tmp_path)


def test_every_photo_in_a_split_gets_its_features_and_is_counted(work, report):
    path, first = work / "tiny" / f"{NAME}.h5", report[0]
    assert (first.path, first.size) == (path, path.stat().st_size)
    assert first.photos == TRAIN + VAL
    assert first.extracted == TRAIN + VAL - 2
    assert first.dense_size == (TRAIN + VAL) * 4 * 64 * 2
    assert first.seconds > 0
    total = TRAIN + VAL
    assert f"{total - 2} of {total} photos ({total - 2} new" in first.lines()[0]
    with FeatureReader(path) as reader:
        assert reader.shape == (TRAIN + VAL, 4, 64)
        assert len(reader.rows) == TRAIN + VAL - 2
        assert f"{TRAIN + VAL}.png" not in reader.image_ids  # of split none
    check_features(path, [f"{n}.png" for n in (0, BATCH, ROWS + 3)], mirrored=False)


@pytest.mark.nightly
def test_mirrored_photos_have_a_file_for_each_split(work, report):
    again = run(work, mirror=True, mirror_splits=("val",))
    assert [file.extracted for file in again] == [0, 0, VAL - 1]
    for split, first, count in (("", 9, TRAIN), ("-val", TRAIN, VAL)):
        path = work / "tiny" / f"{NAME}.mirror{split}.h5"
        with FeatureReader(path) as reader:
            assert reader.shape == (count, 4, 64)
        check_features(path, [f"{first}.png"], mirrored=True)


def test_unreadable_photos_are_reported_and_the_others_extracted(report):
    first, mirrored = report
    lines = [*first.lines(), *mirrored.lines()]
    assert list(first.unreadable) == [f"{BROKEN}.png", f"{ABSENT}.png"]
    assert list(mirrored.unreadable) == [f"{BROKEN}.png"]
    assert sum("no such photo" in line for line in lines) == 1
    assert sum("cannot be read as a photo" in line for line in lines) == 2
    assert all("\n" not in line for line in lines)


def test_an_unknown_split_and_an_absent_file_of_weights_are_refused(tmp_path, work):
    with pytest.raises(DataError, match=r"which has \['train', 'val'\]"):
        run(work, mirror_splits=["test"])
    with pytest.raises(ValueError, match="a file that exists"):
        run(work, encoder_weights=tmp_path / "absent.safetensors")


@pytest.mark.nightly
def test_each_data_set_gets_a_file_of_its_own(tmp_path):
    prepare(tmp_path)
    photos = [photo for photo in prepare(tmp_path / "other") if photo.split == "train"]
    (tmp_path / "other" / "tiny").rename(tmp_path / "more")
    manifest.write_manifest(tmp_path / "more" / "manifest.jsonl", photos)
    sets = experiment(mirror=True, also={"more": 2.0})
    report = extract(sets, tmp_path, mirror_splits=["val"], progress=False)
    names = [f"tiny/{NAME}.h5", f"tiny/{NAME}.mirror.h5", f"tiny/{NAME}.mirror-val.h5"]
    names += [f"more/{NAME}.h5", f"more/{NAME}.mirror.h5"]  # it has no photo of val
    assert [str(file.path.relative_to(tmp_path)) for file in report] == names


def test_the_size_is_logged_once_and_the_progress_bar_shows_the_rate(
    tmp_path, caplog, capfd
):
    prepare(tmp_path)
    with caplog.at_level(logging.INFO, logger="data_prep.extract"):
        extract(experiment(), tmp_path)
    dense = (TRAIN + VAL) * 4 * 64 * 2
    assert f"{TRAIN + VAL} photos, at most {dense / 1000:.1f}kB" in caplog.text
    assert caplog.text.count("before compression") == 1
    shown = capfd.readouterr().err
    assert f"{TRAIN + VAL}/{TRAIN + VAL}" in shown
    assert "photo/s" in shown
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="data_prep.extract"):
        run(tmp_path)
    assert "before compression" not in caplog.text


def photos_away(work: Path):
    """Rename the folder of the photos; return a function that renames it back."""
    folder, away = work / "tiny" / "photos", work / "away"
    folder.rename(away)
    return lambda: away.rename(folder)


def test_without_a_readable_photo_nothing_is_written(tmp_path):
    prepare(tmp_path)
    come_back = photos_away(tmp_path)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(DataError, match="none of 79 photos can be read") as e:
            run(tmp_path, **options)
        assert "\n" not in str(e.value)
        assert "photos/0.png: no such photo" in str(e.value)
    assert not list((tmp_path / "tiny").glob("*.h5"))
    come_back()
    assert run(tmp_path)[0].extracted == TRAIN + VAL - 2


def test_overwriting_keeps_features_whose_photos_are_absent(tmp_path, work, report):
    shutil.copytree(work, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tiny" / f"{NAME}.h5"
    before = path.read_bytes()
    (tmp_path / "tiny" / "photos" / "0.png").unlink()
    with pytest.raises(DataError, match="features of 1 photo whose files are abs"):
        run(tmp_path, mirror=True, overwrite=True)
    photos_away(tmp_path)
    with pytest.raises(DataError, match="none of 79 photos can be read"):
        run(tmp_path, mirror=True, overwrite=True)
    assert path.read_bytes() == before
    assert run(tmp_path)[0].extracted == 0  # not needed for features that are present


def test_unreadable_photos_are_tried_again(tmp_path):
    photos = prepare(tmp_path)
    folder = tmp_path / "tiny" / "photos"
    whole = (folder / "0.png").read_bytes()
    first = run(tmp_path)[0]
    with FeatureReader(first.path) as reader:
        kept = [name for name in reader.image_ids if name in reader.rows]
        before = reader.read([reader.rows[name] for name in kept])
    assert run(tmp_path)[0].extracted == 0
    (folder / photos[ABSENT].id).write_bytes(whole)
    again = run(tmp_path)[0]
    assert (again.extracted, list(again.unreadable)) == (1, [f"{BROKEN}.png"])
    (folder / photos[BROKEN].id).write_bytes(whole)
    last = run(tmp_path)[0]
    assert (last.path, last.extracted, last.unreadable) == (first.path, 1, {})
    with FeatureReader(last.path) as reader:
        after = reader.read([reader.rows[name] for name in kept])
        new = [reader.rows[photos[k].id] for k in (ABSENT, BROKEN)]
        expected = reader.read([reader.rows["0.png"]] * 2)
        np.testing.assert_allclose(reader.read(new), expected, rtol=5e-3, atol=1e-3)
    np.testing.assert_array_equal(after, before)


def features_of(path: Path) -> dict[str, bytes]:
    with FeatureReader(path) as reader:
        return {name: reader.read([row]).tobytes() for name, row in reader.rows.items()}


def test_changed_photos_are_extracted_again_and_no_others(tmp_path):
    prepare(tmp_path)
    folder = tmp_path / "tiny" / "photos"
    first, second = ((folder / name).read_bytes() for name in ("0.png", "1.png"))
    (folder / "2.png").write_bytes(first.ljust(SIZE, b"\0"))
    path = run(tmp_path)[0].path
    before = features_of(path)
    (folder / "0.png").write_bytes(second)
    (folder / "2.png").write_bytes(second.ljust(SIZE, b"\0"))
    os.utime(folder / "2.png", (0, 0))  # as a copy of an old file
    (folder / "5.png").unlink()  # its features stay
    (folder / "6.png").touch()  # has the same content
    (folder / f"{ROWS}.png").write_bytes(b"damaged")
    report = run(tmp_path)[0]
    assert report.extracted == 2
    assert f"{ROWS}.png" in report.unreadable
    after = features_of(path)
    assert before.keys() - after.keys() == {f"{ROWS}.png"}
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"0.png", "2.png"}
    assert run(tmp_path)[0].extracted == 0


def test_a_photo_that_is_replaced_while_photos_are_read_is_extracted_again(tmp_path):
    prepare(tmp_path)
    photo, other = (tmp_path / "tiny" / "photos" / f"{n}.png" for n in (0, 1))
    for path in (photo, other):  # of one size
        path.write_bytes(path.read_bytes().ljust(SIZE, b"\0"))
    replaced = []

    def load_and_replace(path):
        image = load_photo(path)
        if path == photo and not replaced:
            photo.write_bytes(other.read_bytes())
            replaced.append(path)
        return image

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photo_features, "load_photo", load_and_replace)
        features = features_of(run(tmp_path)[0].path)
    assert replaced
    assert features["0.png"] == features["1.png"]
    assert run(tmp_path)[0].extracted == 0


def test_changed_photos_of_an_interrupted_extraction_are_extracted_again(tmp_path):
    prepare(tmp_path)
    folder = tmp_path / "tiny" / "photos"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureWriter, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    last = folder / f"{ROWS}.png"
    last.write_bytes((folder / "0.png").read_bytes())
    report = run(tmp_path)[0]
    assert report.extracted == TRAIN + VAL - ROWS - 1  # the second part, without ABSENT
    with FeatureReader(report.path) as reader:
        changed, first = reader.read([reader.rows[last.name], reader.rows["0.png"]])
    np.testing.assert_allclose(changed, first, rtol=5e-3, atol=1e-3)


def test_features_that_know_nothing_of_the_files_stay(tmp_path):
    photos = prepare(tmp_path)[: TRAIN + VAL]
    encoder = shared_encoder(experiment().encoder)
    path = tmp_path / "tiny" / f"{NAME}.h5"
    ids = [photo.id for photo in photos]
    with FeatureWriter(path, encoder.identity(), ids) as writer:
        for number in writer.missing:
            rows = len(writer.rows(number))
            values = np.ones((rows, 4, encoder.width), np.float16)
            writer.part(number).write(PartContent(values, [""] * rows))
        writer.finish()
    with FeatureReader(path) as reader:
        assert reader.photo_files() == [UNKNOWN_FILE] * len(ids)
    with h5py.File(path, "a") as file:  # as earlier versions wrote it
        del file["file_sizes"]
        del file["file_crcs"]
    assert run(tmp_path)[0].extracted == 0


@pytest.mark.nightly
def test_an_interruption_while_photos_are_tried_again_keeps_the_features(tmp_path):
    photos = prepare(tmp_path)
    path = run(tmp_path)[0].path
    before = path.read_bytes()
    folder = tmp_path / "tiny" / "photos"
    (folder / photos[ABSENT].id).write_bytes((folder / "0.png").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureWriter, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert path.read_bytes() == before
    assert run(tmp_path)[0].extracted == 1
    assert not path.with_suffix(".h5.parts").exists()


def interrupt(writer):
    raise KeyboardInterrupt


def test_features_without_any_photo_are_extracted_when_the_photos_are_back(tmp_path):
    photos = prepare(tmp_path)
    encoder = shared_encoder(experiment().encoder)
    path, count = tmp_path / "tiny" / f"{NAME}.h5", TRAIN + VAL
    ids = [photo.id for photo in photos if photo.split != "none"]
    with FeatureWriter(path, encoder.identity(), ids) as writer:
        for number in writer.missing:  # of no photo that was there
            rows = len(writer.rows(number))
            features = np.zeros((rows, 4, encoder.width), np.float16)
            content = PartContent(features, ["no such photo"] * rows)
            writer.part(number).write(content)
        writer.finish()
    come_back = photos_away(tmp_path)
    with pytest.raises(DataError, match=f"none of {count} photos can be read"):
        run(tmp_path)
    come_back()
    assert run(tmp_path)[0].extracted == count - 2


def test_features_that_are_a_folder_of_shards_are_not_extracted_again(tmp_path):
    prepare(tmp_path)
    (tmp_path / "tiny" / f"{NAME}.shards").mkdir()
    with pytest.raises(DataError, match=r"run `show-attend-tell convert .*\.shards`"):
        run(tmp_path)
    assert not list((tmp_path / "tiny").glob("*.h5"))


def test_a_limited_set_takes_its_features_from_the_whole_set(tmp_path, caplog):
    photos = prepare(tmp_path)
    whole = run(tmp_path)[0]
    chosen = limit_experiment(experiment(), 3)
    kept = [photo for photo in photos if photo.id in ("0.png", "1.png", "2.png")]
    kept = [dataclasses.replace(p, path=tmp_path / "tiny" / p.path) for p in kept]
    folder = tmp_path / "tiny-first-3"
    manifest.write_manifest(folder / "manifest.jsonl", kept)
    photos_away(tmp_path)  # not needed
    (part,) = extract(chosen, tmp_path, progress=False)
    assert (part.path.parent, part.extracted) == (folder, 3)
    with FeatureReader(whole.path) as old, FeatureReader(part.path) as new:
        assert new.image_ids == ["0.png", "1.png", "2.png"]
        np.testing.assert_array_equal(new.read([0, 1, 2]), old.read([0, 1, 2]))


@pytest.fixture
def limited(tmp_path):
    """Return a limited set of two photos; the whole set has made-up features."""
    photos = prepare(tmp_path)
    kept = [dataclasses.replace(p, path=tmp_path / "tiny" / p.path) for p in photos[:2]]
    manifest.write_manifest(tmp_path / "tiny-first-2" / "manifest.jsonl", kept)

    def write_whole(**identity):
        encoder = shared_encoder(experiment().encoder)
        identity = {**encoder.identity(), **identity}
        ids = [photo.id for photo in kept]
        with FeatureWriter(tmp_path / "tiny" / f"{NAME}.h5", identity, ids) as writer:
            values = np.full((2, 4, encoder.width), 7, np.float16)
            writer.part(0).write(PartContent(values, ["", ""]))
            writer.finish()

    return write_whole


def is_copied(path):
    with FeatureReader(path) as reader:
        return (reader.read([0, 1]) == 7).all()


@pytest.mark.parametrize(
    "identity", [{"versions": {"keras": "3.0.0"}}, {"precision": "bfloat16"}]
)
def test_features_of_another_precision_or_version_are_not_copied(
    tmp_path, limited, identity
):
    limited(**identity)
    chosen = limit_experiment(experiment(), 2)
    (part,) = extract(chosen, tmp_path, progress=False)
    assert not is_copied(part.path)


def test_a_limited_set_of_changed_photos_is_extracted(tmp_path):
    photos = prepare(tmp_path)
    run(tmp_path)
    kept = [dataclasses.replace(p, path=tmp_path / "tiny" / p.path) for p in photos[:2]]
    manifest.write_manifest(tmp_path / "tiny-first-2" / "manifest.jsonl", kept)
    kept[1].path.write_bytes(kept[0].path.read_bytes())
    chosen = limit_experiment(experiment(), 2)
    (part,) = extract(chosen, tmp_path, progress=False)
    first, second = features_of(part.path).values()
    assert first == second


def test_overwriting_extracts_the_features_of_a_limited_set(tmp_path, limited):
    limited()
    chosen = limit_experiment(experiment(), 2)
    (part,) = extract(chosen, tmp_path, progress=False)
    assert is_copied(part.path)
    (part,) = extract(chosen, tmp_path, overwrite=True, progress=False)
    assert not is_copied(part.path)


def test_a_split_that_is_mirrored_twice_is_extracted_once(tmp_path):
    prepare(tmp_path)
    files = run(tmp_path, mirror=True, mirror_splits=["val", "train", "val"])
    names = [f"{NAME}.h5", f"{NAME}.mirror.h5", f"{NAME}.mirror-val.h5"]
    assert [file.path.name for file in files] == names


def test_a_limit_extracts_the_limited_part_of_a_further_set_alone(tmp_path):
    folder = tmp_path / "tiny"
    write_photos(folder / "photos", ["0.png", "1.png"], 18, "broken.png")
    photos = [
        Photo(f"{n}.png", f"photos/{n}.png", "train", ("a photo",)) for n in range(2)
    ]
    manifest.write_manifest(folder / "manifest.jsonl", photos)
    shutil.copytree(folder, tmp_path / "more")
    for name in ("tiny", "more"):
        first = dataclasses.replace(photos[0], path=tmp_path / name / photos[0].path)
        path = tmp_path / f"{name}-first-1" / "manifest.jsonl"
        manifest.write_manifest(path, [first])
    limited = limit_experiment(experiment(also={"more": 1.0}), 1)
    reports = extract(limited, tmp_path, progress=False)
    extracted = {report.path.parent.name: report.extracted for report in reports}
    assert extracted == {"tiny-first-1": 1, "more-first-1": 1}
    assert not list((tmp_path / "more").glob("*.h5"))


@pytest.mark.nightly
def test_a_limited_set_of_another_encoder_is_extracted(tmp_path):
    photos = prepare(tmp_path)
    run(tmp_path)
    chosen = limit_experiment(experiment(seed=7), 1)
    kept = dataclasses.replace(photos[0], path=tmp_path / "tiny" / photos[0].path)
    manifest.write_manifest(tmp_path / "tiny-first-1" / "manifest.jsonl", [kept])
    (part,) = extract(chosen, tmp_path, progress=False)
    with FeatureReader(part.path) as reader:
        assert reader.attributes["identity"]["seed"] == 7
