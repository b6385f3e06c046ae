"""Training, from prepared data to a run folder."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import IDENTITY, experiment, prepare
from tiny_training import (
    STEPS,
    go,
)

from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.splits import folder_of
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.training import maximum_likelihood, tensorboard_log

KEPT = {"data": {"punctuation": "keep"}}
CURVES = ("loss", "word_loss", "attention_loss", "learning_rate", "gradient_norm")


@pytest.fixture(scope="module")
def real(work, tmp_path_factory):
    """A whole training with all logs, of photos whose files are absent but one."""
    folder = tmp_path_factory.mktemp("real")
    for path in (work / "made-up").glob("*.png"):
        if path.stem != "photo-12":
            path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard_log, "CHECK_INTERVAL", 1)
        patch.setattr(tensorboard_log, "SAMPLES", 2)
        changes = {"epochs": 12, "learning_rate": 0.05, "metric": "CIDEr"}
        changes["validate_every"] = 18
        summary = go(work, folder, training=changes, model={"dropout": 0.0})
    return summary


def test_training_ends_with_a_model_that_learnt(real):
    assert real.steps == 12 * STEPS
    assert real.stopped == "all epochs done"
    assert real.best > 40
    assert real.best_step in (18, 36)
    assert real.model == real.folder / MODEL
    assert real.seconds > 0


def test_the_run_folder_holds_settings_model_checkpoint_and_logs(real):
    names = {path.name for path in real.folder.iterdir()}
    logs = {name for name in names if name.startswith("events.out.tfevents")}
    assert len(logs) == 1
    projector = {"embedding.tsv", "embedding-words.tsv", "projector_config.pbtxt"}
    assert names - logs == {SETTINGS, MODEL, CHECKPOINT} | projector
    resolved = read_experiment_file(real.folder / SETTINGS)
    assert (resolved.name, resolved.training.epochs) == ("tiny", 12)
    model = load_captioner(real.model)
    assert (model.encoder_identity, model.grid) == (IDENTITY, (2, 3))
    assert model.decoding.beam == 2
    assert "circle" in model.vocabulary.words


def test_tensorboard_shows_the_training(real):
    log = EventAccumulator(str(real.folder), {"tensors": 0}).Reload()
    steps = {tag: [e.step for e in log.Tensors(tag)] for tag in log.Tags()["tensors"]}
    for name in CURVES:
        assert steps[f"train/{name}"] == list(range(1, 12 * STEPS + 1))
    for tag in ("BLEU-4", "CIDEr", "length", "distinct", "attention_peak"):
        assert steps[f"validation/{tag}"] == [18, 36]
    assert steps["caption/0"] == steps["attention_spread/beta"] == [18, 36]
    values = {
        name: [float(tf.make_ndarray(e.tensor_proto)) for e in log.Tensors(name)]
        for name in (*(f"train/{name}" for name in CURVES), "validation/CIDEr")
    }
    assert values["train/loss"][-1] < 0.7 * values["train/loss"][0]
    np.testing.assert_allclose(values["train/learning_rate"], 0.05, rtol=1e-6)
    assert min(values["train/gradient_norm"]) > 0
    assert max(values["validation/CIDEr"]) == pytest.approx(real.best)


def test_mirrored_photos_are_read_by_the_rows_of_the_others(
    work, tmp_path, monkeypatch
):
    caught = []

    def catch(captions, rows, views, *rest, **options):
        caught.append([reader.read(rows[:4]) for reader in views.readers])
        raise KeyError("it has its readers")

    monkeypatch.setattr(maximum_likelihood, "CaptionBatches", catch)
    with pytest.raises(KeyError, match="readers"):
        go(work, tmp_path, encoder={"mirror": True})
    ((plain, mirrored),) = caught
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])
    assert (mirrored != plain).any()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"encoder": {"mirror": True}}, DataError, "mirror.h5: no such feature"),
        (KEPT, DataError, r"vocabulary-keep.json: no such"),
    ],
)
def test_an_absent_file_is_named_in_one_line(tmp_path, changes, error, message):
    work = prepare(tmp_path / "work")
    with refused(error, message):
        go(work, tmp_path / "runs", **changes)
    assert not (tmp_path / "runs").exists()


def test_annotations_are_scaled_by_their_measured_deviation(work, tmp_path, quick):
    summary = go(
        work, tmp_path, model={"scale_annotations": True}, training={"epochs": 1}
    )
    path = feature_path(folder_of(experiment(), work), experiment().encoder)
    with FeatureReader(path) as reader:
        deviation = reader.read(range(12)).astype(float).std()
    model = load_captioner(summary.model)
    assert float(model.annotation_scale) == pytest.approx(1 / deviation, rel=1e-5)
