"""Training and measuring RAM, DRAW and the reader: run folders, resuming, scores."""

import functools
import json
import math

import made_up_digits
import numpy as np
import pytest
import tensorflow as tf
import tiny_reader
from made_up_digits import digits
from nightly import nightly, others_nightly
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_reader import drawn_words
from tiny_siblings import EVERY_SIBLING, SIBLINGS
from tiny_training import assert_resumes

from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.runtime.errors import (
    DataError,
    ModelFileError,
    TrainingError,
)
from show_attend_tell.siblings.common import training as shared
from show_attend_tell.siblings.common.evaluation import open_split
from show_attend_tell.siblings.common.layers import named_weights
from show_attend_tell.siblings.digits.data import (
    held_out_binary,
    read_digits,
    read_split,
)
from show_attend_tell.siblings.digits.draw.bound import Measurer
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.ram import evaluation as classification
from show_attend_tell.siblings.digits.ram import prediction
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor
from show_attend_tell.siblings.words import evaluation as reading
from show_attend_tell.siblings.words import training as words
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.training import tensorboard_log


@pytest.fixture(scope="module", autouse=True)
def uncompiled():
    """Predict without compiling, to save time; a test of RAM compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "compiled", lambda function, model: function)
        yield


def go(work, name, folder, resume=False, **changes):
    sibling = SIBLINGS[name]
    chosen = sibling.experiment(**changes)
    return sibling.train(chosen, work, folder, resume, progress=False)


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """Return the run of a model, which is trained once, with all logs."""

    @functools.cache
    def run_of(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tensorboard_log, "CHECK_INTERVAL", 1)
            patch.setattr(words, "SHOWN", 1)
            settings = SIBLINGS[name].settings
            return go(work, name, tmp_path_factory.mktemp(name), training=settings)

    return run_of


# Training words or DRAW takes long: RAM stands for all of them in `make test`.
RAM_FIRST = pytest.mark.parametrize("name", others_nightly(SIBLINGS, kept=("ram",)))


@RAM_FIRST
def test_training_learns_and_leaves_a_run_folder(runs, work, name):
    run, sibling = runs(name), SIBLINGS[name]
    assert (run.steps, run.metric) == (sibling.steps, sibling.scores[0])
    assert {SETTINGS, MODEL, CHECKPOINT} <= {p.name for p in run.folder.iterdir()}
    if name == "ram":
        assert run.best > 50  # 10 of a guess
    if name == "draw":
        chosen, own = sibling.experiment(), read_digits(work / "made-up", "val", 16)
        measurer = Measurer(GENERATORS.build(chosen))
        bound = measurer.bound(held_out_binary(own, chosen.data, "val"))
        # Most of the bound is the entropy of the noise.
        assert -run.best < bound.whole.mean() - 5


@RAM_FIRST
def test_tensorboard_shows_terms_scores_and_figures(runs, name):
    sibling = SIBLINGS[name]
    log = EventAccumulator(str(runs(name).folder), {"tensors": 0}).Reload()
    steps = {
        tag: [event.step for event in log.Tensors(tag)] for tag in log.Tags()["tensors"]
    }
    for term in (*sibling.terms, "learning_rate", "gradient_norm"):
        assert steps[f"train/{term}"] == list(range(1, sibling.steps + 1)), term
    validations = [sibling.steps // 2, sibling.steps]
    tags = [f"validation/{score}" for score in sibling.scores]
    assert all(steps[tag] == validations for tag in (*tags, *sibling.images))


CLUTTERED = {"canvas": 40, "clutter": 2}
SLOW_TO_RESUME = [
    ("draw", {"data": {"binarise": "fixed"}}),
    ("ram", {"data": CLUTTERED, "glimpse": {"baseline": "moving"}}),
    ("ram", {"classifier": {"kind": "convolution", "widths": [12]}}),
    ("words", {"reader": {"decoder": "independent"}}),  # with dropout
    ("words", {}),
]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ram", {"classifier": {"widths": [12]}}),
        *nightly(("draw", {"draw": {"steps": 1, "attention": False}})),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_TO_RESUME),
    ],
)
def test_a_resumed_training_equals_an_uninterrupted_one(
    work, tmp_path, monkeypatch, name, changes
):
    def validate(self, model, step):
        """Score weights and statistics in place of words, to save time."""
        self.estimate_statistics(model)
        return {"word_accuracy": float(sum(np.abs(w).sum() for w in model.weights))}

    monkeypatch.setattr(words.ReadTask, "validate", validate)
    monkeypatch.setattr(words.ReadTask, "show", lambda *arguments: None)
    training = {"training": {"average_decay": 0.9, "epochs": 2}}
    train_here = functools.partial(go, work, name, **changes, **training)
    assert_resumes(train_here, tmp_path, 8)


@pytest.mark.nightly
def test_other_digits_and_initial_models_of_other_settings_are_refused(
    runs, work, tmp_path
):
    changes = {"training": {"epochs": 1}, "classifier": {"widths": [4]}}
    go(work, "ram", tmp_path, **changes)
    other = made_up_digits.prepare(tmp_path / "other", count=65)
    with pytest.raises(TrainingError, match="started with other digits"):
        go(other, "ram", tmp_path, resume=True, **changes)
    source = {"training": {"init_from": str(runs("words").model)}}
    with pytest.raises(ModelFileError, match="weights of other shapes"):
        go(work, "words", tmp_path, reader={"width": 17}, **source)
    with pytest.raises(ModelFileError, match="must be a model of task"):
        go(work, "draw", tmp_path, **source)


STOP = {"stop": "learned", "price": 0.05, "glimpses": 3, "zoom": "learned"}


@pytest.fixture(scope="module")
def stopping(runs, work, tmp_path_factory):
    """Return a run that learns zoom and stop from the weights of RAM without them."""
    folder = tmp_path_factory.mktemp("stopping")
    training = {"init_from": str(runs("ram").model), "metric": "reward", "epochs": 4}
    training |= {"learning_rate": 1e-3, "validate_every": 12}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard_log, "CHECK_INTERVAL", 1)
        return go(work, "ram", folder, training=training, glimpse=STOP)


def stopping_experiment():
    training = {"metric": "reward"}
    return made_up_digits.experiment(training=training, glimpse=STOP)


@pytest.mark.nightly
def test_zoom_and_stop_start_from_a_model_without_them(runs, work, tmp_path):
    source = runs("ram").model
    changes = {"init_from": str(source), "learning_rate": 1e-9, "epochs": 1}
    done = go(work, "ram", tmp_path, training=changes, glimpse=STOP)
    one, other = (CLASSIFIERS.load(path) for path in (done.model, source))
    weights = named_weights(one)
    assert weights.keys() > named_weights(other).keys()
    for name, given in named_weights(other).items():
        if name != "moving_reward":
            np.testing.assert_allclose(weights[name], given, atol=1e-6)


@pytest.mark.nightly
def test_a_model_with_stop_is_no_start_for_one_without(stopping, work, tmp_path):
    source = {"training": {"init_from": str(stopping.model)}}
    with pytest.raises(ModelFileError, match="weights of other shapes"):
        go(work, "ram", tmp_path, **source, glimpse={"glimpses": 3})


@pytest.mark.nightly
def test_tensorboard_has_the_mean_number_of_glimpses(stopping):
    log = EventAccumulator(str(stopping.folder), {"tensors": 0}).Reload()
    values = {
        tag: [float(tf.make_ndarray(event.tensor_proto)) for event in log.Tensors(tag)]
        for tag in ("train/glimpses", "validation/glimpses", "train/zoom")
    }
    assert len(values["train/glimpses"]) == stopping.steps == 24
    assert all(1 <= value <= 3 for value in values["train/glimpses"])
    assert all(1 / 2 <= value <= 2 for value in values["train/zoom"])
    assert len(set(values["train/glimpses"])) > 1
    assert all(1 <= value <= 3 for value in values["validation/glimpses"])


@pytest.mark.nightly
def test_the_error_of_a_model_that_stops_is_beside_its_glimpses(stopping, work):
    folder = stopping.folder.parent
    report = classification.evaluate(stopping_experiment(), work, folder)
    own, model = digits(20, seed=1), CLASSIFIERS.load(stopping.model)
    found = [Predictor(model)(own.images, seed=seed) for seed in range(5)]
    taken = np.array([seen.glimpses for seen in found])
    errors = [seen.errors(own.labels) for seen in found]
    scores = report.scores
    assert scores["glimpses"] == pytest.approx(taken.mean())
    assert scores["error"] == pytest.approx(np.mean(errors))
    shares = [np.mean(taken == number) for number in (1, 2, 3)]
    assert scores["glimpse_shares"] == pytest.approx(shares)
    reward = 1 - np.mean(errors) / 100 - 0.05 * taken.mean()
    assert scores["reward"] == pytest.approx(reward)
    line = f"error {scores['error']:.2f} % with {scores['glimpses']:.2f} glimpses"
    assert report.lines()[1].startswith(line)
    assert 1 <= scores["others"]["glimpses_sampled"] <= 3
    # The class is the one after the last glimpse.
    for seen in found:
        last = seen.steps[np.arange(20), seen.glimpses - 1]
        np.testing.assert_allclose(seen.probabilities, last, atol=1e-6)


@pytest.mark.nightly
def test_a_model_that_stops_is_chosen_by_its_reward(stopping, work):
    own = read_split(stopping_experiment(), work, "val")
    seen = Predictor(CLASSIFIERS.load(stopping.model))(own.images)
    reward = 1 - seen.errors(own.labels) / 100 - 0.05 * seen.glimpses.mean()
    assert stopping.metric == "reward"
    assert stopping.best == pytest.approx(reward, abs=1e-6)


@pytest.mark.nightly
def test_drawing_in_more_steps_starts_from_the_weights_of_fewer(runs, work, tmp_path):
    source = runs("draw").model
    changes = {"init_from": str(source), "learning_rate": 1e-9, "epochs": 1}
    done = go(work, "draw", tmp_path, training=changes, draw={"steps": 5})
    one, other = (GENERATORS.load(path) for path in (done.model, source))
    assert (one.settings.steps, other.settings.steps) == (5, 2)
    for ours, given in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, given, atol=1e-6)


@EVERY_SIBLING
def test_a_loss_that_is_not_finite_stops_training(work, tmp_path, monkeypatch, name):
    def updates(self, *position):
        yield {"loss": np.nan, self.monitored.key: np.nan}

    monkeypatch.setattr(shared.SiblingTask, "updates", updates)
    inputs = {"ram": "pictures", "draw": "digits", "words": "crops"}[name]
    with pytest.raises(TrainingError, match=f"the {inputs} may be damaged"):
        go(work, name, tmp_path)


# --- evaluation ---


@pytest.fixture(scope="module")
def reports(runs, work):
    """Return the report of a model's run."""

    @functools.cache
    def report_of(name):
        sibling, folder = SIBLINGS[name], runs(name).folder.parent
        return sibling.evaluate(sibling.experiment(), work, folder)

    return report_of


