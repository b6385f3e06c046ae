"""The layers that are fine-tuned, the layer that is stored, and errors."""

import pytest

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.runtime.errors import ConfigError

VGG16, VGG19 = ("VGG16", "block5_conv3"), ("VGG19", "block5_conv4")


def settings(network, layer, first):
    return EncoderSettings(network=network, layer=layer, trainable_from=first)


@pytest.mark.parametrize(
    ("encoder", "first", "cached", "numbers"),
    [
        (VGG16, "", "block5_conv3", ""),
        (VGG16, "block5_conv1", "block4_pool", "123"),
        (VGG16, "block5_conv2", "block5_conv1", "23"),
        (VGG16, "block5_conv3", "block5_conv2", "3"),
        (VGG19, "block5_conv1", "block4_pool", "1234"),
        (VGG19, "block5_conv4", "block5_conv3", "4"),
        (("ResNet50", "conv4_block6_out"), "", "conv4_block6_out", ""),
    ],
)
def test_the_layer_before_the_fine_tuned_ones_is_stored(
    encoder, first, cached, numbers
):
    chosen = settings(*encoder, first)
    assert chosen.cached_layer == cached
    assert chosen.trainable_layers == tuple(f"block5_conv{k}" for k in numbers)


@pytest.mark.parametrize(
    ("encoder", "first"),
    [
        (VGG16, "block5_conv4"),
        (VGG16, "block4_conv1"),
        (("VGG16", "block5_conv2"), "block5_conv1"),
        (("VGG19", "block5_conv3"), "block5_conv1"),
        (("ResNet50", "conv4_block6_out"), "conv4_block6_out"),
    ],
)
def test_other_layers_are_refused_in_one_line(encoder, first):
    tables = {
        "name": "x",
        "data": {"name": "x", "source": "folder"},
        "encoder": dict(
            zip(("network", "layer", "trainable_from"), (*encoder, first), strict=True)
        ),
        **{"model": {}, "training": {}, "decoding": {}},
    }
    with pytest.raises(ConfigError, match="encoder: trainable_from must be") as error:
        experiment_from_dict(tables)
    assert f"Received: trainable_from = '{first}'" in str(error.value)
    assert "VGG16's block5_conv3 or VGG19's block5_conv4" in str(error.value)
    assert "\n" not in str(error.value)
