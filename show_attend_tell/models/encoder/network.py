"""Encode photos as annotation vectors with a pretrained network.

The encoder is a convolutional network cut after one of its layers. Every cell of that
layer's map is one annotation vector a_i (Sec. 3.1.1, arXiv:1502.03044v3); the paper
uses VGG19's fourth convolution of block 5, after its ReLU and before pooling. No other
module knows the preprocessing of a network.
"""

import contextlib
import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import keras
import numpy as np
import PIL
from keras import ops
from PIL import Image

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.encoder_identity import BUILT_IN_WEIGHTS
from show_attend_tell.data.preprocessing import to_square
from show_attend_tell.models.encoder import scene_net
from show_attend_tell.models.encoder.weights import load_weights
from show_attend_tell.reference.encoder import PACKAGED_WEIGHTS
from show_attend_tell.reference.tensor_file import require_current
from show_attend_tell.runtime.backend import (
    Tensor,
    accelerators,
    backend_version,
    compiled_for_batches,
    is_out_of_memory,
)
from show_attend_tell.runtime.errors import (
    ModelFileError,
    SetupError,
    nearest,
    one_line,
    plural,
)
from show_attend_tell.runtime.machine import instruction_sets

_CHANNELS = 3
_BLOCK = 8  # photos encoded together by faster convolutions
# Compiling them takes 7 s of processor time; they save 75 ms a photo of VGG16.
PHOTOS_FOR_WINOGRAD = 200


