"""The encoder: preprocessing of each family, maps, weights, identity, errors."""

import dataclasses
import functools
from unittest import mock

import keras
import numpy as np
import pytest
from full_device import full_memory
from nightly import nightly
from PIL import Image
from refusals import refused

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.models.encoder import network as encoder_module
from show_attend_tell.models.encoder.network import Encoder, weights_digest
from show_attend_tell.models.encoder.weights import load_weights, save_weights
from show_attend_tell.runtime.errors import ModelFileError, SetupError

VGG = EncoderSettings("VGG16", "block2_conv2", "none", 32, "squash")


@pytest.fixture(scope="module")
def vgg() -> Encoder:
    return Encoder(VGG)


@pytest.fixture
def squares(rng) -> np.ndarray:
    return rng.integers(0, 256, (3, 32, 32, 3), np.uint8)


def replaced(**changes) -> EncoderSettings:
    return dataclasses.replace(VGG, **changes)


def kernels(encoder: Encoder) -> list[np.ndarray]:
    return encoder._network.get_weights()


def test_vgg_sees_blue_green_red_minus_the_mean(squares):
    encoder = Encoder(replaced(layer="block1_conv1"))
    kernel, bias = kernels(encoder)
    mean = np.array([103.939, 116.779, 123.68])  # of ImageNet, in B, G, R
    pixels = np.pad(squares[..., ::-1] - mean, ((0, 0), (1, 1), (1, 1), (0, 0)))
    row, column = 7, 30
    window = pixels[:, row : row + 3, column : column + 3]
    expected = np.maximum(np.tensordot(window, kernel, 3) + bias, 0)
    found = encoder.encode(squares)[:, row * 32 + column]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0.05)


@pytest.mark.parametrize(
    ("network", "layer", "side", "grid", "scale"),
    [
        ("VGG19", "block5_conv4", 48, (3, 3), None),
        pytest.param(
            *("ResNet101", "conv2_block3_out", 40, (10, 10), None),
            marks=pytest.mark.slow,
        ),
        ("SceneNet", "annotations", 40, (5, 5), lambda x: x),
        *nightly(
            ("MobileNetV2", "block_6_expand_relu", 40, (5, 5), lambda x: x / 127.5 - 1),
            ("EfficientNetV2B0", "block2b_add", 40, (10, 10), lambda x: x),
            ("MobileNetV3Small", "expanded_conv_project", 40, (10, 10), lambda x: x),
        ),
    ],
)
def test_networks_are_built_by_name_and_read_scaled_pixels(
    rng, network, layer, side, grid, scale
):
    encoder = Encoder(EncoderSettings(network, layer, "none", side))
    squares = rng.integers(0, 256, (2, side, side, 3), np.uint8)
    a = encoder.encode(squares)
    assert encoder.grid == grid
    assert a.shape == (2, grid[0] * grid[1], encoder.width)
    assert a.dtype == np.float32
    assert np.isfinite(a).all()
    assert a.std() > 0
    if scale:
        maps = encoder._network(scale(squares.astype(np.float32)), training=False)
        expected = np.asarray(maps).reshape(a.shape)
        np.testing.assert_allclose(a, expected, rtol=1e-5, atol=1e-5)