def scores_of(run, suffix=""):
    return json.loads((run.folder / f"scores{suffix}.json").read_text())


@RAM_FIRST
def test_scores_state_split_count_and_how_they_were_measured(reports, runs, name):
    report = reports(name)
    scores, lines = scores_of(runs(name)), report.lines()
    assert json.loads(json.dumps(report.scores)).items() <= scores.items()
    assert {"settings", "measured"} < set(scores)
    head = {"ram": "test, 20 pictures", "draw": "test, 20 pictures"}
    assert lines[0].endswith(head.get(name, "made-up, val, 12 words"))
    score = {"ram": "error", "draw": "bound", "words": "word_accuracy"}[name]
    assert f"{score.replace('_', ' ')} {scores[score]:.2f} " in lines[1]
    assert lines[1].endswith(scores["measured"])


def test_the_error_of_ram_is_that_of_its_own_predictions(reports, runs):
    scores, model = reports("ram").scores, CLASSIFIERS.load(runs("ram").model)
    own = digits(20, seed=1)
    errors = [Predictor(model)(own.images, seed=k).errors(own.labels) for k in range(5)]
    assert scores["error_of_seeds"] == pytest.approx(errors)
    assert scores["error"] == pytest.approx(np.mean(errors))
    assert scores["error"] < 50
    wrong = Predictor(model)(own.images).probabilities.argmax(-1) != own.labels
    assert errors[0] == pytest.approx(100 * wrong.mean())
    assert "mean places" in scores["measured"]
    others = {"error_sampled", "error_mean_of_10_sampled", "error_random_places"}
    assert set(scores["others"]) == others


