"""Calibrating a tiny model on prepared data, and using the calibration."""

import dataclasses
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from tiny_pipeline import (
    DECODING,
    ENCODER,
    make_captioner,
    photo_bytes,
    tiny_pipeline,
)

from data_prep.feature_writer import FeatureWriter
from show_attend_tell.cli.main import cli
from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.data import manifest
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.inference.batch import caption_into_file
from show_attend_tell.inference.confidence import (
    calibration_path,
    find_calibration,
)
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import confidence_word
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.reference.reranker import reranker_beside, save_reranker
from show_attend_tell.runtime.errors import (
    CalibrationError,
    CaptionError,
    OutputFileError,
)
from show_attend_tell.training.calibration import calibrate
from show_attend_tell.training.reranking import fit_reranker

TRAIN, VAL = 40, 20


def experiment():
    return experiment_from_dict(
        {
            "name": "tiny",
            "data": {"name": "made-up", "source": "folder"},
            "encoder": dataclasses.asdict(ENCODER),
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
        squares.append(encoder.preprocess(load_photo(folder / name)))
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
        writer.shard(0).write(features, [""] * len(ids))
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


@pytest.fixture(scope="module")
def pipeline(prepared, calibrated):
    """The calibrated model, loaded once for all tests."""
    return load(prepared / "model.keras")


@pytest.fixture(scope="module")
def captions(prepared, pipeline):
    """The captions of all photos."""
    return list(pipeline.caption_photos([prepared / "made-up"]))


def test_captions_of_a_calibrated_model_have_a_confidence(captions):
    values = [caption.confidence for caption in captions]
    assert len(set(values)) > 10
    assert all(0 <= value <= 1 for value in values)
    assert captions[0].to_dict()["confidence"] == captions[0].confidence
    for value, caption in zip(values, captions, strict=True):
        assert caption.confidence_word == confidence_word(value)


def test_a_confidence_has_a_word():
    words = ["probably wrong", "unsure", "likely", "likely"]
    assert [confidence_word(p) for p in (0.0, 0.2, 0.5, 1.0)] == words
    assert [confidence_word(p) for p in (0.4949, 0.4951)] == ["unsure", "likely"]
    assert confidence_word(None) is None


def test_the_minimum_leaves_out_captions_below_it(prepared, pipeline, captions):
    limit = float(np.median([caption.confidence for caption in captions]))
    kept = sum(caption.confidence >= limit for caption in captions)
    out, folder = prepared / "captions.csv", prepared / "made-up"
    request = CaptionRequest(min_confidence=limit)
    report = caption_into_file(pipeline, [folder], out, request, shown=False)
    left_out = f"{len(captions) - kept} left out for low confidence"
    assert report.summary() == f"{out}: {kept} captions written, {left_out}"
    assert "left out, its confidence" in report.failures[0].reason
    lines = out.read_text().splitlines()
    assert lines[0].endswith(",confidence")
    assert len(lines) == 1 + kept
    assert all(float(line.rsplit(",", 1)[1]) >= limit for line in lines[1:])


def test_another_minimum_is_not_mixed_into_the_same_file(prepared, pipeline):
    out, photo = prepared / "mixed.jsonl", prepared / "made-up" / "photo-00.png"
    request = CaptionRequest(min_confidence=0)
    caption_into_file(pipeline, [photo], out, request, shown=False)
    with pytest.raises(OutputFileError, match="confidence at least 0"):
        caption_into_file(pipeline, [photo], out, shown=False)


@pytest.mark.slow  # loads and compiles the model again
def test_the_screen_counts_and_names_what_is_left_out(prepared, captions):
    photos = [str(one.path) for one in captions[:6]]
    limit = float(np.median([one.confidence for one in captions[:6]]))
    kept = [one for one in captions[:6] if one.confidence >= limit]
    options = ["--model", str(prepared / "model.keras"), "--min-confidence", str(limit)]
    done = CliRunner().invoke(cli, ["caption", *photos, *options])
    assert done.exit_code == 0, done.output
    expected = [
        f"{one.path}: {one.sentence} ({one.confidence_word}, {one.confidence:.2f})"
        for one in kept
    ]
    assert done.stdout.splitlines() == expected
    assert f"{6 - len(kept)} captions left out for low confidence" in done.stderr
    assert done.stderr.count("left out, its confidence") == 6 - len(kept)


def test_the_minimum_holds_for_captions_that_the_photos_already_carry(
    pipeline, captions, tmp_path, monkeypatch
):
    load = "show_attend_tell.inference.pipeline.load_requested"
    monkeypatch.setattr(load, lambda *_: pipeline)
    photos = [shutil.copy(one.path, tmp_path) for one in captions[:4]]
    limit = float(np.median([one.confidence for one in captions[:4]]))
    kept = [k for k in range(4) if captions[k].confidence >= limit]
    command = ["caption", "--write-metadata", *photos]
    assert len(CliRunner().invoke(cli, command).stdout.splitlines()) == 4
    done = CliRunner().invoke(cli, [*command, "--min-confidence", str(limit)])
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [photos[k] for k in kept]


def test_a_caption_below_the_minimum_or_without_calibration_is_an_error(
    pipeline, captions
):
    for of, lowest, message in (
        (pipeline, 1, "left out, its confidence"),
        (pipeline, 2, "must be from 0 to 1. Received: 2"),
        (tiny_pipeline(), 0.5, "needs a calibration"),
    ):
        with pytest.raises(CaptionError, match=message) as caught:
            of.caption(captions[0].path, min_confidence=lowest)
        assert "\n" not in str(caught.value)


def test_a_calibration_is_of_captions_ranked_by_one_reranker(
    prepared, calibrated, tmp_path
):
    model, whole = tmp_path / "model.keras", prepared / "model.keras"
    shutil.copy(whole, model)
    reranker = fit_reranker(experiment(), prepared, progress=False)
    save_reranker(reranker, reranker_beside(model))
    given = {"noise": noise()}
    calibrate(experiment(), prepared, model, given, count=10, shown=False)
    ranked = load(model)
    assert 0 <= ranked.caption(prepared / "made-up" / "photo-00.png").confidence <= 1
    assert load(model, reranker="none").calibration is None
    assert load(whole).calibration is not None
    assert load(whole, reranker=reranker_beside(model)).calibration is None
    shutil.copy(calibration_path(model), calibration_path(tmp_path / "alone.keras"))
    shutil.copy(whole, tmp_path / "alone.keras")
    again = load(tmp_path / "alone.keras", reranker=reranker_beside(model))
    assert again.calibration is not None


def test_a_calibration_of_another_model_is_refused_in_one_line(prepared, calibrated):
    other = make_captioner(Encoder(ENCODER))
    other.trainable_variables[0].assign_add(np.ones(other.trainable_variables[0].shape))
    with pytest.raises(CalibrationError, match="another model") as caught:
        find_calibration(other.generator, prepared / "model.keras")
    assert "\n" not in str(caught.value)


def test_damaged_calibrations_are_refused_in_one_line(pipeline, calibrated, tmp_path):
    captioner = pipeline.generator
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
        ("words", np.int32([-1])),
        ("scale", np.zeros(7, np.float32)),
        ("quality", np.full(5, np.nan, np.float32)),
        ("about", np.array("[]")),
        ("about", np.array({"a": 1}, dtype=object)),
    ],
)
def test_calibrations_of_another_layout_are_refused(
    pipeline, calibrated, tmp_path, name, value
):
    captioner = pipeline.generator
    with np.load(calibrated.path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = value if value is not None else -arrays[name]
    np.savez(calibration_path(tmp_path / "model.keras"), **arrays)
    with pytest.raises(CalibrationError):
        find_calibration(captioner, tmp_path / "model.keras")


def test_few_pictures_of_a_set_are_refused(prepared):
    with pytest.raises(CalibrationError, match="'noise' must have at least 8"):
        calibrate(
            *(experiment(), prepared, prepared / "model.keras", {"noise": noise(3)}),
            count=8,
            shown=False,
        )