def test_locations_are_row_by_row(vgg, squares):
    a = vgg.encode(squares[:1])[0]
    changed = squares[:1].copy()
    changed[0, 20:22, 6:8] ^= 255
    cells = np.nonzero((vgg.encode(changed)[0] != a).any(-1))[0]
    rows, columns = vgg.grid
    assert rows == columns == 16
    assert abs(np.mean(cells // columns) - 10) <= 1
    assert abs(np.mean(cells % columns) - 3) <= 1


def test_photos_alone_in_a_batch_and_beside_mirror_images_are_encoded_equally(
    vgg, squares
):
    together = vgg.encode(squares)
    alone = np.concatenate([vgg.encode(squares[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-3)
    views = vgg.encode(squares, mirror=True)
    np.testing.assert_array_equal(views[:, 0], together)
    np.testing.assert_array_equal(views[:, 1], vgg.encode(squares[:, :, ::-1]))
    image = Image.fromarray(np.repeat(squares[0], 2, axis=0))
    square, mirrored = (vgg.preprocess(image, mirror) for mirror in (False, True))
    assert (square.shape, square.dtype) == ((32, 32, 3), np.uint8)
    np.testing.assert_array_equal(mirrored, square[:, ::-1])


def test_bfloat16_is_close_to_float32_and_leaves_the_policy_alone(vgg, squares):
    policy = keras.config.dtype_policy()
    rough = Encoder(replaced(precision="bfloat16"))
    with pytest.raises(ModelFileError):
        Encoder(replaced(image_size=8, precision="bfloat16"))
    assert keras.config.dtype_policy() == policy
    a = vgg.encode(squares).astype(np.float64).ravel()
    b = rough.encode(squares).astype(np.float64).ravel()
    assert a @ b / np.sqrt((a @ a) * (b @ b)) > 0.999
    assert (a != b).any()
    assert identity_difference(vgg.identity(), rough.identity()) is None


def test_the_identity_names_weights_layer_grid_and_preprocessing(vgg):
    identity = vgg.identity()
    assert identity["layer"] == "block2_conv2"
    assert identity["preprocessing"] == "vgg16"
    assert identity["grid"] == [16, 16]
    assert identity["width"] == 128
    assert Encoder(VGG).identity() == identity
    for changes, difference in (
        ({"layer": "block2_conv1"}, "layer block2_conv1 instead of"),
        ({"seed": 1}, "weights_digest "),
    ):
        other = Encoder(replaced(**changes)).identity()
        assert difference in identity_difference(identity, other)


@pytest.mark.nightly
def test_weights_of_a_file_of_the_network_are_loaded_whatever_its_path(
    tmp_path, vgg, squares
):
    whole = keras.applications.VGG16(
        include_top=False, weights=None, input_shape=(32, 32, 3)
    )
    count = len(kernels(vgg))
    whole.set_weights(kernels(vgg) + whole.get_weights()[count:])
    file = tmp_path / "vgg.safetensors"
    save_weights(whole, file, "VGG16")
    loaded = Encoder(replaced(weights=str(file)))
    np.testing.assert_array_equal(loaded.encode(squares), vgg.encode(squares))
    assert loaded.identity()["weights"] == "vgg.safetensors"
    assert identity_difference(loaded.identity(), vgg.identity()) is None
    inputs = keras.Input((4,))
    other = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    for write in (
        lambda path: save_weights(other, path, "VGG16"),
        lambda path: path.write_bytes(b"no tensors"),
    ):
        write(file)
        with refused(ModelFileError, "cannot be read as weights of VGG16"):
            Encoder(replaced(weights=str(file)))


@pytest.mark.nightly
def test_a_network_of_keras_with_numbered_layers_is_saved_and_loaded(tmp_path):
    file, settings = tmp_path / "net.safetensors", EncoderSettings("MobileNet")
    build = functools.partial(
        keras.applications.MobileNet,
        include_top=False,
        weights=None,
        input_shape=(32, 32, 3),
        alpha=0.25,
    )
    network, other = build(), build()
    save_weights(network, file, settings.network)
    load_weights(other, file, settings.network)
    assert weights_digest(other) == weights_digest(network)


def test_the_weights_of_version_0_3_name_convert(tmp_path):
    file = tmp_path / "vgg.weights.h5"
    file.touch()
    with refused(ModelFileError, f"run `show-attend-tell convert {file}`"):
        Encoder(replaced(weights=str(file)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "vgg20"}, "Received: 'vgg20', nearest: VGG19"),
        ({"network": "preprocess"}, "keras.applications"),
        ({"layer": "block5_conv4"}, "nearest: block5_conv3"),
        ({"layer": "annotations"}, "must be a layer of VGG16"),
        ({"weights": "absent.safetensors"}, "a file that exists"),
        ({"weights": "scenes"}, "`weights` of VGG16 must be imagenet"),
        ({"image_size": 16}, "VGG16 with `image_size` 16"),
        (
            {"network": "SceneNet", "layer": "annotations", "image_size": 33},
            "multiple of 8",
        ),
        ({"network": "SceneNet", "weights": "imagenet"}, "must be scenes"),
    ],
)
def test_an_invalid_encoder_is_refused_in_one_line(changes, message):
    with refused(ModelFileError, message):
        Encoder(replaced(**changes))


def test_a_failed_download_names_the_remedy(monkeypatch):
    fault = Exception("URL fetch failure on https://example.org: None -- no route")
    networks = {"VGG16": mock.Mock(side_effect=fault)}
    monkeypatch.setattr(encoder_module, "_applications", lambda: networks)
    monkeypatch.setattr(
        encoder_module, "_pixel_scaling", lambda network: (np.asarray, "none")
    )
    with pytest.raises(ModelFileError, match="no route.*--encoder-weights FILE"):
        Encoder(replaced(weights="imagenet"))


def test_encoding_writes_no_temporary_file(monkeypatch):
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    encoder = Encoder(EncoderSettings("SceneNet", "annotations", "none", 32))
    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert encoder.encode(np.zeros((1, 32, 32, 3), np.uint8)).shape[0] == 1
    full.assert_not_called()


@pytest.mark.parametrize(
    ("precision", "remedy"),
    [
        ("float32", 'free the device, or set encoder.precision = "bfloat16"'),
        ("bfloat16", "free the device$"),
    ],
)
def test_a_full_device_is_named_with_what_needs_less(squares, precision, remedy):
    encoder = Encoder(replaced(precision=precision))
    encoder._encode = full_memory
    with refused(SetupError, f"to encode 3 photos with VGG16. .*; {remedy}"):
        encoder.encode(squares)
