"""The packaged encoder: 8 bits per weight, its digests."""

import dataclasses

import keras
import numpy as np
import pytest
from refusals import refused

from data_prep.quantise_encoder import main, quantised_arrays
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import PACKAGED_DIGEST
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.encoder.weights import save_weights
from show_attend_tell.reference import encoder_file
from show_attend_tell.reference.encoder import PACKAGED_WEIGHTS, read_weights
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.quantisation import dequantise, quantise

VGG = EncoderSettings("VGG16", "block5_conv3", "imagenet_8bit", 32, "squash")


def quantised_weight(w: float, largest: float) -> tuple[int, float]:
    """The oracle: one weight of a channel whose largest magnitude is given."""
    scale = np.float32(largest) / np.float32(127)
    q = min(max(round(float(np.float32(w) / scale)), -127), 127)
    return q, float(np.float32(q) * scale)


def test_every_weight_is_rounded_to_127_steps_of_its_channel(rng):
    kernel = rng.normal(0, [0.01, 1, 30], (3, 3, 4, 3)).astype(np.float32)
    q, scale = quantise(kernel)
    restored = dequantise(q, scale)
    assert (q.dtype, scale.shape) == (np.int8, (3,))
    for index, w in np.ndenumerate(kernel):
        largest = np.abs(kernel[..., index[-1]]).max()
        assert (q[index], restored[index]) == quantised_weight(w, largest)
    assert (np.abs(q).max((0, 1, 2)) == 127).all()
    assert (np.abs(restored - kernel) <= scale * 0.5001).all()


def test_the_packaged_file_is_small_and_has_the_recorded_digest():
    assert PACKAGED_WEIGHTS.stat().st_size <= 16e6
    identity = Encoder(VGG).identity()
    assert identity["weights"] == "imagenet_8bit"
    assert identity["weights_digest"] == PACKAGED_DIGEST


@pytest.mark.parametrize("damage", ["one bit", "cut", "absent"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage, monkeypatch):
    file, content = tmp_path / "vgg16.safetensors", PACKAGED_WEIGHTS.read_bytes()
    monkeypatch.setattr(encoder_file, "FOLDER", tmp_path)
    if damage == "one bit":
        changed = bytearray(content)
        changed[7_000_000] ^= 1
        file.write_bytes(changed)
    elif damage == "cut":
        file.write_bytes(content[:-1000])
    with refused(ModelFileError, "install the package again") as caught:
        read_weights(file, "VGG16")
    assert str(file) in str(caught.value)


def test_other_networks_and_weights_that_float16_would_round_are_refused():
    with refused(ModelFileError, "of VGG19 must be imagenet, none or a file"):
        Encoder(dataclasses.replace(VGG, network="VGG19", layer="block5_conv4"))
    network = keras.applications.VGG16(include_top=False, weights=None)
    with refused(ModelFileError, "block1_conv1: .*exact in float16"):
        quantised_arrays(network)


@pytest.mark.nightly
def test_a_written_file_is_the_same_each_time_and_restores_its_network(tmp_path, rng):
    network = keras.applications.VGG16(include_top=False, weights=None)
    halves = [
        rng.normal(0, 0.1, w.shape).astype(np.float16).astype(np.float32)
        for w in network.weights
    ]
    network.set_weights(halves)
    source, files = (
        tmp_path / "vgg.safetensors",
        [tmp_path / n for n in ("a.safetensors", "b.safetensors")],
    )
    save_weights(network, source, "VGG16")
    for file in files:
        main([str(source), "--out", str(file)], standalone_mode=False)
    assert files[0].read_bytes() == files[1].read_bytes()
    found = read_weights(files[0], "VGG16")
    restored = [w for pair in found.layers.values() for w in pair]
    digest = Encoder(dataclasses.replace(VGG, weights=str(files[0]))).identity()
    assert digest["weights_digest"] == found.digests["block5_conv3"]
    for before, after in zip(halves, restored, strict=True):
        exact = before.ndim == 1 or before.shape[-1] <= 128
        assert np.array_equal(before, after) == exact
        assert np.abs(before - after).max() <= np.abs(before).max() / 253
