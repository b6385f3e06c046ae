"""Training DRAW on digits: a run folder, resuming, curves, and the scores."""

import functools
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from made_up_digits import digits, prepare
from made_up_drawing import experiment
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import assert_resumes

from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.data.digits import read_digits
from show_attend_tell.siblings.draw import evaluation, training
from show_attend_tell.siblings.draw.bound import Measurer
from show_attend_tell.siblings.draw.data import binarise, held_out_binary
from show_attend_tell.siblings.draw.evaluation import evaluate
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.models import build_model
from show_attend_tell.siblings.draw.training import BinaryUpdates, train
from show_attend_tell.training import tensorboard_log

DATA = experiment().data
STEPS = 6  # updates per epoch: 48 training digits in batches of 8


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), test=20)


def go(work, folder, resume=False, **changes):
    return train(experiment(**changes), work, folder, resume, progress=False)


@pytest.fixture(scope="module")
def real(work, tmp_path_factory):
    """A training that learns, with all logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard_log, "EVERY", 1)
        changes = {"epochs": 10, "validate_every": 30}
        return go(work, tmp_path_factory.mktemp("real"), training=changes)


def test_training_learns_and_ends_with_a_run_folder(real, work):
    assert (real.steps, real.metric) == (10 * STEPS, "bound")
    untrained = Measurer(build_model(experiment())).bound(
        held_out_binary(
            read_digits(work / "made-up", "val", 16), experiment().data, "val"
        )
    )
    # Most of the bound is the entropy of the noise.
    assert -real.best < untrained.whole.mean() - 5
    assert {SETTINGS, MODEL, CHECKPOINT} <= {p.name for p in real.folder.iterdir()}


def test_tensorboard_shows_terms_canvases_and_samples(real):
    log = EventAccumulator(str(real.folder), {"tensors": 0}).Reload()
    tags = {tag: log.Tensors(tag) for tag in log.Tags()["tensors"]}
    terms = ("loss", "reconstruction", "divergence", "divergence_1", "divergence_2")
    for name in (*terms, "learning_rate", "gradient_norm"):
        steps = [event.step for event in tags[f"train/{name}"]]
        assert steps == list(range(1, 10 * STEPS + 1)), name
    for name in ("bound", "reconstruction", "divergence"):
        assert [e.step for e in tags[f"validation/{name}"]] == [30, 60]
    for name in ("canvas", "samples"):
        assert [event.step for event in tags[name]] == [30, 60]
    width, height = tags["canvas"][0].tensor_proto.string_val[:2]
    # Four rows of a picture and the canvases c_0 to c_2.
    assert (int(width), int(height)) == (4 * 57 + 1, 4 * 57 + 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"draw": {"steps": 1, "attention": False}, "data": {"binarise": "fixed"}},
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=["no attention", "attention"],
)
def test_a_resumed_training_equals_an_uninterrupted_one(work, tmp_path, changes):
    changes["training"] = {"average_decay": 0.9, "epochs": 2}
    train_here = functools.partial(go, work, **changes)
    assert_resumes(train_here, tmp_path, 8)


def batches(kind, epoch, start=0):
    chosen = experiment(data={"binarise": kind})
    return list(BinaryUpdates(chosen, None, digits(50)).binary_batches(epoch, start))


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_pixels_are_binary_and_the_same_in_every_run(kind):
    one, again = batches(kind, 3), batches(kind, 3)
    np.testing.assert_array_equal(one, again)
    assert set(np.unique(one)) == {0, 255}
    np.testing.assert_array_equal(batches(kind, 3, 4)[0], one[4])


def test_dynamic_pixels_are_new_in_every_epoch_and_fixed_ones_are_not():
    def sums(kind, epoch):
        """Return the pictures of an epoch in an order that does not depend on it."""
        chosen = experiment(data={"binarise": kind}, training={"batch_size": 50})
        updates = BinaryUpdates(chosen, None, digits(50))
        (images,) = updates.binary_batches(epoch)
        return sorted(image.tobytes() for image in images)

    assert sums("fixed", 0) == sums("fixed", 1)
    assert not set(sums("dynamic", 0)) & set(sums("dynamic", 1))


def test_a_pixel_is_one_with_the_probability_of_its_intensity(rng):
    intensities = np.array([0, 1, 64, 128, 254, 255], np.uint8)
    n = 200_000
    found = binarise(np.tile(intensities, (n, 1)), rng).astype(float) / 255
    p = intensities / 255
    error = np.sqrt(p * (1 - p) / n)
    assert (np.abs(found.mean(0) - p) <= 4.5 * error).all()
    assert found[:, 0].max() == 0
    assert found[:, -1].min() == 1


def test_held_out_pixels_do_not_depend_on_the_binarisation_of_training():
    kinds = (experiment(data={"binarise": kind}).data for kind in ("fixed", "dynamic"))
    one, other = (held_out_binary(digits(20), kind, "val") for kind in kinds)
    np.testing.assert_array_equal(one, other)
    assert (held_out_binary(digits(20), experiment().data, "test") != one).any()


@pytest.mark.slow
def test_the_step_compiled_by_xla_equals_the_other_one(monkeypatch, rng):
    chosen, images = experiment(), binarise(digits(8).images, rng)
    noise = tf.constant(rng.standard_normal((8, 2, 5)), "float32")
    # XLA has random numbers of its own.
    monkeypatch.setattr(Draw, "sample_noise", lambda *rest: noise)
    values = []
    for jit_compile in (False, True):
        task = training.GenerationTask(chosen, digits(48), digits(8))
        task.compile(10)
        step = training.compiled_step(task.model, jit_compile)
        found = [step(tf.constant(images)) for _ in range(2)]
        values.append([{k: float(v) for k, v in each.items()} for each in found])
    for one, other in zip(*values, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)


# --- evaluation ---


@pytest.fixture(scope="module")
def report(real, work):
    return evaluate(experiment(), work, real.folder.parent)


def test_the_scores_state_split_bound_and_how_it_was_measured(report, real, work):
    scores = json.loads((real.folder / "scores.json").read_text())
    assert (scores["split"], scores["pictures"]) == ("test", 20)
    parts = scores["reconstruction"] + scores["divergence"]
    assert scores["bound"] == pytest.approx(parts)
    assert scores["divergence"] == pytest.approx(sum(scores["divergence_of_steps"]))
    assert scores["bits_per_pixel"] == pytest.approx(
        scores["bound"] / 784 / math.log(2)
    )
    assert scores["measured"].startswith("fixed binarisation; dynamic in training")
    assert (scores["weighted_samples"], scores["weighted_pictures"]) == (50, 20)
    assert scores["weighted_bound"] < scores["bound"]
    assert 0 < scores["standard_error"] < scores["bound"]
    assert report.lines()[1].startswith(f"bound {scores['bound']:.2f} nats")


def test_the_figures_are_pictures_and_an_animation(report):
    still, moving, nearest = report.figures
    for path, size in ((still, (10, 10)), (nearest, (10, 2))):
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.size == tuple(n * 85 + 1 for n in size)
    with Image.open(moving) as image:
        assert (image.format, image.n_frames) == ("GIF", 4)


def test_the_nearest_digit_is_that_of_least_distance():
    training_digits = digits(20).images
    drawn = training_digits[[7, 3]].astype("float32") / 255 * 0.9
    figure = evaluation.nearest_figure(drawn, training_digits, 2, 1)
    pixels = np.asarray(figure)[:, :, 0]
    np.testing.assert_array_equal(pixels[30:58, 1:29], training_digits[7])
    np.testing.assert_array_equal(pixels[30:58, 30:58], training_digits[3])
