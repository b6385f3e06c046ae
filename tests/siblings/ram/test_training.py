"""Training on digits: a run folder, resuming, curves, figures, and the scores."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from made_up_digits import digits, experiment, prepare
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import assert_resumes

from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.runtime.backend import compiled
from show_attend_tell.runtime.errors import RunError, TrainingError
from show_attend_tell.siblings.ram import prediction, training
from show_attend_tell.siblings.ram.evaluation import evaluate
from show_attend_tell.siblings.ram.model import PlaceNoise, RecurrentAttention
from show_attend_tell.siblings.ram.prediction import Prediction, Predictor
from show_attend_tell.siblings.ram.task import build_model
from show_attend_tell.siblings.ram.training import train
from show_attend_tell.siblings.training import PictureUpdates
from show_attend_tell.training import tensorboard_log
from show_attend_tell.training.optimizer import make_plain_optimizer

STEPS = 6  # updates per epoch: 48 training digits in batches of 8


@pytest.fixture(scope="module", autouse=True)
def uncompiled():
    """Predict without compiling, to save time; one test below compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "compiled", lambda function, model: function)
        yield


def test_a_compiled_prediction_equals_the_other_one(monkeypatch):
    model, images = build_model(experiment()), digits(20).images
    plain = Predictor(model)(images, "sampled", 3)
    monkeypatch.setattr(prediction, "compiled", compiled)
    for one, other in zip(Predictor(model)(images, "sampled", 3), plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), test=20)


def go(work, folder, resume=False, **changes):
    return train(experiment(**changes), work, folder, resume, progress=False)


