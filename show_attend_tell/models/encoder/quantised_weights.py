"""Store the convolutions of VGG16 in 8 bits per weight, and read the packaged file.

A kernel w of a quantised layer has one scale per output channel o,

    s_o = max |w_o| / 127,    q_o = clip(round(w_o / s_o), -127, 127),

and the encoder computes with w'_o = s_o q_o in float32. The kernels of blocks 1 and 2
and all biases are float16. ``python -m data_prep.quantise_encoder`` makes the file.
Model files of 8 bits store every matrix and kernel of a captioner in the same way.
"""

import hashlib
import io
from importlib.resources import files
from pathlib import Path

import keras
import numpy as np

from show_attend_tell.runtime.errors import EncoderError
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.untrusted import dequantise, quantise

NETWORK = "VGG16"
WEIGHTS = Path(str(files("show_attend_tell.models"))) / "weights" / "vgg16_8bit.npz"
# Of the packaged file, written by data_prep.quantise_encoder.
SHA256 = "fb1b9cce0d9a8d1d7071ebd41f03daa1697db1e12ee36630d6c20b423af82a2f"

_EXACT_BLOCKS = ("block1", "block2")  # 1.8 % of the weights, with the largest effect


def quantised_arrays(network: keras.Model) -> dict[str, np.ndarray]:
    """Return the arrays of the packaged file for a network of convolutions.

    Returns:
        ``<layer>/kernel`` (int8 or float16), ``<layer>/bias`` (float16) and, of
        quantised layers, ``<layer>/scale`` (float32).

    Raises:
        EncoderError: a value that is stored as float16 is not exact in it.
    """
    arrays = {}
    for layer in _convolutions(network):
        kernel, bias = layer.get_weights()
        if layer.name.startswith(_EXACT_BLOCKS):
            arrays[f"{layer.name}/kernel"] = _half(kernel, layer.name)
        else:
            q, scale = quantise(kernel)
            arrays |= {f"{layer.name}/kernel": q, f"{layer.name}/scale": scale}
        arrays[f"{layer.name}/bias"] = _half(bias, layer.name)
    return arrays


def assign_quantised(network: keras.Model, arrays: dict[str, np.ndarray]) -> None:
    """Set the weights of a network of convolutions to the packaged weights.

    Args:
        network: VGG16 without its classifier, or its first layers.
        arrays: from :func:`read_quantised`.
    """
    for layer in _convolutions(network):
        kernel = arrays[f"{layer.name}/kernel"]
        if kernel.dtype == np.int8:
            kernel = dequantise(kernel, arrays[f"{layer.name}/scale"])
        layer.kernel.assign(kernel)
        layer.bias.assign(arrays[f"{layer.name}/bias"])


def read_quantised(file: Path = WEIGHTS) -> dict[str, np.ndarray]:
    """Return the arrays of the packaged file, whose checksum is verified.

    Raises:
        EncoderError: the file is absent or damaged.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise EncoderError(
            f"{file}: the packaged encoder cannot be read ({error.strerror}); install "
            "the package again"
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise EncoderError(
            f"{file}: the packaged encoder must have the SHA-256 {SHA256[:12]}... "
            f"Received: {digest[:12]}...; install the package again"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def write_quantised(arrays: dict[str, np.ndarray], file: str | Path) -> str:
    """Write the packaged file atomically; return its SHA-256.

    The bytes depend on the arrays only.

    Args:
        arrays: from :func:`quantised_arrays`.
        file: the file to write.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # not compressed, to load fast; the wheel compresses it
    atomic_write(file, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def _convolutions(network: keras.Model) -> list[keras.layers.Conv2D]:
    return [x for x in network.layers if isinstance(x, keras.layers.Conv2D)]


def _half(values: np.ndarray, layer: str) -> np.ndarray:
    """Return values as float16, which must represent them exactly."""
    half = values.astype(np.float16)
    if not np.array_equal(half.astype(np.float32), values):
        worst = np.abs(half.astype(np.float32) - values).max()
        raise EncoderError(
            f"{layer}: weights outside the quantised blocks must be exact in float16. "
            f"Received: values that change by up to {worst:g}; round them first"
        )
    return half
