"""Training, from prepared data to a run folder."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import IDENTITY, experiment, prepare
from tiny_training import STEPS, go, skip_captions

from show_attend_tell.config import settings as config
from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.splits import folder_of
from show_attend_tell.runtime.errors import FeatureError
from show_attend_tell.training import checkpoint
from show_attend_tell.training import maximum_likelihood as likelihood
from show_attend_tell.training import tensorboard_log as training_log
from show_attend_tell.training import train as training
from show_attend_tell.training.tensorboard_log import TrainingLog

CURVES = ("loss", "word_loss", "attention_loss", "learning_rate", "gradient_norm")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


@pytest.fixture
def unvalidated(monkeypatch):
    skip_captions(monkeypatch)


@pytest.fixture(scope="module")
def real(work, tmp_path_factory):
    """A whole training with all logs: its summary and its folder."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_log, "EVERY", 1)
        patch.setattr(training_log, "SAMPLES", 1)
        changes = {"epochs": 12, "learning_rate": 0.05, "metric": "CIDEr"}
        changes["validate_every"] = 18
        summary = go(work, folder, training=changes, model={"dropout": 0.0})
    return summary


def test_a_training_ends_with_a_model_that_learnt(real):
    assert real.steps == 12 * STEPS
    assert real.stopped == "all epochs done"
    assert real.best > 40
    assert real.best_step in (18, 36)
    assert real.model == real.folder / MODEL
    assert real.seconds > 0


def test_the_run_folder_holds_what_the_design_says(real):
    names = {path.name for path in real.folder.iterdir()}
    logs = {name for name in names if name.startswith("events.out.tfevents")}
    assert len(logs) == 1
    projector = {"embedding.tsv", "embedding-words.tsv", "projector_config.pbtxt"}
    assert names - logs == {SETTINGS, MODEL, CHECKPOINT} | projector
    resolved = config.read_experiment_file(real.folder / SETTINGS)
    assert resolved.training.epochs == 12
    assert resolved.name == "tiny"


def test_the_saved_model_knows_words_encoder_decoding_and_grid(real, work):
    model = keras.saving.load_model(real.model)
    assert model.encoder_identity == IDENTITY
    assert model.grid == (2, 3)
    assert model.decoding.beam == 2
    assert "circle" in model.vocabulary.words
    path = feature_path(folder_of(experiment(), work), experiment().encoder)
    with FeatureReader(path) as reader:
        found = model.generate(
            reader.read([12]), DecodingSettings(method="greedy", max_words=6)
        )
    assert model.vocabulary.decode(found.tokens[0, 0])


def test_tensorboard_shows_the_training(real):
    log = EventAccumulator(str(real.folder), {"tensors": 0}).Reload()
    steps = {tag: [e.step for e in log.Tensors(tag)] for tag in log.Tags()["tensors"]}
    for name in CURVES:
        assert steps[f"train/{name}"] == list(range(1, 12 * STEPS + 1))
    for tag in ("validation/BLEU-4", "validation/CIDEr", "caption/0", "attention/0"):
        assert steps[tag] == [18, 36]
    (settings,) = log.Tensors("settings")
    assert b"learning_rate = 0.05" in settings.tensor_proto.string_val[0]
    assert b"photo-12: " in log.Tensors("caption/0")[-1].tensor_proto.string_val[0]
    picture = log.Tensors("attention/0")[-1].tensor_proto.string_val
    assert picture[2].startswith(b"\x89PNG")
    values = {
        name: [float(tf.make_ndarray(e.tensor_proto)) for e in log.Tensors(name)]
        for name in (*(f"train/{name}" for name in CURVES), "validation/CIDEr")
    }
    assert values["train/loss"][-1] < 0.7 * values["train/loss"][0]
    np.testing.assert_allclose(values["train/learning_rate"], 0.05, rtol=1e-6)
    assert min(values["train/gradient_norm"]) > 0
    assert max(values["validation/CIDEr"]) == pytest.approx(real.best)


