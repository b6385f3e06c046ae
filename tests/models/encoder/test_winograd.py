"""The faster convolutions equal the convolutions that they replace."""

import keras
import numpy as np
import oracle
import pytest
from nightly import nightly

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.models.encoder import network as encoder_module
from show_attend_tell.models.encoder import winograd
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.encoder.winograd import (
    WinogradConv2D,
    is_replaceable,
    with_fast_convolutions,
)

VGG = EncoderSettings("VGG16", "block3_conv2", "none", 48, "squash")


@pytest.fixture(autouse=True)
def few_channels_suffice(monkeypatch):
    monkeypatch.setattr(winograd, "LEAST_CHANNELS", 2)


def convolution(channels, filters, **options):
    """Return a convolution with random kernel and bias."""
    options = {"padding": "same", "activation": "relu", **options}
    layer = keras.layers.Conv2D(filters, 3, **options)
    layer.build((None, 8, 8, channels))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.standard_normal(w.shape) for w in layer.weights])
    return layer


@pytest.mark.parametrize(
    ("H", "W", "use_bias", "activation"),
    [
        (5, 7, True, "tanh"),
        (1, 2, False, "relu"),
        *nightly(
            *((H, W, True, "relu") for H, W in ((8, 12), (5, 7), (1, 2), (14, 14))),
            *((H, W, False, "relu") for H, W in ((8, 12), (5, 7), (14, 14))),
            *((H, W, True, "tanh") for H, W in ((8, 12), (1, 2), (14, 14))),
        ),
    ],
)
def test_outputs_are_those_of_the_convolution(rng, H, W, use_bias, activation):
    layer = convolution(3, 5, use_bias=use_bias, activation=activation)
    x = rng.standard_normal((2, H, W, 3)).astype("f4")
    expected = oracle.convolve(x, layer.kernel)
    expected += np.asarray(layer.bias, float) if use_bias else 0
    found = WinogradConv2D(layer)(x)
    expected = np.tanh(expected) if activation == "tanh" else np.maximum(expected, 0)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)
    np.testing.assert_allclose(found, layer(x), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (1, {}),
        (3, {"strides": 2}),
        (3, {"padding": "valid"}),
        (3, {"dilation_rate": 2}),
        (4, {"groups": 2}),
        (3, {"dtype": "mixed_bfloat16"}),
    ],
)
def test_other_convolutions_stay(channels, options):
    assert is_replaceable(convolution(3, 4))
    assert not is_replaceable(convolution(channels, 4, **options))
    assert not is_replaceable(keras.layers.MaxPooling2D())


@pytest.mark.nightly
def test_a_network_keeps_its_other_layers_and_its_outputs(rng):
    inputs = keras.Input((9, 9, 3))
    x = convolution(3, 4)(inputs)
    x = keras.layers.add([convolution(4, 4)(x), x])  # not a chain
    network = keras.Model(inputs, keras.layers.MaxPooling2D()(x))
    fast = with_fast_convolutions(network)
    kinds = [type(layer).__name__ for layer in fast.layers]
    assert kinds.count("WinogradConv2D") == 2
    assert "Conv2D" not in kinds
    pixels = rng.standard_normal((2, 9, 9, 3)).astype("f4")
    np.testing.assert_allclose(fast(pixels), network(pixels), 1e-4, 1e-3)


def test_a_network_without_such_convolutions_has_no_faster_one():
    network = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 1)])
    assert with_fast_convolutions(network) is None


@pytest.fixture(scope="module")
def encoders():
    """An encoder of few photos, and one of so many that its convolutions are faster."""
    few, many = Encoder(VGG), Encoder(VGG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "LEAST_CHANNELS", 2)
        patch.setattr(encoder_module, "PHOTOS_FOR_WINOGRAD", 20)
        few.expect(19)
        many.expect(20)
    return few, many


@pytest.mark.parametrize("photos", [1, *nightly(7, 16, 19)])
def test_an_encoder_of_many_photos_computes_the_same_features_of_each(
    rng, encoders, photos
):
    few, many = encoders
    assert few._encode_block is None
    assert many.identity() == few.identity()
    squares = rng.integers(0, 256, (photos, 48, 48, 3), np.uint8)
    found, expected = many.encode(squares), few.encode(squares)
    assert found.shape == (photos, 144, 256)
    assert found.dtype == np.float32
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * scale)
    if photos == 16:  # whole blocks
        np.testing.assert_array_equal(found[8:], many.encode(squares[8:]))