@pytest.fixture(scope="module")
def real(work, tmp_path_factory):
    """A training that learns, with all logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard_log, "EVERY", 20)
        changes = {"epochs": 40, "learning_rate": 0.01, "validate_every": 60}
        return go(work, tmp_path_factory.mktemp("real"), training=changes)


@pytest.fixture(scope="module")
def tags(real):
    log = EventAccumulator(str(real.folder), {"tensors": 0}).Reload()
    return {tag: log.Tensors(tag) for tag in log.Tags()["tensors"]}


def test_training_learns_and_ends_with_a_run_folder(real):
    assert real.steps == 40 * STEPS
    assert real.metric == "accuracy"
    assert real.best > 50  # 10 of a guess
    assert {SETTINGS, MODEL, CHECKPOINT} <= {p.name for p in real.folder.iterdir()}
    assert read_experiment_file(real.folder / SETTINGS).glimpse.glimpses == 2


def test_tensorboard_shows_errors_terms_places_and_a_figure(tags):
    terms = ("loss", "cross_entropy", "error", "reward", "baseline_error", "reinforce")
    places = ("mean_size", "mean_far", "spread_1", "spread_2")
    for name in (*terms, *places, "learning_rate", "gradient_norm"):
        steps = [event.step for event in tags[f"train/{name}"]]
        assert steps == list(range(20, 40 * STEPS + 1, 20)), name
    for name in ("accuracy", "error", "error_sampled"):
        assert [e.step for e in tags[f"validation/{name}"]] == [60, 120, 180, 240]
    assert [event.step for event in tags["glimpses"]] == [60, 120, 180, 240]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"canvas": 40, "clutter": 2}, "glimpse": {"baseline": "moving"}},
        {"classifier": {"kind": "convolution", "widths": [12]}},
    ],
    ids=["glimpses", "a convolution"],
)
def test_a_resumed_training_equals_an_uninterrupted_one(work, tmp_path, changes):
    changes["training"] = {"average_decay": 0.9, "epochs": 2}
    train_here = functools.partial(go, work, **changes)
    assert_resumes(train_here, tmp_path, STEPS + 2)


def test_other_digits_are_refused_when_a_training_is_resumed(work, tmp_path):
    changes = {"training": {"epochs": 1}, "classifier": {"widths": [4]}}
    go(work, tmp_path, **changes)
    other = prepare(tmp_path / "other", count=65)
    with pytest.raises(RunError, match="started with other digits"):
        go(other, tmp_path, resume=True, **changes)


def test_a_loss_that_is_not_finite_stops_training(work, tmp_path, monkeypatch):
    real_updates = PictureUpdates.updates

    def updates(self, *position):
        for values in real_updates(self, *position):
            yield {**values, "loss": np.nan}

    monkeypatch.setattr(PictureUpdates, "updates", updates)
    with pytest.raises(TrainingError, match="the digits may be damaged"):
        go(work, tmp_path, classifier={"widths": [4]})


def test_pictures_are_new_in_every_epoch_and_the_same_in_every_run():
    chosen = experiment(data={"canvas": 40, "clutter": 1})
    updates = [PictureUpdates(chosen, None, digits(50), None) for _ in range(2)]
    one, again = ([b.images for b in each.batches(3)] for each in updates)
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(list(updates[0].batches(3, 4))[0].images, one[4])
    assert (list(updates[0].batches(4))[0].images != one[0]).any()
    assert len(one) == updates[0].steps == 50 // 8
    labels = np.concatenate([b.labels for b in updates[0].batches(0)])
    assert np.bincount(labels).max() <= 5  # each digit at most once an epoch


@pytest.mark.slow
def test_the_step_compiled_by_xla_equals_the_other_one(monkeypatch, rng):
    chosen, images = experiment(glimpse={"samples": 2}), digits(8)
    first, steps = rng.uniform(-1, 1, (16, 2)), rng.standard_normal((16, 2, 2))
    noise = PlaceNoise(*(tf.constant(x, "float32") for x in (first, steps)))
    # XLA has random numbers of its own.
    monkeypatch.setattr(RecurrentAttention, "sample_noise", lambda *rest: noise)
    values = []
    for jit_compile in (False, True):
        model = build_model(chosen)
        optimizer = make_plain_optimizer(chosen.training, 10)
        model.compile(optimizer=optimizer)
        optimizer.build(model.trainable_variables)
        step = training.compiled_step(model, jit_compile)
        found = [step(*map(tf.constant, images)) for _ in range(2)]
        values.append([{k: float(v) for k, v in each.items()} for each in found])
    for one, other in zip(*values, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


def test_a_policy_at_the_border_is_reported_once(work, caplog):
    task = training.ClassificationTask(experiment(), digits(32), digits(8))
    far = Prediction(None, None, np.full((8, 1, 2), 0.99))
    near = far._replace(means=np.full((8, 1, 2), 0.5))
    for seen in (near, far, far):
        task._warn_of_border(seen, 7)
    assert [r.message for r in caplog.records] == [
        "100 % of the policy's coordinates at update 7 are at the border of the "
        "picture; if later ones are, lower glimpse.reinforce_weight"
    ]


# --- evaluation ---


@pytest.fixture(scope="module")
def report(real, work):
    return evaluate(experiment(), work, real.folder.parent)


def test_the_scores_state_split_error_and_how_it_was_measured(report, real):
    scores = json.loads((real.folder / "scores.json").read_text())
    assert (scores["split"], scores["pictures"]) == ("test", 20)
    assert scores["error"] == pytest.approx(np.mean(scores["error_of_seeds"]))
    assert len(scores["error_of_seeds"]) == 5
    assert "mean places" in scores["measured"]
    others = {"error_sampled", "error_mean_of_10_sampled", "error_random_places"}
    assert set(scores["others"]) == others
    assert scores["error"] < 50
    assert report.lines()[1].startswith(f"error {scores['error']:.2f} %: ")


def test_the_error_is_that_of_the_models_own_predictions(real, work, report):
    model = keras.saving.load_model(real.model)
    own = digits(20, seed=1)
    errors = [Predictor(model)(own.images, seed=k).errors(own.labels) for k in range(5)]
    assert report.error_of_seeds == pytest.approx(errors)
    seen = Predictor(model)(own.images)
    wrong = seen.probabilities.argmax(-1) != own.labels
    assert errors[0] == pytest.approx(100 * wrong.mean())


def test_the_figures_are_a_picture_and_an_animation(report):
    still, moving = report.figures
    with Image.open(still) as image:
        assert image.format == "PNG"
    with Image.open(moving) as image:
        assert (image.format, image.n_frames) == ("GIF", 2)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"glimpse": {"locations": "random"}}, marks=pytest.mark.slow),
        {"classifier": {"widths": [12]}},
    ],
    ids=["random places", "dense layers"],
)
def test_baselines_are_trained_and_measured_in_the_same_way(work, tmp_path, changes):
    go(work, tmp_path, training={"epochs": 1}, **changes)
    changes["training"] = {"epochs": 1}
    found = evaluate(experiment(**changes), work, tmp_path)
    assert found.others == {}
    expected = "uniform over the picture" if "glimpse" in changes else "whole pictures"
    assert expected in found.measured