@pytest.mark.nightly
def test_the_bound_of_draw_is_the_sum_of_its_parts(reports):
    scores = reports("draw").scores
    parts = scores["reconstruction"] + scores["divergence"]
    assert scores["bound"] == pytest.approx(parts)
    assert scores["divergence"] == pytest.approx(sum(scores["divergence_of_steps"]))
    bits = scores["bound"] / 784 / math.log(2)
    assert scores["bits_per_pixel"] == pytest.approx(bits)
    assert scores["measured"].startswith("fixed binarisation; dynamic in training")
    assert (scores["weighted_samples"], scores["weighted_pictures"]) == (50, 20)
    assert scores["weighted_bound"] < scores["bound"]
    assert 0 < scores["standard_error"] < scores["bound"]


@pytest.mark.nightly
def test_the_words_are_scored_as_in_training(reports, runs):
    scores = reports("words").scores
    assert scores["word_accuracy"] == pytest.approx(runs("words").best)
    assert scores["measured"] == "greedy, capitals as small letters, without a lexicon"
    low, high = scores["interval"]
    assert low <= scores["word_accuracy"] <= high
    assert {"similarity", "character_accuracy"} < set(scores)
    assert sum(count for _, count in scores["by_length"].values()) == 12


@pytest.mark.nightly
def test_the_split_and_the_way_to_measure_are_chosen(runs, work, tmp_path):
    made_up_digits.prepare(tmp_path)
    for name in ("ram", "draw"):  # the validation digits if there are no test digits
        experiment = SIBLINGS[name].experiment()
        split, chosen = open_split(read_split, experiment, tmp_path, None)
        assert (split, len(chosen.labels)) == ("val", 16)
        with pytest.raises(DataError, match="has no test digits"):
            open_split(read_split, experiment, tmp_path, "test")
    arguments = tiny_reader.experiment(), work, runs("words").folder.parent
    with pytest.raises(DataError, match="'train' or 'val'"):
        reading.evaluate(*arguments, split="test")
    (tmp_path / "words.txt").write_text("\n".join(drawn_words(12, 6, 1)[1]))
    options = {"beam": 2, "lexicon": tmp_path / "words.txt"}
    reading.evaluate(*arguments, split="train", **options)
    assert scores_of(runs("words"), "-made-up-train-beam-2-lexicon")["words"] == 40


