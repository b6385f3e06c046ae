"""DRAW: equations, loss, gradients, noise, generation, and what it saves."""

import keras
import numpy as np
import pytest
import tiny_draw as tiny
from keras import ops
from oracle import assert_slopes
from tiny_captioner import MODES, gradient_function, run_in
from tiny_draw import H, T, W

from show_attend_tell.config.siblings import DrawSettings
from show_attend_tell.runtime import backend
from show_attend_tell.siblings.draw.model import Draw

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


def test_the_noise_differs_between_steps_rows_and_calls(rng):
    model = tiny.build(rng, latent=8)
    one, other = (ops.convert_to_numpy(model.sample_noise(2000)) for _ in range(2))
    assert one.shape == (2000, T, 8)
    flat = np.concatenate([one, other], axis=1).transpose(1, 0, 2).reshape(2 * T, -1)
    correlation = np.corrcoef(flat) - np.eye(2 * T)
    assert np.abs(correlation).max() < 5 / np.sqrt(flat.shape[1])
    assert abs(flat.mean()) < 0.02
    assert flat.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("mode", [MODES[0], *COMPILED])
def test_a_loop_equals_the_steps_written_out(rng, monkeypatch, mode):
    model = tiny.build(rng)
    images, noise = tiny.batch(rng, model)

    def loss(images, noise):
        outputs = model.draw(images, noise)
        return model.losses_of(outputs)["loss"], outputs

    found = []
    for most in (T, T - 1):
        monkeypatch.setattr(backend, "UNROLLED", most)
        tensors = map(ops.convert_to_tensor, (images, noise))
        found.append(gradient_function(loss, model, mode, key="path")(*tensors))
    (slopes, outputs), (looped_slopes, looped_outputs) = found
    for name, value in outputs.items():
        np.testing.assert_allclose(looped_outputs[name], value, rtol=1e-4, atol=1e-5)
    for name, value in slopes.items():
        np.testing.assert_allclose(
            looped_slopes[name], value, rtol=1e-3, atol=1e-5, err_msg=name
        )


def test_a_saved_model_draws_the_same(rng, tmp_path):
    for number, changes in enumerate(VARIANTS.values()):
        model = tiny.build(rng, **changes)
        path = tmp_path / f"{number}.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
        assert loaded.settings == model.settings
        images, noise = tiny.batch(rng, model)
        ours, theirs = (m.draw(images, noise) for m in (model, loaded))
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("steps", [1, 64])
def test_the_papers_model_has_its_number_of_weights(steps):
    settings = DrawSettings(steps=steps, read=2, write=5, latent=100, width=256)
    assert Draw(settings, 28, 28).count_params() == 960_763


def test_the_model_without_attention_has_its_number_of_weights():
    settings = DrawSettings(latent=100, attention=False)
    lstms = (2 * 784 + 256 + 256 + 1) * 1024 + (100 + 256 + 1) * 1024
    maps = 2 * 257 * 100 + 257 * 784
    assert Draw(settings, 28, 28).count_params() == lstms + maps + 784 + 2 * 256


def test_the_initial_model_reads_and_writes_the_whole_picture():
    model = Draw(tiny.settings(), H, W)
    outputs = model(np.zeros((1, H, W), "float32"))
    for name in ("read", "write"):
        np.testing.assert_array_equal(outputs[name], np.zeros((1, T, 5)))
    canvas = ops.convert_to_numpy(outputs["canvas"])
    np.testing.assert_array_equal(canvas[:, 0], np.full((1, H * W), -2.0))
