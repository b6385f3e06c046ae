"""VGG and SceneNet in NumPy equal Keras'; both forms of a convolution agree."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from keras import layers
from random_weights import normal

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.encoder_identity import PACKAGED_DIGEST
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.encoder.scene_net import WEIGHTS, build_scene_net
from show_attend_tell.models.encoder.weights import load_weights, save_weights
from show_attend_tell.reference import encoder, parallel
from show_attend_tell.reference.encoder_file import write_encoder
from show_attend_tell.runtime.errors import ModelFileError


@pytest.mark.parametrize("side", [(14, 14), (7, 10), (1, 5), (11, 104)])
def test_both_convolutions_and_the_maximum_are_those_of_keras(rng, side):
    x, kernel, bias = normal(rng, *side, 5), normal(rng, 3, 3, 5, 7), normal(rng, 7)
    expected = keras.ops.relu(keras.ops.conv(x[None], kernel, padding="same") + bias)[0]
    y = encoder.convolve(x, kernel, bias)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    products = encoder.winograd_kernel(kernel)
    fast = encoder.convolve_by_winograd(x, products, bias)
    np.testing.assert_allclose(fast, expected, rtol=1e-3, atol=1e-3)
    if min(side) > 1:
        smaller = keras.ops.max_pool(y[None], 2)[0]
        np.testing.assert_array_equal(encoder.pool(y), smaller)


@pytest.mark.parametrize("side", [(14, 14), (7, 10), (1, 5), (11, 104)])
def test_workers_write_each_row_of_a_convolution_once(rng, side):
    x, kernel, bias = normal(rng, *side, 5), normal(rng, 3, 3, 5, 7), normal(rng, 7)
    products = encoder.winograd_kernel(kernel)
    with ThreadPoolExecutor(3) as pool:
        workers = parallel.Workers(3, pool.map)
        for convolve, weights in (
            (encoder.convolve, kernel),
            (encoder.convolve_by_winograd, products),
        ):
            alone = convolve(x, weights, bias)
            together = convolve(x, weights, bias, workers)
            np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)


def test_a_side_that_scene_net_cannot_divide_is_refused():
    settings = EncoderSettings(
        network="SceneNet", layer="annotations", weights="scenes", image_size=100
    )
    with pytest.raises(ModelFileError, match="must be a multiple of 8. Received: 100"):
        encoder.Encoder(settings)


@pytest.fixture(scope="module")
def small():
    """A network of VGG16's layers up to block3_conv3, and its weights."""
    rng, weights, width = np.random.default_rng(4), {}, 3
    x = inputs = keras.Input((24, 24, 3))
    for name in encoder.layers_until("VGG16", "block3_conv3"):
        if name.endswith("pool"):
            x = layers.MaxPooling2D()(x)
            continue
        filters = encoder.WIDTHS[int(name[5]) - 1]
        convolution = layers.Conv2D(filters, 3, padding="same", activation="relu")
        x = convolution(x)
        kernel = normal(rng, 3, 3, width, filters) / np.sqrt(4.5 * width)
        weights[name] = kernel.astype(np.float32), 0.1 * normal(rng, filters)
        convolution.set_weights(weights[name])
        width = filters
    return keras.Model(inputs, x), encoder.Weights(weights, {})


def test_annotations_are_those_of_the_network_and_many_photos_change_rounding(small):
    network, weights = small
    photo = np.random.default_rng(1).integers(0, 256, (24, 24, 3), np.uint8)
    pixels = photo[None, ..., ::-1].astype(np.float32) - encoder.MEAN
    expected = np.asarray(network(pixels)).reshape(36, 256)
    settings = EncoderSettings("VGG16", "block3_conv3", image_size=24)
    vgg = encoder.Encoder(settings, weights)
    assert (vgg.grid, vgg.width) == ((6, 6), 256)
    for photos in (1, encoder.MANY_PHOTOS):
        vgg.expect(photos)
        found = vgg.encode(photo[None])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-3)
    found = vgg.encode(photo[None], mirror=True)
    np.testing.assert_array_equal(found[:, 1], vgg.encode(photo[None, :, ::-1]))


def test_a_float_file_of_weights_is_read_and_another_is_refused(small, tmp_path):
    file = tmp_path / "x.safetensors"
    save_weights(small[0], file, "VGG16")
    with pytest.raises(ModelFileError, match="read as weights of VGG16 .*is missing"):
        encoder.read_weights(file, "VGG16")
    with pytest.raises(ModelFileError, match="network must be VGG19. Received: VGG16"):
        encoder.read_weights(file, "VGG19")
    with pytest.raises(ModelFileError, match="no such weights of VGG19"):
        encoder.read_weights(tmp_path / "absent.safetensors", "VGG19")
    with pytest.raises(ModelFileError, match="run `show-attend-tell convert"):
        encoder.read_weights(tmp_path / "old.weights.h5", "VGG16")


@pytest.mark.parametrize("moves", [False, True], ids=["replaced", "other folder"])
def test_another_file_at_the_path_of_weights_is_read(tmp_path, monkeypatch, moves):
    packaged = encoder.read_weights("scenes", "SceneNet")
    shapes = [item for own in encoder.layout("SceneNet").values() for item in own]
    arrays = [array for own in packaged.layers.values() for array in own]
    for number in (1, 2):
        folder = tmp_path / str(number if moves else 0)
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        scaled = zip(shapes, arrays, strict=True)
        weights = {name: number * array for (name, _), array in scaled}
        write_encoder("own.safetensors", "SceneNet", weights)
        found = encoder.read_weights("own.safetensors", "SceneNet")
        assert found is encoder.read_weights("own.safetensors", "SceneNet")
        kernel, _ = found.layers["seen"]
        np.testing.assert_array_equal(kernel, weights["seen/kernel"])


def test_the_digest_in_a_file_is_that_of_its_weights(tmp_path):
    settings = EncoderSettings("VGG16", "block2_conv1", "imagenet_8bit")
    packaged = encoder.read_weights("imagenet_8bit", "VGG16")
    computed = encoder.Encoder(settings, encoder.Weights(packaged.layers, {}))
    assert encoder.Encoder(settings).identity() == computed.identity()
    assert packaged.digests["block5_conv3"] == PACKAGED_DIGEST


def test_scene_net_is_that_of_keras_and_is_known_as_the_same_encoder(rng):
    settings = EncoderSettings("SceneNet", "annotations", "scenes", 112, "squash")
    own, of_keras = encoder.Encoder(settings), Encoder(settings)
    informative = {"versions": None}
    assert own.identity() | informative == of_keras.identity() | informative
    network = build_scene_net()
    load_weights(network, WEIGHTS, "SceneNet")
    squares = rng.integers(0, 256, (2, 112, 112, 3), np.uint8)
    expected = np.asarray(network(squares.astype(np.float32)))
    for square, right in zip(squares, expected, strict=True):
        found = encoder.scene_net(square, own.weights)
        assert np.abs(found - right).max() < 1e-5 * right.max()
    right = of_keras.encode(squares)
    np.testing.assert_allclose(own.encode(squares), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weights", ["imagenet", "none"])
def test_weights_that_only_keras_has_name_what_to_install(weights):
    with pytest.raises(NotImplementedError, match="need Keras: .*--encoder-weights"):
        encoder.read_weights(weights, "SceneNet")


@pytest.mark.parametrize("network", ["ResNet50", "SceneNet", "VGG16"])
def test_other_networks_and_layers_name_what_to_install(network):
    with pytest.raises(NotImplementedError, match="needs Keras: NumPy has VGG16"):
        encoder.layers_until(network, "conv5_block3_out")
