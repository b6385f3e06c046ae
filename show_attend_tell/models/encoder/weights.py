"""Load and save the weights of a network of Keras."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

from show_attend_tell.reference.encoder import BLOCKS
from show_attend_tell.reference.encoder_file import (
    digests_of,
    read_encoder,
    write_encoder,
)

# Networks whose layers have the same names in every process.
_NAMED = (*BLOCKS, "SceneNet")


def named_weights(network: keras.Model, name: str) -> dict[str, keras.Variable]:
    """Return the variables of a network by their names in a file.

    Args:
        network: the network, without its classifier.
        name: its name in ``EncoderSettings.network``.
    """
    named = {
        f"{layer.name}/{variable.name}": variable
        for layer in network.layers
        for variable in layer.weights
    }
    if name in _NAMED:
        return named
    # Keras numbers layers anew in each process: the order names them.
    return {
        f"{number:04d}/{variable.name}": variable
        for number, variable in enumerate(named.values())
    }


def load_weights(network: keras.Model, file: str | Path, name: str) -> None:
    """Set the weights of a network to those of a file.

    Raises:
        ModelFileError: the file is absent, damaged or of another network.
    """
    variables = named_weights(network, name)
    shapes = {key: tuple(variable.shape) for key, variable in variables.items()}
    arrays = read_encoder(file, name, shapes).arrays
    for key, variable in variables.items():
        variable.assign(arrays[key])


def save_weights(
    network: keras.Model, file: str | Path, name: str, md5: str | None = None
) -> None:
    """Write the weights of a network, by default for ``--encoder-weights``.

    Args:
        network: the network, without its classifier.
        file: a path that ends with ``.safetensors``.
        name: its name in ``EncoderSettings.network``.
        md5: of the file of Keras that the weights are from.

    Raises:
        OSError: the file cannot be written.
    """
    arrays: dict[str, np.ndarray] = {
        key: ops.convert_to_numpy(variable)
        for key, variable in named_weights(network, name).items()
    }
    # Known digests spare the NumPy engine from hashing the weights at every start.
    digests = {}
    if name in _NAMED:
        layers: dict[str, list[np.ndarray]] = {}
        for layer in network.layers:
            if layer.weights:
                layers[layer.name] = [ops.convert_to_numpy(w) for w in layer.weights]
        digests = digests_of(layers)
    write_encoder(file, name, arrays, digests, md5)
