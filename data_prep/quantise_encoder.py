"""Make the packaged encoder: VGG16's convolutions in 8 bits per weight.

    python -m data_prep.quantise_encoder FILE.safetensors

FILE, from `show-attend-tell convert`, holds ImageNet weights for
``keras.applications.VGG16(include_top=False)``, whose blocks 1 and 2 and biases are
exact in float16. The digests that are printed are
constants of :mod:`show_attend_tell.data.encoder_identity`;
:func:`show_attend_tell.reference.encoder.read_weights` reads the file.
"""

from pathlib import Path

import click
import keras
import numpy as np

from show_attend_tell.models.encoder.network import weights_digest
from show_attend_tell.models.encoder.weights import load_weights
from show_attend_tell.reference.encoder import PACKAGED_WEIGHTS, read_weights
from show_attend_tell.reference.encoder_file import digests_of, write_encoder
from show_attend_tell.reference.tensor_file import SCALE
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.quantisation import dequantise, quantise

_LAYER = "block5_conv3"  # the last convolution
_EXACT_BLOCKS = ("block1", "block2")  # 1.8 % of the weights, with the largest effect


def quantised_arrays(network: keras.Model) -> dict[str, np.ndarray]:
    """Return the arrays of the packaged file for a network of convolutions.

    Returns:
        ``<layer>/kernel`` (int8 or float16), ``<layer>/bias`` (float16) and, of
        quantised layers, ``<layer>/kernel.scale`` (float32).

    Raises:
        ModelFileError: a value that is stored as float16 is not exact in it.
    """
    arrays = {}
    for layer in network.layers:
        if not isinstance(layer, keras.layers.Conv2D):
            continue
        kernel, bias = layer.get_weights()
        if layer.name.startswith(_EXACT_BLOCKS):
            arrays[f"{layer.name}/kernel"] = _half(kernel, layer.name)
        else:
            q, scale = quantise(kernel)
            arrays[f"{layer.name}/kernel"] = q
            arrays[f"{layer.name}/kernel{SCALE}"] = scale
        arrays[f"{layer.name}/bias"] = _half(bias, layer.name)
    return arrays


def _layers(arrays: dict[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Return the float32 weights that arrays stand for, by layer."""
    layers: dict[str, list[np.ndarray]] = {}
    for name, values in arrays.items():
        if not name.endswith(SCALE):
            scale = arrays.get(name + SCALE, np.ones((), np.float32))
            weight = dequantise(values, scale)
            layers.setdefault(name.partition("/")[0], []).append(weight)
    return layers


def _half(values: np.ndarray, layer: str) -> np.ndarray:
    """Return values as float16, which must represent them exactly."""
    half = values.astype(np.float16)
    if not np.array_equal(half.astype(np.float32), values):
        worst = np.abs(half.astype(np.float32) - values).max()
        raise ModelFileError(
            f"{layer}: weights outside the quantised blocks must be exact in float16. "
            f"Received: values that change by up to {worst:g}; round them first"
        )
    return half


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=PACKAGED_WEIGHTS,
    help="File to write.",
)
def main(source: Path, out: Path) -> None:
    """Quantise the weights in SOURCE; print digests of the result."""
    whole = keras.applications.VGG16(include_top=False, weights=None)
    load_weights(whole, source, "VGG16")
    network = keras.Model(whole.inputs[0], whole.get_layer(_LAYER).output)
    original = weights_digest(network)
    arrays = quantised_arrays(network)
    write_encoder(out, "VGG16", arrays, digests_of(_layers(arrays)))
    # Read back, so that the digest below is of what readers of the file get.
    for name, values in read_weights(out, "VGG16").layers.items():
        network.get_layer(name).set_weights(values)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    click.echo(f"weights_digest of {source.name}: {original}")
    click.echo(f"weights_digest of {out.name}: {weights_digest(network)}")


if __name__ == "__main__":
    main()
