"""Calibrating a tiny model on prepared data, and using the calibration."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from tiny_pipeline import DECODING, ENCODER, make_captioner, photo_bytes

from data_prep.feature_writer import FeatureWriter
from show_attend_tell.cli.main import cli
from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.data import manifest
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.calibration_file import (
    calibration_path,
    find_calibration,
)
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import CalibrationError
from show_attend_tell.training.calibration import calibrate, measure
from show_attend_tell.training.photo_space import fit_photo_space

TRAIN, VAL = 40, 20


def experiment():
    return experiment_from_dict(
        {
            "name": "tiny",
            "data": {"name": "made-up", "source": "folder"},
            "encoder": {
                "network": ENCODER.network,
                "layer": ENCODER.layer,
                "weights": ENCODER.weights,
                "image_size": ENCODER.image_size,
                "resize": ENCODER.resize,
            },
            "model": {},
            "training": {},
            "decoding": DECODING,
        }
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with prepared data and a model; photos are of random tiles."""
    work = tmp_path_factory.mktemp("work")
    folder, encoder = work / "made-up", Encoder(ENCODER)
    folder.mkdir()
    photos, squares = [], []
    colours = ("red", "blue")
    for k in range(TRAIN + VAL):
        name = f"photo-{k:02d}.png"
        (folder / name).write_bytes(photo_bytes(k))
        split = "train" if k < TRAIN else "val"
        caption = f"a {colours[k % 5 == 0]} circle"
        photos.append(Photo(name, name, split, [caption]))
        squares.append(encoder.preprocess(encoder.load_photo(folder / name)))
    captioner = make_captioner(encoder)
    features = encoder.encode(np.stack(squares))
    # Half of the validation captions are right, so that some are better than others.
    decoding = dataclasses.replace(captioner.decoding, batch_size=16)
    found = captioner.generate(features[TRAIN:], decoding).tokens[:, 0]
    for k in range(TRAIN, TRAIN + VAL, 2):
        words = captioner.vocabulary.decode(found[k - TRAIN].tolist())
        photos[k] = dataclasses.replace(photos[k], captions=(" ".join(words) or "a",))
    manifest.write_manifest(folder / "manifest.jsonl", photos)
    captioner.vocabulary.save(folder / "vocabulary.json")
    path = feature_path(folder, experiment().encoder)
    ids = [photo.id for photo in photos]
    with FeatureWriter(path, encoder.identity(), ids) as writer:
        writer.write(0, features, [""] * len(ids))
        writer.finish()
    captioner.save(work / "model.keras")
    return work


def noise(count=10, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def calibrated(prepared):
    """The report of a calibration of the model of `prepared`."""
    return calibrate(
        *(experiment(), prepared, prepared / "model.keras", {"noise": noise()}),
        count=10,
        shown=False,
    )


def test_a_calibration_is_written_beside_the_model(prepared, calibrated):
    assert calibrated.path == calibration_path(prepared / "model.keras")
    assert calibrated.path.name == "model.confidence.npz"
    assert set(calibrated.measured["auc"]) == {"noise", "upside down", "close-ups"}
    assert all(0 <= auc <= 1 for auc in calibrated.measured["auc"].values())
    assert any("noise" in line for line in calibrated.lines())


def test_captions_of_a_calibrated_model_have_a_confidence(prepared, calibrated):
    pipeline = load(prepared / "model.keras")
    caption = pipeline.caption(prepared / "made-up" / "photo-00.png")
    assert 0 <= caption.confidence <= 1
    assert caption.to_dict()["confidence"] == caption.confidence
    image = pipeline.encoder.load_photo(prepared / "made-up" / "photo-00.png")
    assert pipeline.caption_image(image).confidence == pytest.approx(
        caption.confidence, abs=1e-3
    )


def test_the_confidence_in_a_batch_equals_that_of_the_photo_alone(prepared, calibrated):
    pipeline = load(prepared / "model.keras")
    files = [prepared / "made-up" / f"photo-{k:02d}.png" for k in range(3)]
    together = [one.confidence for one in pipeline.caption_photos(files)]
    alone = [pipeline.caption(file).confidence for file in files]
    assert together == pytest.approx(alone, abs=1e-3)


def test_the_minimum_leaves_out_captions_below_it(prepared, calibrated):
    folder = prepared / "made-up"
    arguments = ["caption", str(folder), "--model", str(prepared / "model.keras")]
    every = CliRunner().invoke(cli, [*arguments, "--json"])
    rows = map(json.loads, every.stdout.splitlines())
    values = [row["confidence"] for row in rows]
    limit = float(np.median(values))
    kept = sum(value >= limit for value in values)
    assert 0 < kept < len(values)
    out = prepared / "captions.csv"
    chosen = ["--min-confidence", str(limit)]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(out), *chosen])
    assert done.exit_code == 0, done.output
    left_out = f"{len(values) - kept} left out for low confidence"
    assert f"{kept} captions written, {left_out}" in done.stdout
    assert "left out, its confidence" in done.stderr
    lines = out.read_text().splitlines()
    assert lines[0].endswith(",confidence")
    assert len(lines) == 1 + kept
    assert all(float(line.rsplit(",", 1)[1]) >= limit for line in lines[1:])
    shown = CliRunner().invoke(cli, [*arguments, *chosen])
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == kept
    assert "captions left out for low confidence" in shown.stderr


