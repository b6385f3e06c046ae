"""The fine-tuned convolutions: NumPy oracle, gradients, saving, several captions."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_equal_leaves
from keras import ops
from tiny_captioner import GRID, D, L, T, arrays

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.trainable import TrainableConvolutions

NAMES = ("block5_conv2", "block5_conv3")
ARGUMENTS = {"convolutions": NAMES}
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def convolve(x, layer):
    """Return the annotations of features (N, L, D) in float64, by sums."""
    rows, columns = GRID
    x = np.asarray(x, float).reshape(len(x), rows, columns, D)
    for kernel, bias in zip(layer.kernels, layer.biases, strict=True):
        w, b = np.asarray(kernel, float), np.asarray(bias, float)
        y = np.zeros_like(x)
        for i, j, u, v in np.ndindex(rows, columns, 3, 3):
            r, c = i + u - 1, j + v - 1
            if 0 <= r < rows and 0 <= c < columns:
                y[:, i, j] += x[:, r, c] @ w[u, v]
        x = np.maximum(y + b, 0)
    return x.reshape(len(x), L, D)


@pytest.fixture
def model(rng):
    model = tiny.build(rng, ARGUMENTS, dropout=0.0)
    model.set_annotation_scale(2.0)
    return model


def test_annotations_are_those_of_the_oracle(rng, model):
    x = rng.standard_normal((4, L, D)).astype(np.float32)
    expected = convolve(x, model.convolutions)
    assert (expected > 0).mean() > 0.2
    for mode in tiny.MODES:
        found = tiny.run_in(mode, model._prepare, x)
        np.testing.assert_allclose(found, expected / 2, **TOLERANCE)
    np.testing.assert_allclose(model.convolve(x), expected, **TOLERANCE)


def test_outputs_are_those_of_a_frozen_model_on_convolved_features(rng, model):
    features, (tokens, targets) = tiny.photos(rng), tiny.captions(rng)
    frozen = frozen_of(model)
    convolved = convolve(features, model.convolutions).astype(np.float32)
    found = tiny.outputs_of(model, features, tokens)
    for name, values in tiny.outputs_of(frozen, convolved, tokens).items():
        np.testing.assert_allclose(found[name], values, err_msg=name, **TOLERANCE)
    ours = tiny.loss_of(model, features, tokens, targets)
    assert ours == pytest.approx(
        tiny.loss_of(frozen, convolved, tokens, targets), rel=1e-4
    )
    how = DecodingSettings(beam=2, max_words=T, batch_size=3)
    ours, theirs = model.generate(features, how), frozen.generate(convolved, how)
    np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    np.testing.assert_allclose(ours.log_probs, theirs.log_probs, **TOLERANCE)


def frozen_of(model):
    """Return a captioner with the same weights and without convolutions."""
    frozen = Captioner.from_config({**model.get_config(), "convolutions": []})
    own = {w.path for w in model.convolutions.weights}
    kept = [w for w in model.weights if w.path not in own]
    for ours, theirs in zip(frozen.weights, kept, strict=True):
        ours.assign(theirs)
    return frozen


def test_the_gradient_is_the_loss_differences(rng, model):
    features, (tokens, targets) = tiny.photos(rng), tiny.captions(rng)
    for value in model.convolutions.biases:
        value.assign(np.full(D, 0.3))  # away from the kink of ReLU

    def loss():
        outputs = model({"annotations": features, "tokens": tokens}, training=True)
        return model.compute_loss(y=targets, y_pred=outputs)

    found = tiny.gradients(loss, model)
    for name, place in (
        ("block5_conv2_kernel", (0, 1, 2, 3)),
        ("block5_conv3_kernel", (1, 1, 4, 0)),
        ("block5_conv2_bias", (1,)),
    ):
        variable = next(w for w in model.weights if w.name == name)
        start, values = np.array(variable), []
        for step in (0.01, -0.01):
            changed = start.copy()
            changed[place] += step
            variable.assign(changed)
            values.append(float(loss()))
        variable.assign(start)
        slope = (values[0] - values[1]) / 0.02
        assert slope != 0
        assert found[name][place] == pytest.approx(slope, rel=0.02, abs=1e-4), name


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_a_batch_may_have_each_photo_once_for_several_captions(rng, attention):
    changes = {"attention": attention}
    model = tiny.build(rng, ARGUMENTS, dropout=0.0, **changes)
    features = tiny.photos(rng)
    tokens, _ = tiny.captions(rng, (4, 2, 3, 0, 1, 4))
    repeated = np.repeat(features, 2, axis=0)
    once = tiny.outputs_of(model, features, tokens)
    for name, values in tiny.outputs_of(model, repeated, tokens).items():
        np.testing.assert_allclose(once[name], values, err_msg=name, **TOLERANCE)
    x = {"annotations": features, "tokens": tokens}
    assert model(x, training=True)["logits"].shape[0] == 6


def test_a_channel_is_dropped_for_all_captions_of_a_photo(rng):
    model = tiny.build(rng, ARGUMENTS, dropout=0.0, channel_dropout=0.5)
    tokens = np.repeat(tiny.captions(rng, (4, 4, 4))[0], 2, axis=0)
    x = {"annotations": tiny.photos(rng), "tokens": tokens}
    logits = arrays(model(x, training=True))["logits"]
    np.testing.assert_allclose(logits[0::2], logits[1::2], **TOLERANCE)


def test_compiled_parts_convolve_in_bfloat16(rng, model):
    if tiny.BACKEND != "tensorflow":
        pytest.skip("training steps are compiled on TensorFlow only")
    import tensorflow as tf

    features, tokens = tiny.photos(rng), tiny.captions(rng)[0]
    names = []

    def compile_fn(function):
        names.append(function.__name__)
        return tf.function(function, autograph=False, jit_compile=True)

    model.compile_parts(compile_fn, "bfloat16")
    x = model._prepare(ops.convert_to_tensor(features), training=True)
    expected = convolve(features, model.convolutions) / 2
    assert 0 < np.abs(np.asarray(x) - expected).max() < 0.05 * np.abs(expected).max()
    assert names == ["_scale"]  # convolutions stay outside of XLA
    model({"annotations": features, "tokens": tokens}, training=True)


def test_a_saved_file_holds_the_convolutions(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert loaded.convolutions.names == NAMES
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    assert_equal_leaves(model.get_weights(), loaded.get_weights())


def test_initial_weights_depend_on_the_seed_alone():
    found = [
        [np.array(w) for w in TrainableConvolutions(NAMES, D, GRID, seed).weights]
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert np.abs(found[0][0] - found[2][0]).max() > 0.01
    assert np.abs(found[0][0] - found[0][1]).max() > 0.01
