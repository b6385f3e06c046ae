"""Export a model with smaller weights: float16, or 8 bits per weight.

With 8 bits every matrix and kernel has one scale per output channel, see
:func:`runtime.quantisation.quantise`; the other weights are float16. The file is
loaded like any other; its weights become float32 again in memory. A reranker in the
file stays; a calibration holds for the earlier weights, and is left out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.reference.model_file import (
    CONFIDENCE,
    PARTS,
    RERANKER,
    model_faults_described,
    read_captioner,
)
from show_attend_tell.reference.tensor_file import (
    SCALE,
    class_of,
    open_tensors,
    write_tensors,
)
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.keras_startup import start_keras
from show_attend_tell.runtime.quantisation import quantise

# MD5 of the files that Keras downloads: `file_hash` in keras.applications.
KERAS_FILES = {
    "VGG16": "6d6bbae143d832006294945121d1f1fc",
    "VGG19": "253f8cb515780f3b799900260a226db6",
}

_PARTS = tuple(f"{name}/" for name in PARTS)


def save_half(
    source: str | Path,
    target: str | Path,
    imagenet: bool = False,
    eight_bit: bool = False,
    beam: int | None = None,
    read_model: Callable[[Path], object] | None = None,
) -> int:
    """Write a copy of a model file with smaller weights, atomically.

    Args:
        source: a ``.safetensors`` file.
        target: path of the new file.
        imagenet: whether to record that the encoder may use Keras' own ImageNet
            weights; for a model trained with a rounded or converted copy of them.
        eight_bit: whether matrices and kernels have 8 bits per weight.
        beam: beam width of the new file, which then searches by a beam; by default
            the model's.
        read_model: reads the model, and so verifies the file; a captioner by default,
            which alone has ``imagenet`` and ``beam``.

    Returns:
        The size of the new file in bytes.

    Raises:
        ModelFileError: the source cannot be read, a weight does not fit into
            float16, or ``imagenet`` is set for an encoder that :data:`KERAS_FILES` does
            not list.
    """
    source = Path(source)
    # Verified first: what follows copies arrays without knowing the model.
    (read_model or _read_captioner)(source)
    with model_faults_described(source), open_tensors(source, class_of(source)) as file:
        about = {key: value for key, value in file.about.items() if key != CONFIDENCE}
        arrays: dict[str, np.ndarray] = {}
        for name in sorted(file.names):
            if name.startswith(f"{RERANKER}/"):
                # It reads the photo alone, and holds for the rounded weights too.
                arrays[name] = file.read(name)
            # Scales are read together with their weights, and written anew.
            elif not name.startswith(_PARTS) and not name.endswith(SCALE):
                arrays |= _smaller(name, file.read_weight(name), source, eight_bit)
    config = about["config"]
    if beam is not None:
        own = config.get("decoding", {})
        config["decoding"] = {**own, "method": "beam", "beam": beam}
    if imagenet:
        config["encoder_identity"] = _accepting_imagenet(config, source)
    write_tensors(target, about, arrays)
    return Path(target).stat().st_size


def _read_captioner(source: Path) -> object:
    """Read a captioner, by Keras if its decoder has no equations in NumPy."""
    try:
        return read_captioner(source)
    except NotImplementedError:
        start_keras()
        from show_attend_tell.models import saving

        return saving.read_captioner(source)


def _accepting_imagenet(config: dict[str, Any], source: Path) -> dict[str, Any]:
    """Return the encoder of a captioner that accepts the ImageNet weights of Keras."""
    identity: dict[str, Any] = config.get("encoder_identity", {})
    network = identity.get("network")
    if network not in KERAS_FILES:
        raise ModelFileError(
            f"{source}: its encoder must be one of {', '.join(KERAS_FILES)} to "
            f"accept ImageNet weights. Received: {network}; leave the option out"
        )
    return {**identity, "accepts": {"imagenet": KERAS_FILES[network]}}


def _smaller(
    name: str, values: np.ndarray, source: Path, eight_bit: bool
) -> dict[str, np.ndarray]:
    """Return what is stored for a float32 weight, by name."""
    # What becomes infinite is refused below in one line.
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        largest = float(np.abs(values).max())
        raise ModelFileError(
            f"{source}: weights must be finite and below 65504 to be stored as "
            f"float16. Received: {largest:g} in {name}; train with weight decay"
        )
    if values.ndim == 0:
        return {name: values}  # the scale of the annotations stays float32
    if eight_bit and values.ndim > 1:
        q, scale = quantise(values)
        return {name: q, name + SCALE: scale}
    return {name: half}