def test_a_calibration_of_another_model_is_refused_in_one_line(prepared, calibrated):
    other = make_captioner(Encoder(ENCODER))
    other.trainable_variables[0].assign_add(np.ones(other.trainable_variables[0].shape))
    with pytest.raises(CalibrationError, match="another model") as caught:
        find_calibration(other, prepared / "model.keras")
    assert "\n" not in str(caught.value)


def test_damaged_calibrations_are_refused_in_one_line(prepared, calibrated, tmp_path):
    captioner = load(prepared / "model.keras").captioner
    content = calibrated.path.read_bytes()
    file = calibration_path(tmp_path / "model.keras")
    assert find_calibration(captioner, tmp_path / "model.keras") is None
    damaged = [b"", b"PK", content[: len(content) // 2], b"{}", content[:-30]]
    middle = len(content) // 2
    damaged.append(content[:middle] + bytes(64) + content[middle + 64 :])
    for one in damaged:
        file.write_bytes(one)
        with pytest.raises(CalibrationError) as caught:
            find_calibration(captioner, tmp_path / "model.keras")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", np.float32([1, 2])),
        ("variances", None),
        ("words", np.int32([1.0])),
        ("scale", np.zeros(6, np.float32)),
        ("quality", np.full(4, np.nan, np.float32)),
        ("about", np.array("[]")),
        ("about", np.array({"a": 1}, dtype=object)),
    ],
)
def test_calibrations_of_another_layout_are_refused(
    prepared, calibrated, tmp_path, name, value
):
    captioner = load(prepared / "model.keras").captioner
    with np.load(calibrated.path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = value if value is not None else -arrays[name]
    np.savez(calibration_path(tmp_path / "model.keras"), **arrays)
    with pytest.raises(CalibrationError):
        find_calibration(captioner, tmp_path / "model.keras")


def test_few_pictures_of_a_world_are_refused(prepared):
    with pytest.raises(CalibrationError, match="'noise' must have at least 8"):
        calibrate(
            *(experiment(), prepared, prepared / "model.keras", {"noise": noise(3)}),
            count=8,
            shown=False,
        )


def test_the_ridge_regression_of_words_equals_the_normal_equations():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(60, 12)).astype(np.float32)
    captions = [[["a", "dog" if k % 4 == 0 else "cat"]] for k in range(60)]
    captions[0] = [["a", "dog", "tree"]]
    space = fit_photo_space(
        g, captions, Vocabulary((*SPECIAL, "a", "dog", "cat", "tree")), (5, 2)
    )
    assert space.words.tolist() == [5, 7]  # "a" and "cat" are in too many photos
    np.testing.assert_allclose(space.shares, [15 / 60, 1 / 60])
    z = (g - g.mean(0)) @ space.components / np.sqrt(space.variances)
    present = np.array([[k % 4 == 0, k == 0] for k in range(60)], float)
    normal = z.T @ z / 60 + 0.05 * np.eye(len(space.variances))
    expected = np.linalg.solve(normal, z.T @ (present - present.mean(0)) / 60)
    np.testing.assert_allclose(space.word_weights, expected, atol=1e-4)
    covariance = np.cov(g.T, bias=True)
    np.testing.assert_allclose(
        covariance @ space.components, space.components * space.variances, atol=1e-4
    )


def test_worlds_that_differ_are_measured_as_separable():
    rng = np.random.default_rng(0)
    known = rng.normal(size=(200, 6))
    good = (known[:, 4] + 0.5 * rng.normal(size=200) > 0).astype(float)
    worlds = {name: rng.normal(-4, 1, (50, 6)) for name in ("one", "two")}
    half = np.arange(200) % 2 == 0
    measured = measure(None, known, good, worlds, {}, half)
    assert min(measured["auc"].values()) > 0.95
    assert measured["auc_quality"] > 0.8
    for mean, share, _ in measured["reliability"]:
        assert share == pytest.approx(mean, abs=0.35)


def test_worlds_that_do_not_differ_are_measured_as_equal():
    rng = np.random.default_rng(0)
    known = rng.normal(size=(600, 6))
    worlds = {name: rng.normal(size=(300, 6)) for name in ("one", "two")}
    good = rng.integers(0, 2, 600).astype(float)
    measured = measure(None, known, good, worlds, {}, np.arange(600) % 2 == 0)
    assert all(abs(auc - 0.5) < 0.08 for auc in measured["auc"].values())
    assert abs(measured["auc_quality"] - 0.5) < 0.08
