"""Read and write the weights of an encoder as a ``.safetensors`` file.

The class of the file is ``Encoder``. Its JSON names the ``network``, and may have the
SHA-256 of the weights up to a layer, under ``digests``, and the MD5 of the file of
Keras that it was made from. Arrays are named ``block1_conv1/kernel``, by layer and
variable.
"""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from show_attend_tell.reference.tensor_file import (
    faults_described,
    open_tensors,
    write_tensors,
)
from show_attend_tell.runtime.errors import ModelFileError

CLASS = "Encoder"
FOLDER = Path(str(files("show_attend_tell"))) / "models" / "weights"  # of the package


class EncoderArrays(NamedTuple):
    """The content of a file of weights."""

    arrays: dict[str, np.ndarray]  # float32, by layer and variable
    digests: dict[str, str]  # SHA-256 of the weights up to a layer, by the layer


def read_encoder(
    path: str | Path, network: str, shapes: Mapping[str, tuple[int, ...]]
) -> EncoderArrays:
    """Read the weights of a network.

    Args:
        path: the file.
        network: name of the network.
        shapes: shape of each array by its name.

    Raises:
        ModelFileError: the file is absent, damaged or of another network.
    """
    path = Path(path)
    remedy = "choose a file of this network"
    if_absent = "name a file that exists"
    # A fault in a packaged file is none of the user's choice.
    if path.parent == FOLDER:
        remedy = "install the package again"
        if_absent = remedy
    with (
        faults_described(
            path,
            ModelFileError,
            f"weights of {network} without its classifier",
            remedy,
            if_absent,
        ),
        open_tensors(path, CLASS) as file,
    ):
        if file.about.get("network") != network:
            raise ValueError(
                f"its network must be {network}. Received: "
                f"{str(file.about.get('network'))[:80]}"
            )
        file.require_no_more(file.require_weights(shapes))
        arrays = {name: file.read_weight(name) for name in shapes}
        return EncoderArrays(arrays, _digests(file.about))


def _digests(about: Mapping[str, Any]) -> dict[str, str]:
    digests = about.get("digests", {})
    if not isinstance(digests, dict):
        raise ValueError("`digests` must be an object")
    return {str(layer): str(digest) for layer, digest in digests.items()}


def source_md5(path: str | Path) -> str | None:
    """Return the MD5 of the file that `convert` made a file of weights from, if any.

    Raises:
        ModelFileError: see :func:`read_encoder`.
    """
    path = Path(path)
    with (
        faults_described(
            path,
            ModelFileError,
            "weights of an encoder",
            remedy="choose another file",
            if_absent="name a file that exists",
        ),
        open_tensors(path, CLASS) as file,
    ):
        return file.about.get("md5")


def write_encoder(
    path: str | Path,
    network: str,
    arrays: Mapping[str, np.ndarray],
    digests: Mapping[str, str] | None = None,
    md5: str | None = None,
) -> None:
    """Write the weights of a network atomically.

    Args:
        path: the file.
        network: name of the network.
        arrays: float32 or float16, or int8 with their scales, by their names.
        digests: SHA-256 of the weights up to a layer.
        md5: of the file of Keras that the weights are from.

    Raises:
        OSError: the file cannot be written.
    """
    about: dict[str, Any] = {"class": CLASS, "network": network}
    if digests:
        about["digests"] = dict(digests)
    if md5 is not None:
        about["md5"] = md5
    write_tensors(path, about, arrays)


def digests_of(layers: Mapping[str, Iterable[np.ndarray]]) -> dict[str, str]:
    """Return the SHA-256 of all float32 weights up to each layer."""
    digest = hashlib.sha256()
    found = {}
    for name, arrays in layers.items():
        for values in arrays:
            # The same bytes as in `models.encoder.network.weights_digest`: an encoder
            # has one identity in both engines. The digest so far is that up to each
            # layer.
            digest.update(str(values.shape).encode())
            digest.update(np.ascontiguousarray(values, "<f4").data)
        found[name] = digest.hexdigest()
    return found