def test_what_is_validated_and_saved_is_the_average_of_weights(
    work, tmp_path, monkeypatch, unvalidated
):
    history, validated = [], []
    save, score = checkpoint.save, training.validate

    def remember(path, model, position):
        history.append([np.array(w) for w in model.trainable_variables])
        save(path, model, position)

    def look(model, *rest):
        validated.append([np.array(w) for w in model.trainable_variables])
        return score(model, *rest)

    monkeypatch.setattr(checkpoint, "save", remember)
    monkeypatch.setattr(training, "validate", look)
    averaged = {"average_decay": 0.5, "checkpoint_every": 1, "epochs": 1}
    summary = go(work, tmp_path, training=averaged)
    assert len(validated) == 1
    model = keras.saving.load_model(summary.model)
    for j, saved in enumerate(model.trainable_variables):
        expected = history[0][j]
        for weights in history[1:STEPS]:
            expected = 0.5 * expected + 0.5 * weights[j]
        np.testing.assert_allclose(saved, expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(saved, validated[0][j])
    assert np.abs(np.asarray(saved) - history[-1][j]).max() > 0


@pytest.fixture
def scored(monkeypatch, unvalidated):
    """Let validations return given scores, in turn; returns the list to fill."""
    scores = []
    monkeypatch.setattr(
        training,
        "validate",
        lambda *rest: ({"BLEU-4": 1.0, "CIDEr": scores.pop(0)}, {}),
    )
    return scores


def test_training_stops_when_patience_ends_and_stays_stopped(work, tmp_path, scored):
    scored += [5.0, 7.0, 7.0, 6.0, 100.0]
    patient = {"patience": 2, "epochs": 5, "metric": "CIDEr", "validate_every": 2}
    summary = go(work, tmp_path, training=patient)
    assert summary.stopped == "no gain in 2 validations"
    assert (summary.best, summary.best_step, summary.steps) == (7.0, 4, 8)
    again = go(work, tmp_path, resume=True, training=patient)
    assert (again.best, again.steps, again.stopped) == (7.0, 8, summary.stopped)
    assert scored == [100.0]


def test_a_better_score_starts_patience_anew(work, tmp_path, scored):
    scored += [5.0, 4.0, 6.0, 5.0, 5.0]
    patient = {"patience": 2, "epochs": 5, "metric": "CIDEr"}
    summary = go(work, tmp_path, training=patient)
    assert (summary.best, summary.best_step) == (6.0, 3 * STEPS)
    assert summary.steps == 5 * STEPS
    assert not scored


def test_the_last_update_is_validated_whatever_the_interval(work, tmp_path, scored):
    scored += [5.0]
    rare = {"epochs": 1, "metric": "CIDEr", "validate_every": 100}
    summary = go(work, tmp_path, training=rare)
    assert summary.model.exists()
    assert summary.best_step == STEPS


def test_the_gradient_norm_logged_is_that_of_the_update(
    work, tmp_path, monkeypatch, unvalidated
):
    seen = []

    def look(self, step, values, optimizer, bar):
        seen.append((float(optimizer.gradient_norm), float(values["loss"])))

    monkeypatch.setattr(TrainingLog, "step", look)
    go(work, tmp_path, training={"epochs": 1, "clip_norm": 1e-3})
    norms, losses = np.transpose(seen)
    assert (norms > 1e-3).all()
    assert np.isfinite(losses).all()


class _Stop(Exception):
    """Ends a training as soon as its readers are known."""


def test_mirrored_photos_are_read_by_the_rows_of_the_others(
    work, tmp_path, monkeypatch
):
    caught = []

    def catch(captions, rows, readers, *rest):
        caught.append([reader.read(rows[:4]) for reader in readers])
        raise _Stop

    monkeypatch.setattr(likelihood, "CaptionBatches", catch)
    with pytest.raises(_Stop):
        go(work, tmp_path, encoder={"mirror": True})
    ((plain, mirrored),) = caught
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])
    assert (mirrored != plain).any()


def test_a_missing_mirror_file_is_named_in_one_line(tmp_path):
    work = prepare(tmp_path / "work")
    with pytest.raises(FeatureError, match="mirror.h5: no such feature file"):
        go(work, tmp_path / "runs", encoder={"mirror": True})
    assert not (tmp_path / "runs").exists()


def test_annotations_are_scaled_by_their_measured_deviation(
    work, tmp_path, unvalidated
):
    summary = go(
        work, tmp_path, model={"scale_annotations": True}, training={"epochs": 1}
    )
    path = feature_path(folder_of(experiment(), work), experiment().encoder)
    with FeatureReader(path) as reader:
        deviation = reader.read(range(12)).astype(float).std()
    model = keras.saving.load_model(summary.model)
    assert float(model.annotation_scale) == pytest.approx(1 / deviation, rel=1e-5)
