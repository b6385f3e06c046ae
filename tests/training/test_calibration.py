"""Calibrating a tiny model on prepared data, and using the calibration."""

import csv
import dataclasses
import shutil

import numpy as np
import pytest
import tiny_run
from click.testing import CliRunner
from PIL import Image
from refusals import refused
from shell import exit_code
from tensor_files import repack, unpacked
from tiny_pipeline import (
    DECODING,
    ENCODER,
    make_captioner,
    photo_bytes,
    tiny_pipeline,
)

from data_prep.feature_part import PartContent
from data_prep.feature_writer import FeatureWriter
from show_attend_tell.cli.main import cli
from show_attend_tell.data import manifest
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.inference.batch import caption_into_file
from show_attend_tell.inference.confidence import (
    find_calibration,
)
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import confidence_word, is_below
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.reference.reranker import save_reranker
from show_attend_tell.runtime.errors import (
    CaptionError,
    DataError,
    ModelFileError,
)
from show_attend_tell.training.calibration import calibrate, recalibrate
from show_attend_tell.training.labels import GRADES, Label
from show_attend_tell.training.reranking import fit_reranker

pytestmark = pytest.mark.usefixtures("numpy_searches")

TRAIN, VAL = 40, 20

EXPERIMENT = tiny_run.experiment(encoder=dataclasses.asdict(ENCODER), decoding=DECODING)


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
    path = feature_path(folder, EXPERIMENT.encoder)
    ids = [photo.id for photo in photos]
    with FeatureWriter(path, encoder.identity(), ids) as writer:
        writer.part(0).write(PartContent(features, [""] * len(ids)))
        writer.finish()
    captioner.save(work / "model.safetensors")
    return work


