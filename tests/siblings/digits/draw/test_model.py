"""DRAW: equations, loss, gradients, noise, generation, and what it saves."""

import functools

import numpy as np
import pytest
import tiny_draw as tiny
from keras import ops
from oracle import assert_slopes
from random_weights import randomised
from tiny_captioner import MODES, gradient_function, run_in
from tiny_draw import H, T, W

from show_attend_tell.siblings.digits.draw.filter_bank import read_patch
from show_attend_tell.siblings.digits.draw.model import Draw, WindowClassifier
from show_attend_tell.siblings.digits.settings import DrawReaderSettings, DrawSettings

VARIANTS = {"attention": {}, "no attention": {"attention": False}}


def expected(model, images, noise):
    p = tiny.weights(model)
    rows = [
        tiny.run(p, model.settings, x.astype(float), eps.astype(float))
        for x, eps in zip(images, noise, strict=True)
    ]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


COMPILED = [pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:]]


@pytest.mark.parametrize("mode", [MODES[0], *COMPILED])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_outputs_equal_the_equations(rng, changes, mode):
    model = tiny.build(rng, **changes)
    images, noise = tiny.batch(rng, model)
    ours, theirs = (
        run_in(mode, model.draw, images, noise),
        expected(model, images, noise),
    )
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, **tiny.TOLERANCE, err_msg=name)


def test_the_loss_is_the_mean_of_both_terms_in_nats(rng):
    model = tiny.build(rng)
    images, noise = tiny.batch(rng, model)
    theirs, outputs = expected(model, images, noise), model.draw(images, noise)
    whole = theirs["l_x"] + theirs["l_z"].sum(1)
    values = {k: float(v) for k, v in model.losses_of(outputs).items()}
    assert values["loss"] == pytest.approx(whole.mean(), 1e-4)
    steps = sum(values[f"divergence_{t}"] for t in range(1, T + 1))
    assert values["divergence"] == pytest.approx(steps, 1e-5)
    assert values["reconstruction"] == pytest.approx(theirs["l_x"].mean(), 1e-4)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_the_gradient_equals_finite_differences_of_the_equations(rng, changes):
    model = tiny.build(rng, **changes)
    images, noise = tiny.batch(rng, model)

    def loss(images, noise):
        return model.losses_of(model.draw(images, noise))["loss"], 0.0

    tensors = map(ops.convert_to_tensor, (images, noise))
    found = gradient_function(loss, model, key="path")(*tensors)[0]
    found = {tiny.short(path): g for path, g in found.items()}

    def of(p):
        pairs = zip(images, noise, strict=True)
        rows = (tiny.run(p, model.settings, x, e) for x, e in pairs)
        return np.mean([row["l_x"] + row["l_z"].sum() for row in rows])

    assert_slopes(found, tiny.weights(model), of, rng, 2e-3, 1e-4)
    for name, slopes in found.items():
        assert np.abs(slopes).max() > 0, name


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_generation_equals_the_equations_and_reads_no_encoder(rng, changes):
    model = tiny.build(rng, **changes)
    _, noise = tiny.batch(rng, model)
    before = ops.convert_to_numpy(model.generate(noise)["canvas"])
    p = tiny.weights(model)
    theirs = [tiny.generate(p, model.settings, (H, W), z) for z in noise]
    np.testing.assert_allclose(before, theirs, **tiny.TOLERANCE)
    encoding = [model.encoder, model.mean, model.log_deviation]
    for layer in encoding + ([model.to_read] if model.settings.attention else []):
        for weight in layer.weights:
            weight.assign(np.full(weight.shape, np.nan))
    after = ops.convert_to_numpy(model.generate(noise)["canvas"])
    np.testing.assert_array_equal(after, before)


def test_the_papers_models_have_their_numbers_of_weights():
    lstms = (2 * 784 + 256 + 256 + 1) * 1024 + (100 + 256 + 1) * 1024
    maps = 2 * 257 * 100 + 257 * 784
    plain = {"attention": False, "latent": 100}, lstms + maps + 784 + 2 * 256
    windows = {"read": 2, "write": 5, "latent": 100, "width": 256}, 960_763
    for changes, count in (plain, windows):
        for steps in (1, 64):
            model = Draw(DrawSettings(steps=steps, **changes), 28, 28)
            assert model.count_params() == count


def test_the_initial_model_reads_and_writes_the_whole_picture():
    model = Draw(tiny.settings(), H, W)
    outputs = model(np.zeros((1, H, W), "float32"))
    for name in ("read", "write"):
        np.testing.assert_array_equal(outputs[name], np.zeros((1, T, 5)))
    canvas = ops.convert_to_numpy(outputs["canvas"])
    np.testing.assert_array_equal(canvas[:, 0], np.full((1, H * W), -2.0))


def test_two_filters_read_inside_the_picture_from_read_start():
    image = np.zeros((1, 8, 8), "float32")
    image[0, 2:6, 2:6] = 1  # the corners are empty
    read = []
    for start in (1.0, 0.4):
        model = Draw(tiny.settings(read=2, read_start=start), 8, 8)
        parameters = model(image)["read"][:, 0]
        np.testing.assert_allclose(parameters, [[0, 0, 0, np.log(start), 0]], rtol=1e-6)
        patch = read_patch(image, model._window(parameters, 2), 2)
        read.append(ops.convert_to_numpy(patch).max())
    assert read[0] < 0.15 < 0.5 < read[1]


# --- a classifier that reads with the window ---

N, SIDE, CLASSES = 3, 8, 4


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


def test_outputs_loss_and_gradient_of_a_classifier_equal_the_equations(rng):
    settings = DrawReaderSettings(steps=T, read=N, width=6)
    model = randomised(WindowClassifier(settings, SIDE, CLASSES), rng)
    images = rng.random((5, SIDE, SIDE), np.float32)
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
