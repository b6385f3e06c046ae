"""SceneNet's map, its edge channels and its packaged weights."""

import keras
import numpy as np
import pytest

from show_attend_tell.models.encoder import scene_net
from show_attend_tell.models.encoder.weights import load_weights


@pytest.fixture(scope="module")
def network():
    model = scene_net.build_scene_net()
    load_weights(model, scene_net.WEIGHTS, "SceneNet")
    return model


def test_nearness_to_the_edges_is_appended():
    maps = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32)
    output = keras.ops.convert_to_numpy(scene_net.Edges(2.0)(maps))
    np.testing.assert_array_equal(output[..., :4], maps)
    top, bottom, left, right = np.moveaxis(output[1, :, :, 4:], -1, 0)
    np.testing.assert_allclose(top[:, 2], [2, 0, 0])
    np.testing.assert_allclose(bottom[:, 0], [0, 0, 2])
    np.testing.assert_allclose(left[1], [2, 1, 0, 0, 0])
    np.testing.assert_allclose(right[2], [0, 0, 0, 1, 2])


def test_annotations_are_not_negative_and_fit_float16(network):
    pictures = np.random.default_rng(0).uniform(0, 255, (2, 112, 112, 3))
    annotations = network.predict(pictures.astype(np.float32), verbose=0)
    assert annotations.min() >= 0
    assert 0 < annotations.max() < 1000


def test_a_cell_sees_its_neighbourhood_only(network):
    picture = np.full((1, 112, 112, 3), 128, np.float32)
    changed = picture.copy()
    changed[:, :8, :8] = (255, 0, 0)
    one, two = (network.predict(x, verbose=0)[0] for x in (picture, changed))
    differs = np.abs(one - two).max(-1) > 1e-4
    assert differs[0, 0]
    assert not differs[6:].any()
    assert not differs[:, 6:].any()