@pytest.mark.nightly
def test_figures_are_pictures_and_animations(reports):
    files = (*reports("ram").figures, *reports("draw").figures)
    names = [path.name for path in files]
    assert names[:2] == ["glimpses.png", "glimpses.gif"]
    assert names[2:] == ["samples.png", "samples.gif", "nearest.png"]
    frames = {"glimpses.gif": 2, "samples.gif": 4}
    sizes = {"samples.png": (10, 10), "nearest.png": (10, 2)}
    for path in files:
        with Image.open(path) as image:
            assert image.format == path.suffix[1:].upper()
            assert getattr(image, "n_frames", 1) == frames.get(path.name, 1)
            if path.name in sizes:
                assert image.size == tuple(n * 85 + 1 for n in sizes[path.name])


SLOW_TO_MEASURE = [
    ({"glimpse": {"locations": "random"}}, "uniform over the picture"),
    ({"draw": {"steps": 2, "read": 8, "width": 24}}, "differentiable glimpses"),
]


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        ({"classifier": {"widths": [12]}}, "whole pictures"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_TO_MEASURE),
    ],
)
def test_baselines_are_trained_and_measured_in_the_same_way(
    work, tmp_path, changes, measured
):
    settings = {"epochs": 12, "learning_rate": 0.01}
    done = go(work, "ram", tmp_path, training=settings, **changes)
    chosen = made_up_digits.experiment(training=settings, **changes)
    report = classification.evaluate(chosen, work, tmp_path, split="val")
    assert report.scores["others"] == {}
    assert measured in report.scores["measured"]
    assert len(report.figures) == (0 if "classifier" in changes else 2)
    if "glimpse" not in changes:
        assert report.scores["error"] == pytest.approx(100 - done.best)
        assert report.scores["error"] < 50


@pytest.mark.slow
def test_training_continues_from_the_model_of_another_run(runs, work, tmp_path):
    source = runs("words")
    changes = {"init_from": str(source.folder / MODEL), "learning_rate": 1e-9}
    changes |= {"warmup_steps": 0, "weight_decay": 0.0}
    done = go(work, "words", tmp_path, training=changes)
    models = (READERS.load(run.model) for run in (done, source))
    pairs = zip(*(model.trainable_weights for model in models), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert done.best >= source.best
