"""Export a trained captioner with smaller weights: float16, or 8 bits per weight.

With 8 bits every matrix and kernel has one scale per output channel, see
:func:`runtime.untrusted.quantise`; the other weights are float16. The file is
loaded like any other; its weights become float32 again in memory.
"""

import dataclasses
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import keras
import numpy as np

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.keras_archive import add_member, save_keras
from show_attend_tell.runtime.untrusted import SCALE, quantise

# MD5 of the files that Keras downloads: `file_hash` in keras.applications.
KERAS_FILES = {
    "VGG16": "6d6bbae143d832006294945121d1f1fc",
    "VGG19": "253f8cb515780f3b799900260a226db6",
}


def save_half(
    source: str | Path,
    target: str | Path,
    imagenet: bool = False,
    eight_bit: bool = False,
    beam: int | None = None,
    load_model: Callable[[Path], keras.Model] = load_captioner,
) -> int:
    """Write a copy of a model file with smaller weights, atomically.

    Args:
        source: a ``.keras`` file.
        target: path of the new file.
        imagenet: whether to record that the encoder may use Keras' own ImageNet
            weights; for a model trained with a rounded or converted copy of them.
        eight_bit: whether matrices and kernels have 8 bits per weight.
        beam: beam width of the new file; by default the model's.
        load_model: loads the model; only a captioner has ``imagenet`` and ``beam``.

    Returns:
        The size of the new file in bytes.

    Raises:
        ModelFileError: the source cannot be loaded, a weight does not fit into
            float16, or ``imagenet`` is set for an encoder that :data:`KERAS_FILES` does
            not list.
    """
    model = load_model(Path(source))
    if beam is not None:
        model.decoding = dataclasses.replace(model.decoding, beam=beam)
    if imagenet:
        network = model.encoder_identity.get("network")
        if network not in KERAS_FILES:
            raise ModelFileError(
                f"{source}: its encoder must be one of {', '.join(KERAS_FILES)} to "
                f"accept ImageNet weights. Received: {network}; leave the option out"
            )
        model.encoder_identity = {
            **model.encoder_identity,
            "accepts": {"imagenet": KERAS_FILES[network]},
        }

    with tempfile.TemporaryDirectory() as folder, atomic_path(target) as temporary:
        full = Path(folder) / "full.keras"
        save_keras(model, full)
        with (
            zipfile.ZipFile(full) as old,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for name in old.namelist():
                content = old.read(name)
                if name == "model.weights.h5":
                    content = _smaller(content, source, eight_bit)
                add_member(new, name, content, zipfile.ZIP_DEFLATED)
    return Path(target).stat().st_size


def _smaller(content: bytes, source: str | Path, eight_bit: bool) -> bytes:
    """Return an HDF5 file whose arrays have fewer bits; see :func:`save_half`."""
    buffer = io.BytesIO()
    with h5py.File(io.BytesIO(content)) as old, h5py.File(buffer, "w") as new:

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if not isinstance(item, h5py.Dataset):
                return
            values = item[()]
            options = _half_dataset(name, values, source)
            if eight_bit and values.ndim > 1:
                options["data"], scale = quantise(values)
                new.create_dataset(name + SCALE, data=scale)
            new.create_dataset(name, **options)

        old.visititems(copy)
    return buffer.getvalue()


def _half_dataset(name: str, values: np.ndarray, source: str | Path) -> dict:
    """Return the arguments of ``create_dataset`` for an array in float16."""
    if values.dtype != np.float32:
        return {"data": values}
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        largest = float(np.abs(values).max())
        raise ModelFileError(
            f"{source}: weights must be finite and below 65504 to be stored as "
            f"float16. Received: {largest:g} in {name}; train with weight decay"
        )
    if values.ndim == 0:
        return {"data": values}  # the scale of the annotations stays float32
    return {"data": half, "compression": "gzip", "shuffle": True}