def calibrate_with_noise(work, model, count=10, labels=None):
    """Calibrate a model with pictures of noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)
    noise = {"noise": [Image.fromarray(picture) for picture in pixels]}
    return calibrate(EXPERIMENT, work, model, noise, count=10, labels=labels)


@pytest.fixture(scope="module")
def calibrated(prepared):
    """The report of a calibration of the model of `prepared`."""
    return calibrate_with_noise(prepared, prepared / "model.safetensors")


def test_a_calibration_is_written_into_the_file_of_the_model(prepared, calibrated):
    assert calibrated.path == prepared / "model.safetensors"
    about, arrays = unpacked(calibrated.path)
    assert about["confidence"]["measured"] == calibrated.measured
    assert "confidence/mean" in arrays
    assert set(calibrated.measured["auc"]) == {"noise", "upside down", "close-ups"}
    assert all(0 <= auc <= 1 for auc in calibrated.measured["auc"].values())
    assert any("noise" in line for line in calibrated.lines())


@pytest.fixture(scope="module")
def pipeline(prepared, calibrated):
    """The calibrated model, loaded once for all tests."""
    return load(prepared / "model.safetensors")


@pytest.fixture(scope="module")
def captions(prepared, pipeline):
    """The captions of all photos."""
    return list(pipeline.caption_photos([prepared / "made-up"]))


def test_captions_of_a_calibrated_model_have_a_confidence_and_its_word(captions):
    values = [caption.confidence for caption in captions]
    assert len(set(values)) > 10
    assert all(0 <= value <= 1 for value in values)
    assert captions[0].to_dict()["confidence"] == captions[0].confidence
    for value, caption in zip(values, captions, strict=True):
        assert caption.confidence_word == confidence_word(value)
    words = ["probably wrong", "unsure", "unsure", "unsure", "likely", "likely"]
    assert [confidence_word(p) for p in (0.0, 0.2, 0.71, 0.7199, 0.72, 1.0)] == words
    assert confidence_word(None) is None
    # The exact value decides, not the two decimals that people read.
    assert [is_below(p, 0.2) for p in (0.197, 0.2, None)] == [True, False, False]


def test_the_minimum_leaves_out_captions_below_it(prepared, pipeline, captions):
    limit = float(np.median([caption.confidence for caption in captions]))
    kept = sum(caption.confidence >= limit for caption in captions)
    out, folder = prepared / "captions.csv", prepared / "made-up"
    request = CaptionRequest(min_confidence=limit)
    report = caption_into_file(pipeline, [folder], out, request)
    left_out = f"{len(captions) - kept} left out for low confidence"
    assert report.summary() == f"{out}: {kept} captions written, {left_out}"
    assert "left out, its confidence" in report.failures[0].reason
    with out.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["error"]]
    assert len(rows) == kept
    assert all(float(row["confidence"]) >= limit for row in rows)


@pytest.mark.nightly
def test_another_minimum_is_not_mixed_into_the_same_file(prepared, pipeline):
    out, photo = prepared / "mixed.jsonl", prepared / "made-up" / "photo-00.png"
    request = CaptionRequest(min_confidence=1e-6)
    caption_into_file(pipeline, [photo], out, request)
    with pytest.raises(CaptionError, match="confidence at least 1e-06"):
        caption_into_file(pipeline, [photo], out)


def test_a_minimum_of_zero_continues_a_file_without_one(prepared, pipeline):
    out, photo = prepared / "all.csv", prepared / "made-up" / "photo-00.png"
    caption_into_file(pipeline, [photo], out, exiftool_columns=True)
    request = CaptionRequest(min_confidence=0)
    report = caption_into_file(pipeline, [photo], out, request, exiftool_columns=True)
    assert (report.written, report.present) == (0, 1)


def test_the_screen_counts_and_names_what_is_left_out_also_of_photos_with_captions(
    pipeline, captions, tmp_path, monkeypatch
):
    load = "show_attend_tell.inference.pipeline.load_requested"
    monkeypatch.setattr(load, lambda *_: pipeline)
    photos = [shutil.copy(one.path, tmp_path) for one in captions[:6]]
    limit = float(np.median([one.confidence for one in captions[:6]]))
    kept = [k for k in range(6) if captions[k].confidence >= limit]
    lowest = ["--min-confidence", str(limit)]
    done = CliRunner().invoke(cli, ["caption", *photos, *lowest])
    assert done.exit_code == 0, done.output
    expected = [
        f"{photos[k]}: {captions[k].sentence} "
        f"({captions[k].confidence_word}, {captions[k].confidence:.2f})"
        for k in kept
    ]
    assert done.stdout.splitlines() == expected
    assert f"{6 - len(kept)} captions left out for low confidence" in done.stderr
    assert done.stderr.count("left out, its confidence") == 6 - len(kept)
    command = ["caption", "--write-metadata", *photos]
    assert len(CliRunner().invoke(cli, command).stdout.splitlines()) == 6
    lines = CliRunner().invoke(cli, [*command, *lowest]).stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [photos[k] for k in kept]


def test_a_caption_below_the_minimum_or_without_calibration_is_an_error(
    pipeline, captions
):
    for of, lowest, message in (
        (pipeline, 1, "left out, its confidence"),
        (pipeline, 2, "must be from 0 to 1. Received: 2"),
        (tiny_pipeline(), 0.5, "needs a calibration"),
    ):
        with refused(CaptionError, message):
            of.caption(captions[0].path, min_confidence=lowest)


@pytest.mark.nightly
def test_a_calibration_is_of_captions_ranked_by_one_reranker(
    prepared, calibrated, tmp_path
):
    model, whole = tmp_path / "model.safetensors", prepared / "model.safetensors"
    shutil.copy(whole, model)
    reranker, alone = fit_reranker(EXPERIMENT, prepared), tmp_path / "x.safetensors"
    save_reranker(reranker, alone)
    save_reranker(reranker, model)
    assert load(model).calibration is None  # it was of captions ranked otherwise
    calibrate_with_noise(prepared, model)
    ranked = load(model)
    assert 0 <= ranked.caption(prepared / "made-up" / "photo-00.png").confidence <= 1
    assert load(model, reranker="none").calibration is None
    assert load(whole).calibration is not None
    assert load(whole, reranker=alone).calibration is None
    assert load(model, reranker=alone).calibration is not None  # the same reranker
    other = dataclasses.replace(reranker, basis=2 * reranker.basis)
    save_reranker(other, alone)
    assert load(model, reranker=alone).calibration is None


DAMAGED = {
    "mean": np.float32([1, 2]),
    "variances": np.full(3, -1, np.float32),
    "words": np.int32([-1]),
    "scale": np.zeros(7, np.float32),
    "quality": np.full(3, np.nan, np.float32),
    "centre": np.zeros(7, np.int32),
    "layout": None,
    "more": np.zeros(1, np.float32),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_arrays_of_a_calibration_are_one_line(
    pipeline, calibrated, tmp_path, name
):
    model, value = tmp_path / "model.safetensors", DAMAGED[name]
    if name == "variances":
        value = -unpacked(calibrated.path)[1]["confidence/variances"]
    repack(calibrated.path, arrays={f"confidence/{name}": value}, target=model)
    with refused(ModelFileError):
        find_calibration(pipeline.generator, model)


def test_words_of_a_calibration_beyond_the_vocabulary_are_one_line(
    pipeline, calibrated, tmp_path
):
    model = tmp_path / "model.safetensors"
    ids = unpacked(calibrated.path)[1]["confidence/words"].copy()
    ids[-1] = len(pipeline.captioner.vocabulary)
    repack(calibrated.path, arrays={"confidence/words": ids}, target=model)
    with refused(ModelFileError, "`words` must be ascending ids of words"):
        find_calibration(pipeline.generator, model)


@pytest.mark.parametrize("about", [[], {}, 5, {"statistics": ["distance"]}])
def test_damaged_values_of_a_calibration_are_one_line(
    pipeline, calibrated, tmp_path, about
):
    model = tmp_path / "model.safetensors"
    repack(calibrated.path, {"confidence": about}, target=model)
    with refused(ModelFileError):
        find_calibration(pipeline.generator, model)


def test_a_calibration_of_an_earlier_version_counts_as_none_with_a_warning(
    pipeline, calibrated, tmp_path, caplog
):
    model = tmp_path / "model.safetensors"
    about = unpacked(calibrated.path)[0]["confidence"]
    names = [*about["statistics"][:5], "weakest", "expected"]
    repack(calibrated.path, {"confidence": about | {"statistics": names}}, target=model)
    assert find_calibration(pipeline.generator, model) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{model}: its confidence is of an earlier version; run")


def test_damaged_bytes_of_a_calibration_are_one_line(pipeline, calibrated, tmp_path):
    content = bytearray(calibrated.path.read_bytes())
    at = content.find(unpacked(calibrated.path)[1]["confidence/layout"].tobytes())
    content[at] ^= 1
    model = tmp_path / "model.safetensors"
    model.write_bytes(content)
    with refused(ModelFileError, "layout` is damaged"):
        find_calibration(pipeline.generator, model)


def test_few_pictures_of_a_set_are_refused(prepared):
    with pytest.raises(ModelFileError, match="'noise' must have at least 8"):
        calibrate_with_noise(prepared, prepared / "model.safetensors", count=3)


@pytest.mark.parametrize("name", ["upside down", "close-ups"])
def test_a_set_with_the_name_of_another_set_is_refused_at_once(tmp_path, name):
    with refused(DataError, f"{name}: must not be the name .* rename the folder"):
        calibrate(EXPERIMENT, tmp_path, tmp_path / "absent.safetensors", {name: []})


@pytest.mark.parametrize("name", ["upside down", "close-ups", "drawn scenes"])
def test_a_folder_with_the_name_of_a_set_is_refused_at_once(name, capsys):
    command = ["calibrate", "-e", "flickr8k_soft", "--other", f"./{name}"]
    assert exit_code(*command, "--model", "absent.safetensors") == 2
    error = capsys.readouterr().err
    assert f"--other must not be {name!r}" in error
    assert "rename the folder" in error


NOUNS = ("dog", "grass", "cat", "ball", "tree", "boy", "car", "man")


@pytest.fixture
def with_nouns(prepared, tmp_path):
    """A copy of the prepared data, with a model whose captions have nouns."""
    work = tmp_path / "work"
    shutil.copytree(prepared / "made-up", work / "made-up")
    captioner = make_captioner(Encoder(ENCODER), words=NOUNS, seed=5)
    captioner.vocabulary.save(work / "made-up" / "vocabulary.json")
    captioner.save(work / "model.safetensors")
    path = work / "made-up" / "manifest.jsonl"
    photos = [
        dataclasses.replace(
            photo, path=photo.path.name, captions=["a ball" if k % 4 else "a cat cat"]
        )
        for k, photo in enumerate(manifest.read_manifest(path))
    ]
    manifest.write_manifest(path, photos)
    return work


@pytest.mark.nightly
def test_tags_are_calibrated_too_and_again_with_the_familiarity_kept(with_nouns):
    model = with_nouns / "model.safetensors"
    report = calibrate_with_noise(with_nouns, model)
    assert any(line.startswith("tags: ") for line in report.lines())
    about, arrays = unpacked(model)
    both = load(model)
    assert both.calibration.tags.coefficients[0] >= 0
    photo = with_nouns / "made-up" / "photo-00.png"
    tags = both.caption(photo, tags=True, min_tag_confidence=0).tags
    assert "cat" in [tag.name for tag in tags]

    untagged = {key: x for key, x in about["confidence"].items() if key != "tags"}
    other = arrays | {"confidence/quality": np.zeros(3, np.float32)}
    repack(model, {"confidence": untagged}, other)
    with refused(CaptionError, "run `show-attend-tell calibrate"):
        load(model).caption(photo, tags=True)
    again = recalibrate(EXPERIMENT, with_nouns, model)
    assert again.measured["auc"] == report.measured["auc"]
    assert again.measured["tags"] == report.measured["tags"]
    found, values = unpacked(model)
    # The words' weights were rounded in the file.
    assert found["confidence"].pop("tags")["coefficients"] == pytest.approx(
        about["confidence"].pop("tags")["coefficients"], abs=0.01
    )
    for name, value in values.items():
        np.testing.assert_allclose(value, arrays[name], atol=0.02)
    assert load(model).caption(photo).confidence == pytest.approx(
        both.caption(photo).confidence, abs=0.01
    )


def test_a_part_of_a_calibration_is_kept_only_where_there_is_one(with_nouns):
    with refused(ModelFileError, "without --keep-familiarity, which calibrates all"):
        recalibrate(EXPERIMENT, with_nouns, with_nouns / "model.safetensors")


def test_a_model_that_names_nothing_is_calibrated_without_tags(prepared, calibrated):
    assert calibrated.measured["tags"]["nouns"] == 0
    assert "not calibrated" in "\n".join(calibrated.lines())
    assert load(calibrated.path).calibration.tags is None


def labels_of(work, model):
    """Return labels of the captions of the photos that validate."""
    photos = sorted((work / "made-up").glob("*.png"))[TRAIN:]
    labels = []
    for k, caption in enumerate(load(model).caption_photos(photos)):
        grade = GRADES["wrong"] if k % 2 else GRADES["right"]
        labels.append(Label(caption.path.name, caption.text, (grade, grade)))
    return labels


def test_labels_fit_the_confidence_on_half_and_measure_it_on_the_other(
    with_nouns, monkeypatch
):
    model = with_nouns / "model.safetensors"
    monkeypatch.setattr("show_attend_tell.training.calibration.MIN_PHOTOS", 4)
    labels = labels_of(with_nouns, model)
    absent = Label("absent.jpg", "a dog", (2,))
    report = calibrate_with_noise(with_nouns, model, labels=[*labels, absent])
    measured = report.measured["labels"]
    fitted = [label for label in labels if label.is_fitted]
    assert measured["fitted"] == len(fitted)
    assert measured["tested"] == len(labels) - len(fitted)
    expected = f"{len(labels)} of {len(labels) + 1} labels used: 1 photo"
    assert any(line.startswith(expected) for line in report.lines())
    assert "'absent.jpg'" in report.left_out
    quality = unpacked(model)[1]["confidence/quality"]

    # Labels that measure change nothing of the fit, and those that fit do.
    wrong = [dataclasses.replace(label, grades=(0,)) for label in labels]
    measuring = [k for k, label in enumerate(labels) if not label.is_fitted]
    changed = [wrong[k] if k in measuring[1:] else labels[k] for k in range(VAL)]
    again = recalibrate(EXPERIMENT, with_nouns, model, labels=changed)
    np.testing.assert_allclose(
        unpacked(model)[1]["confidence/quality"], quality, atol=0.02
    )
    assert again.measured["labels"] != measured
    without = recalibrate(EXPERIMENT, with_nouns, model)
    assert "labels" not in without.measured
    assert (unpacked(model)[1]["confidence/quality"] != quality).any()


def test_labels_without_right_captions_need_neither_them_nor_cider(
    prepared, calibrated, captions, tmp_path, monkeypatch
):
    module = "show_attend_tell.training.calibration"
    monkeypatch.setattr(f"{module}.MIN_PHOTOS", 4)
    # The captions by people call none of them right.
    monkeypatch.setattr(f"{module}.is_probably_right", np.zeros_like)
    model = shutil.copy(calibrated.path, tmp_path / "model.safetensors")
    labels = [
        Label(caption.path.name, caption.text, (GRADES["wrong" if k % 2 else "slip"],))
        for k, caption in enumerate(captions[TRAIN:])
    ]
    report = recalibrate(EXPERIMENT, prepared, model, labels=labels)
    measured = report.measured["labels"]
    assert measured["right"] == 0
    assert "auc_right" not in measured
    assert 0 <= measured["auc_right_or_slip"] <= 1
    assert "nan" not in "\n".join(report.lines())
    assert unpacked(model)[0]["confidence"]["measured"]["labels"] == measured
    with refused(ModelFileError, "some validation captions must be right"):
        recalibrate(EXPERIMENT, prepared, model)


@pytest.mark.nightly
def test_labels_of_other_captions_photos_and_ambiguous_names_are_refused(with_nouns):
    model = with_nouns / "model.safetensors"
    before = model.read_bytes()
    labels = labels_of(with_nouns, model)
    others = [dataclasses.replace(one, caption="a bus") for one in labels]
    absent = [dataclasses.replace(one, photo=f"x{one.photo}") for one in labels]
    one_kind = [dataclasses.replace(one, grades=(2,)) for one in labels]
    for given, message in (
        (others, "0 of 20 labels used: 20 captions not validated"),
        (absent, "0 of 20 labels used: 20 photos not validated, such as 'xphoto-40"),
        (one_kind, "some of them wrong"),
    ):
        with refused(DataError, message):
            calibrate_with_noise(with_nouns, model, labels=given)
    assert model.read_bytes() == before


@pytest.mark.parametrize("tags", [5, {}, {"statistics": ["score"]}])
def test_a_damaged_calibration_of_tags_is_one_line(
    pipeline, calibrated, tmp_path, tags
):
    model = tmp_path / "model.safetensors"
    about = unpacked(calibrated.path)[0]["confidence"] | {"tags": tags}
    repack(calibrated.path, {"confidence": about}, target=model)
    with refused(ModelFileError, "tags"):
        find_calibration(pipeline.generator, model)
