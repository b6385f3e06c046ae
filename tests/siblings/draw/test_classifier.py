"""Differentiable glimpses: equations, gradients, and a training in RAM's harness."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tiny_draw as tiny
from keras import ops
from made_up_digits import prepare
from oracle import assert_slopes
from tiny_captioner import gradient_function

from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.config.siblings import DrawReaderSettings
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.ram.evaluation import evaluate
from show_attend_tell.siblings.ram.training import train

T, N, SIDE, CLASSES = 3, 3, 8, 4


def build(rng):
    settings = DrawReaderSettings(steps=T, read=N, width=6)
    model = WindowClassifier(settings, SIDE, CLASSES)
    for weight in model.trainable_weights:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    return model


def logits_of(p, image):
    """Return the logits of one picture, in NumPy."""
    state = p["core/h_0"], np.zeros(6)
    for _ in range(T):
        window = tiny.window(tiny.affine(p, "to_read", state[0]), N, SIDE, SIDE)
        F_y, F_x, gamma = window
        state = tiny.lstm(p, "core", (gamma * F_y @ image @ F_x.T).ravel(), state)
    return tiny.affine(p, "act", state[0])


def cross_entropy(p, images, labels):
    logits = np.array([logits_of(p, image) for image in images])
    norm = np.log(np.exp(logits).sum(-1))
    return np.mean(norm - logits[np.arange(len(labels)), labels])


def test_outputs_loss_and_gradient_equal_the_equations(rng):
    model, images = build(rng), rng.random((5, SIDE, SIDE), np.float32)
    labels, p = rng.integers(0, CLASSES, 5), tiny.weights(model)
    outputs = model(images)
    theirs = np.array([logits_of(p, image) for image in images])
    np.testing.assert_allclose(outputs["logits"], theirs, **tiny.TOLERANCE)
    assert outputs["read"].shape == (5, T, 5)
    values = {k: float(v) for k, v in model.losses_of(labels, outputs).items()}
    assert values["loss"] == pytest.approx(cross_entropy(p, images, labels), rel=1e-4)
    assert values["error"] == pytest.approx(100 * np.mean(theirs.argmax(-1) != labels))

    def loss(images):
        return model.losses_of(labels, model(images))["loss"], 0.0

    found = gradient_function(loss, model, key="path")(ops.convert_to_tensor(images))
    gradients = {tiny.short(path): gradient for path, gradient in found[0].items()}
    value = functools.partial(cross_entropy, images=images, labels=labels)
    assert_slopes(gradients, p, value, rng, 2e-3)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0, name


def test_a_saved_classifier_is_the_same(rng, tmp_path):
    model, images = build(rng), rng.random((2, SIDE, SIDE), np.float32)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images)["logits"], model(images)["logits"])


@pytest.mark.slow
def test_it_is_trained_and_measured_as_other_classifiers_of_digits(tmp_path):
    work = prepare(tmp_path / "work")
    tables = {
        "data": {"name": "made-up", "source": "mnist", "validation": 16},
        "training": {"epochs": 12, "batch_size": 8, "jit_compile": False},
        "draw": {"steps": 2, "read": 8, "width": 24},
    }
    tables["training"]["learning_rate"] = 0.01
    chosen = experiment_from_dict({"name": "tiny", "task": "classify", **tables})
    done = train(chosen, work, tmp_path, progress=False)
    assert done.best > 50  # 10 of a guess
    found = evaluate(chosen, work, tmp_path)
    assert found.error == pytest.approx(100 - done.best)
    assert found.measured.startswith("differentiable glimpses")
    assert [path.name for path in found.figures] == ["glimpses.png", "glimpses.gif"]
    assert all(path.is_file() for path in found.figures)
    other = dataclasses.replace(chosen, draw=DrawReaderSettings(steps=2, read=7))
    with pytest.raises(ModelFileError, match="other settings"):
        evaluate(other, work, tmp_path)
