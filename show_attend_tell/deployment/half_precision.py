"""A trained captioner in half the room: its weights stored as float16.

The file is read like any other; its weights become float32 again when it is loaded.
"""

import io
import os
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError

_WEIGHTS = "model.weights.h5"  # of Keras' format, in the .keras archive

# MD5 of the files that Keras downloads: `file_hash` in keras.applications.
KERAS_FILES = {
    "VGG16": "6d6bbae143d832006294945121d1f1fc",
    "VGG19": "253f8cb515780f3b799900260a226db6",
}


def save_half(source: str | Path, target: str | Path, imagenet: bool = False) -> int:
    """Write a model file again with float16 weights, all or nothing.

    Args:
        source: a ``.keras`` file.
        target: the new file.
        imagenet: record that Keras' own ImageNet weights serve the encoder too; for a
            model trained with a rounded or converted copy of them.

    Returns:
        The bytes of the new file.

    Raises:
        ModelFileError: the source is no captioner, a weight does not fit into float16,
            or ``imagenet`` is asked for an encoder whose download is not known.
    """
    model = load_captioner(source)
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
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / "full.keras"
        model.save(full)
        try:
            _halve(full, temporary, source)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return target.stat().st_size


def _halve(full: Path, target: Path, source: str | Path) -> None:
    with zipfile.ZipFile(full) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == _WEIGHTS:
                content = _half_weights(content, source)
            new.writestr(name, content, zipfile.ZIP_DEFLATED)


def _half_weights(content: bytes, source: str | Path) -> bytes:
    """Copy an HDF5 file; what is float32 in it becomes float16, packed by gzip."""
    buffer = io.BytesIO()
    with h5py.File(io.BytesIO(content)) as old, h5py.File(buffer, "w") as new:

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Group):
                made = new.require_group(name)
            else:
                made = new.create_dataset(name, **_packed(name, item[()], source))
            made.attrs.update(item.attrs)

        new.attrs.update(old.attrs)
        old.visititems(copy)
    return buffer.getvalue()


def _packed(name: str, values: np.ndarray, source: str | Path) -> dict:
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
        return {"data": values}  # the annotations' scale stays as it is
    return {"data": half, "compression": "gzip", "shuffle": True}
