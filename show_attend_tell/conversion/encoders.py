"""Convert the weights of encoders: files of version 0.3, and those of Keras."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from show_attend_tell.conversion.archives import open_archive, parse_array
from show_attend_tell.conversion.faults import conversion_of
from show_attend_tell.conversion.hdf5_arrays import Hdf5Arrays, open_hdf5
from show_attend_tell.reference.encoder import BLOCKS, layout, read_weights
from show_attend_tell.reference.encoder_file import digests_of, write_encoder
from show_attend_tell.reference.tensor_file import SCALE
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.hdf5_objects import hdf5_faults, require_own_data
from show_attend_tell.runtime.quantisation import dequantise
from show_attend_tell.runtime.untrusted import (
    as_value_error,
    read_member,
    read_text_bytes,
)

_NETWORKS = (*BLOCKS, "SceneNet")  # that need no Keras
_MAX_BYTES = 1_000_000_000  # of a file; the largest network of Keras has 500 MB


def convert_encoder(source: Path, target: Path, network: str | None = None) -> None:
    """Write weights of an encoder as a file of this version.

    Args:
        source: a ``.weights.h5`` file, a file that Keras downloads (``notop.h5``), or
            the packaged ``vgg16_8bit.npz``.
        target: path of the new file.
        network: the network; by default VGG16, VGG19 or SceneNet, by its layers.

    Raises:
        ModelFileError: the file is damaged or of another network; or there is no such
            network.
        OSError: the new file cannot be written.
    """
    with atomic_path(target) as temporary, conversion_of(source, temporary):
        if source.suffix == ".npz":
            _write(temporary, "VGG16", _packaged_arrays(source))
            return
        content = read_text_bytes(source, _MAX_BYTES)
        # The digest of the file that Keras downloads; a model that accepts those
        # weights names it, see exports.half_precision.
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        # The layers of other networks are known to Keras alone.
        if network is not None and network not in _NETWORKS:
            model = _model_of_keras(network)
            _convert_by_keras(source, temporary, model, network, md5)
            return
        with open_hdf5(content) as arrays:
            network = network or _network_of(arrays)
            _write(temporary, network, _arrays_of(arrays, network), md5)


def _write(
    path: Path, network: str, arrays: Mapping[str, np.ndarray], md5: str | None = None
) -> None:
    # The digests are of the float32 weights, whatever their stored type.
    layers = {
        layer: [
            dequantise(arrays[name], arrays.get(name + SCALE, np.ones((), np.float32)))
            for name, _ in own
        ]
        for layer, own in layout(network).items()
    }
    write_encoder(path, network, arrays, digests_of(layers), md5)
    read_weights(path, network)  # verifies it


def _packaged_arrays(source: Path) -> dict[str, np.ndarray]:
    """Return the arrays of ``vgg16_8bit.npz``."""
    arrays = {}
    with open_archive(source) as archive:
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            if name.endswith("/scale"):
                name = name.removesuffix("/scale") + "/kernel" + SCALE
            arrays[name] = parse_array(read_member(archive, member))
    # Every other .npz file is taken for this one.
    for own in layout("VGG16").values():
        for name, _ in own:
            if name not in arrays:
                raise ValueError(f"`{name}` is missing")
    return arrays


def _network_of(arrays: Hdf5Arrays) -> str:
    """Return the network whose layers a file has."""
    for network in _NETWORKS:
        try:
            paths = _paths(arrays, network)
        except ValueError:
            continue
        # By names, the layers of VGG16 are among those of VGG19; the number tells them
        # apart.
        if len(paths) == len(arrays.shapes()):
            return network
    raise ValueError(
        f"not the layers of {', '.join(_NETWORKS)} without its classifier; name the "
        "network with --network"
    )


def _arrays_of(arrays: Hdf5Arrays, network: str) -> dict[str, np.ndarray]:
    """Return the weights of a network by their names in the new file."""
    shapes = {name: shape for own in layout(network).values() for name, shape in own}
    paths = _paths(arrays, network)
    return {name: arrays.read(path, shapes[name]) for name, path in paths.items()}


def _paths(arrays: Hdf5Arrays, network: str) -> dict[str, str]:
    """Return the path of each weight of a network, by its name in the new file.

    Raises:
        ValueError: the file has other layers.
    """
    stored = arrays.shapes()
    paths: dict[str, str] = {}
    # Keras 3 numbers the layers of a class, and the weights of each; Keras 2 named
    # layers.
    for number, (layer, own) in enumerate(layout(network).items()):
        counts: dict[str, int] = {}
        for name, shape in own:
            kind = "batch_normalization" if name.startswith("norm") else "conv2d"
            index = counts.get(kind, 0)
            counts[kind] = index + 1
            suffix = f"_{number}" if number else ""
            paths[name] = f"layers/{kind}{suffix}/vars/{index}"
            if paths[name] not in stored and network in BLOCKS:
                paths[name] = _path_of_layer(stored, layer, shape)
            if stored.get(paths[name]) != shape:
                raise ValueError(f"`{paths[name]}` must be {shape}")
    return paths


def _path_of_layer(
    stored: Mapping[str, tuple[int, ...]], layer: str, shape: tuple[int, ...]
) -> str:
    """Return the path of a layer's array of a shape, as Keras 2 named it."""
    for path, other in stored.items():
        # By shape, as names of the arrays differ between files; kernel and bias have
        # different axes.
        if path.startswith(f"{layer}/") and other == shape:
            return path
    raise ValueError(f"`{layer}` is missing")


def _model_of_keras(network: str):
    """Return a network of ``keras.applications`` without its classifier."""
    from show_attend_tell.runtime.keras_startup import start_keras

    start_keras()
    import keras

    build = getattr(keras.applications, network, None)
    if not callable(build):
        raise ModelFileError(
            f"`network` must be a network of keras.applications. Received: {network!r}"
        )
    return build(include_top=False, weights=None)


def _convert_by_keras(source: Path, target: Path, model, network: str, md5: str):
    """Let Keras read the weights of one of its networks.

    All data are in the file itself, and of a size in proportion to the network.
    """
    from show_attend_tell.models.encoder.weights import save_weights

    if not source.name.endswith(".h5"):
        raise ValueError("the name must end with .h5")
    with hdf5_faults():
        file = h5py.File(source, "r", locking=False)
    with file:
        require_own_data(file, model.count_params())
    # What Keras and h5py raise for groups that Keras does not know.
    with as_value_error(AttributeError, KeyError, TypeError, RuntimeError):
        model.load_weights(source)
    save_weights(model, target, network, md5)