class Encoder:
    """A network cut after a layer, with its weights and its preprocessing.

    Attributes:
        settings: the EncoderSettings, ``precision = "auto"`` replaced by its choice.
        grid: (rows, columns) of the feature map; L = rows * columns.
        width: D, the channels of the feature map.
        expected: the number of photos it was prepared for, see :meth:`expect`.
    """

    def __init__(self, settings: EncoderSettings):
        """Build the network and load its weights.

        Raises:
            ModelFileError: network, layer or weights are unknown or do not match.
        """
        if settings.precision == "auto":
            settings = dataclasses.replace(settings, precision=fastest_precision())
        self.settings = settings
        self._scale, self._preprocessing = _pixel_scaling(settings.network)
        policy = "mixed_bfloat16" if settings.precision == "bfloat16" else "float32"
        with contextlib.ExitStack() as stack:
            # Set for all layers created here; ``keras.applications`` accept none.
            stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
            keras.config.set_dtype_policy(policy)
            whole = _build_network(settings)
        if settings.weights == "none":
            _randomise(whole, settings.seed)
        output = _layer_output(whole, settings.network, settings.layer)
        self._network = keras.Model(whole.inputs[0], output)
        self.grid: tuple[int, int] = tuple(output.shape[1:3])
        self.width: int = output.shape[3]
        # Up to the cut: weights behind it have no effect on annotations.
        self._digest = weights_digest(self._network)
        self._encode = self._compiled(self.annotations, self._network)
        self.expected = 1
        self._encode_block: Callable | None = None  # of _BLOCK photos

    def expect(self, photos: int) -> None:
        """Prepare for encoding a number of photos.

        From :data:`PHOTOS_FOR_WINOGRAD` on, TensorFlow compiles faster convolutions for
        them on a processor, see :mod:`models.encoder.winograd`; features differ by
        rounding.
        """
        self.expected = max(photos, self.expected)
        if self._encode_block or photos < PHOTOS_FOR_WINOGRAD or accelerators():
            return
        if keras.backend.backend() != "tensorflow":
            return
        # It imports TensorFlow, which may be absent with JAX.
        from show_attend_tell.models.encoder.winograd import with_fast_convolutions

        # `encode` keeps the plain network beside it, for what is left of whole blocks.
        fast = with_fast_convolutions(self._network)
        if fast:
            block = functools.partial(self._annotations, fast)
            self._encode_block = self._compiled(block, fast)

    def _compiled(self, function: Callable, network: keras.Model) -> Callable:
        """Compile a function of squares (B, S, S, 3) that reads a network's weights."""
        side = self.settings.image_size
        return compiled_for_batches(function, network, (side, side, _CHANNELS), "uint8")

    def preprocess(self, image: Image.Image, mirror: bool = False) -> np.ndarray:
        """Resize an RGB photo to the square that the network sees, (S, S, 3) uint8.

        Args:
            image: the photo.
            mirror: whether to flip left and right.
        """
        side = self.settings.image_size
        resize = self.settings.resize
        square = to_square(image, side, resize)
        return square[:, ::-1] if mirror else square

    def encode(self, squares: np.ndarray, mirror: bool = False) -> np.ndarray:
        """Compute the annotation vectors of a batch.

        Args:
            squares: (B, S, S, 3) uint8, RGB, from :meth:`preprocess`.
            mirror: whether to encode the mirror images too.

        Returns:
            (B, L, D) float32; with `mirror` (B, 2, L, D), photo and mirror image.

        Raises:
            SetupError: the device has too little memory for the batch.
        """
        squares = np.asarray(squares, np.uint8)
        if mirror:
            views = (squares, squares[:, :, ::-1])
            return np.stack([self.encode(view) for view in views], axis=1)
        try:
            return self._encode_parts(squares)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            remedy = "free the device"
            if self.settings.precision != "bfloat16":
                remedy += ', or set encoder.precision = "bfloat16", which needs half'
            count = plural(len(squares), "photo")
            raise SetupError(
                f"the device must have the memory to encode {count} with "
                f"{self.settings.network}. Received: a full memory; {remedy}"
            ) from None

    def _encode_parts(self, squares: np.ndarray) -> np.ndarray:
        """Encode blocks by faster convolutions, if there are any, then the rest."""
        parts = []
        done = 0
        if self._encode_block:
            # Whole blocks alone: the faster convolutions are compiled for each batch
            # size.
            done = len(squares) - len(squares) % _BLOCK
            parts = [
                self._encode_block(squares[first : first + _BLOCK])
                for first in range(0, done, _BLOCK)
            ]
        # Without photos too, so that the result has the shape (0, L, D).
        if done < len(squares) or not parts:
            parts.append(self._encode(squares[done:]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def weights(self) -> list[keras.Variable]:
        """The variables of the network up to its layer."""
        return self._network.weights

    def annotations(self, squares: Tensor) -> Tensor:
        """Compute annotation vectors inside a graph; see :meth:`encode`."""
        return self._annotations(self._network, squares)

    def _annotations(self, network: keras.Model, squares: Tensor) -> Tensor:
        rows, columns = self.grid
        pixels = self._scale(ops.cast(squares, "float32"))
        a = network(pixels, training=False)  # (B, S, S, 3) -> (B, rows, cols, D)
        a = ops.reshape(a, (-1, rows * columns, self.width))  # -> (B, L, D)
        return ops.cast(a, "float32")

    def identity(self) -> dict:
        """Return everything that determines the features, as JSON values.

        ``encoder_identity.identity_difference`` compares two of them; it ignores
        ``weights``, ``precision``, ``seed`` and ``versions``: the digest covers them.
        """
        settings = self.settings
        backend, version = backend_version()
        return {
            "network": settings.network,
            "layer": settings.layer,
            "weights": Path(settings.weights).name,  # a name of weights stays
            "weights_digest": self._digest,
            "image_size": settings.image_size,
            "resize": settings.resize,
            "preprocessing": self._preprocessing,
            "grid": list(self.grid),
            "width": self.width,
            "precision": settings.precision,
            "seed": settings.seed,
            "versions": {
                "keras": keras.__version__,
                backend: version,
                "pillow": PIL.__version__,
            },
        }


def fastest_precision() -> Literal["bfloat16", "float32"]:
    """Return the precision in which this machine computes convolutions fastest.

    The instructions AVX512-BF16 alone are no reason for bfloat16: oneDNN's convolutions
    by them took from half to twice the time of its float32.
    """
    has_units = "amx_bf16" in (instruction_sets() or ())
    return "bfloat16" if has_units or accelerators() else "float32"


def _applications() -> dict[str, Callable]:
    """Return the networks of ``keras.applications`` by name."""
    return {
        name: member
        for name, member in vars(keras.applications).items()
        if callable(member)
    }


def _pixel_scaling(network: str) -> tuple[Callable, str]:
    """Return the function that scales a network's pixels, and its name."""
    if network == "SceneNet":
        return _unchanged, "none"  # its inputs are 0..255
    known = _applications()
    if network not in known:
        raise ModelFileError(
            "`network` must be SceneNet or a network of keras.applications. Received: "
            f"{network!r}{nearest(network, [*known, 'SceneNet'])}; correct the name"
        )
    # keras.applications has no table of preprocessing: it is in the network's module.
    module = sys.modules[known[network].__module__]
    return module.preprocess_input, module.__name__.rpartition(".")[2]


def _unchanged(pixels: Tensor) -> Tensor:
    return pixels


def _build_network(settings: EncoderSettings) -> keras.Model:
    """Build the whole network, without its classifier, with the requested weights."""
    ours = settings.network == "SceneNet"
    source = settings.weights
    known = ["scenes", "none"] if ours else ["imagenet", "none"]
    if settings.network == "VGG16":
        known.append("imagenet_8bit")
    is_file = source not in BUILT_IN_WEIGHTS
    if is_file:
        require_current(source, ModelFileError)
    if not (Path(source).is_file() if is_file else source in known):
        raise ModelFileError(
            f"`weights` of {settings.network} must be {', '.join(known)} or a file "
            f"that exists. Received: {source!r}; correct it"
        )
    if ours:
        network = scene_net.build_scene_net(settings.image_size)
    else:
        network = _build_application(settings)
    packaged = {"imagenet_8bit": PACKAGED_WEIGHTS, "scenes": scene_net.WEIGHTS}
    if is_file or source in packaged:
        load_weights(network, packaged.get(source, source), settings.network)
    return network


def _build_application(settings: EncoderSettings) -> keras.Model:
    side = settings.image_size
    weights = "imagenet" if settings.weights == "imagenet" else None
    try:
        return _applications()[settings.network](
            include_top=False, weights=weights, input_shape=(side, side, _CHANNELS)
        )
    except Exception as error:
        # Keras raises a bare Exception if a download fails.
        if type(error) is Exception or isinstance(error, OSError):
            raise ModelFileError(
                f"{settings.network}: the ImageNet weights could not be downloaded "
                f"({one_line(error)}); pass --encoder-weights FILE with the weights "
                "without the classifier (notop), or connect to the network"
            ) from None
        if isinstance(error, ValueError):
            raise ModelFileError(
                f"{settings.network} with `image_size` {side}: {one_line(error)}"
            ) from None
        raise


def _randomise(network: keras.Model, seed: int) -> None:
    """Set all kernels to Glorot's uniform initialisation, seeded independently."""
    rng = np.random.default_rng(seed)
    for variable in network.weights:
        shape = tuple(variable.shape)
        # keras.applications take no seed. Biases and normalisations, of one axis, keep
        # their initial values.
        if len(shape) > 1:
            window = int(np.prod(shape[:-2]))
            limit = np.sqrt(6 / (window * (shape[-2] + shape[-1])))
            variable.assign(rng.uniform(-limit, limit, shape).astype(np.float32))


def _layer_output(network: keras.Model, name: str, cut: str):
    """Return the output of the layer after which the network `name` is cut."""
    maps = [
        layer.name
        for layer in network.layers
        if isinstance(layer.output, keras.KerasTensor) and layer.output.ndim == 4
    ]
    if cut not in maps:
        raise ModelFileError(
            f"`layer` must be a layer of {name} with a 2-D map. Received: "
            f"{cut!r}{nearest(cut, maps)}; the last is {maps[-1]!r}"
        )
    return network.get_layer(cut).output


def weights_digest(network: keras.Model) -> str:
    """Return the SHA-256 of the values of all weights of a network."""
    digest = hashlib.sha256()
    for variable in network.weights:
        digest.update(str(tuple(variable.shape)).encode())
        # Little-endian, so that machines of any byte order compute one digest.
        digest.update(np.asarray(ops.convert_to_numpy(variable), "<f4").tobytes())
    return digest.hexdigest()
