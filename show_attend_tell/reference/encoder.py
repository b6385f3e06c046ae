"""VGG16 and VGG19 (arXiv:1409.1556) up to a layer, and the small SceneNet.

Every layer of VGG is a 3 x 3 convolution with ReLU, or a 2 x 2 maximum. A convolution
is three products for one photo, and for many Winograd's minimal filtering
F(4 x 4, 3 x 3), Lavin and Gray, arXiv:1509.09308: with a tile d of 6 x 6 inputs and a
kernel g, 4 x 4 outputs are::

    Y = A^T [(G g G^T) * (B^T d B)] A        * element by element, summed over channels

That takes a quarter of the multiplications; its kernels G g G^T are computed once.
:mod:`models.encoder.scene_net` describes SceneNet.
"""

import functools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.encoder_identity import BUILT_IN_WEIGHTS, Identity
from show_attend_tell.reference.encoder_file import FOLDER, digests_of, read_encoder
from show_attend_tell.reference.parallel import (
    ONE_WORKER,
    Workers,
    all_cores,
    each,
)
from show_attend_tell.runtime.errors import ModelFileError

# Kernel, bias and the like of each convolution, by its name.
Arrays: TypeAlias = dict[str, tuple[np.ndarray, ...]]

BLOCKS: dict[str, tuple[int, ...]] = {
    "VGG16": (2, 2, 3, 3, 3),
    "VGG19": (2, 2, 4, 4, 4),
}  # convolutions of each
WIDTHS = (64, 128, 256, 512, 512)
MEAN = np.array([103.939, 116.779, 123.68], np.float32)  # of ImageNet: B, G, R
PACKAGED_WEIGHTS = FOLDER / "vgg16_8bit.safetensors"
SCENE_NET_WEIGHTS = FOLDER / "scene_net.safetensors"
# Width and stride of each convolution of SceneNet; the scale of its four edges.
SCENE_NET = ((16, 2), (24, 1), (32, 2), (48, 1), (64, 2), (64, 1), (64, 1))
SCENE_NET_EDGE = 5.0  # about the value of the other channels at a shape
_EPSILON = 1e-3  # added to the variance in Keras' batch normalisation
# Winograd's kernels take 0.5 s of a core; they save 0.17 s a photo (AVX-512).
MANY_PHOTOS = 4
LEAST_CHANNELS = 64  # below which Winograd's transforms cost more than they save
# Of a map wider than this, few rows or rows of tiles are computed together, which stay
# in the cache. Narrower maps have larger kernels: each worker computes one part of the
# map, and so reads the kernels once.
_WIDE = 100
_ROWS = 4
_TILE_ROWS = 2

# The matrices of F(4 x 4, 3 x 3).
B_T = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
G = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)
A_T = np.array(
    [
        [1, 1, 1, 1, 1, 0],
        [0, 1, -1, 2, -2, 0],
        [0, 1, 1, 4, 4, 0],
        [0, 1, -1, 8, -8, 1],
    ]
)


def layers_until(network: str, last: str) -> list[str]:
    """Return the names of a network's layers up to one of them.

    Raises:
        NotImplementedError: only Keras has the network or the layer.
    """
    names = [
        f"block{b}_{part}"
        for b, count in enumerate(BLOCKS.get(network, ()), start=1)
        for part in [*(f"conv{k + 1}" for k in range(count)), "pool"]
    ]
    if network == "SceneNet":
        names = ["annotations"]
    if last not in names:
        raise NotImplementedError(
            f"the encoder {network} {last} needs Keras: NumPy has VGG16 and VGG19 with "
            "their layers, and SceneNet"
        )
    return names[: names.index(last) + 1]


def _width_of(layer: str) -> int:
    """Return the number of channels of a layer of VGG, such as ``block5_conv3``."""
    block = int(layer.removeprefix("block").partition("_")[0])
    return WIDTHS[block - 1]


def convolve(
    x: np.ndarray,
    kernel: np.ndarray,
    bias: np.ndarray,
    workers: Workers = ONE_WORKER,
) -> np.ndarray:
    """Return relu(kernel * x + bias) with zero padding, (H, W, C) -> (H, W, K)."""
    H, W, C = x.shape
    x = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    # Rows of the kernel: (3, 3, C, K) -> (3, 3 C, K)
    kernel = kernel.reshape(3, 3 * C, -1)
    y = np.empty((H, W, kernel.shape[-1]), np.float32)
    height = _ROWS if W > _WIDE else math.ceil(H / workers.count)

    def write_rows(top: int) -> None:
        part = y[top : top + height].reshape(-1, y.shape[-1])  # rows of the block
        block = x[top : top + height + 2]
        # Three neighbours of a row side by side: (h + 2, W, 3 C), as rows of 3 C
        three = np.concatenate([block[:, j : j + W] for j in range(3)], axis=2)
        three = three.reshape(-1, 3 * C)
        np.matmul(three[: len(part)], kernel[0], out=part)  # (h W, 3 C) @ (3 C, K)
        # The row below is W rows of `three` further on: the rows of the kernel read one
        # matrix at three offsets, so that the neighbours are copied 3 times and not 9.
        for i in (1, 2):
            part += three[i * W : i * W + len(part)] @ kernel[i]
        part += bias
        np.maximum(part, 0, out=part)

    workers.run(write_rows, range(0, H, height))
    return y


def winograd_kernel(kernel: np.ndarray) -> np.ndarray:
    """Return G g G^T, (3, 3, C, K) -> (6, 6, C, K)."""
    return _both_sides(G, kernel).reshape(6, 6, *kernel.shape[2:])


def convolve_by_winograd(
    x: np.ndarray,
    products: np.ndarray,
    bias: np.ndarray,
    workers: Workers = ONE_WORKER,
) -> np.ndarray:
    """Compute :func:`convolve` with the kernel of :func:`winograd_kernel`."""
    H, W, C = x.shape
    # Tiles of 4 x 4 outputs.
    down = math.ceil(H / 4)
    right = math.ceil(W / 4)
    rows = 4 * down
    columns = 4 * right
    # A frame of 1, and zeros up to whole tiles.
    x = np.pad(x, ((1, 1 + rows - H), (1, 1 + columns - W), (0, 0)))
    result = np.empty((rows, columns, products.shape[-1]), np.float32)
    height = _TILE_ROWS if W > _WIDE else math.ceil(down / workers.count)

    def write_tiles(top: int) -> None:
        part = result[top : top + 4 * height]
        block = x[top : top + len(part) + 2]
        down = len(part) // 4
        d = np.empty((6, 6, down, right, C), np.float32)
        # Element (i, j) of all tiles at once: every fourth pixel of the block.
        for i, j in np.ndindex(6, 6):
            d[i, j] = block[i : i + len(part) - 3 : 4, j : j + columns - 3 : 4]
        y = _both_sides(B_T, d).reshape(6, 6, -1, C)
        y = y @ products  # 36 of (tiles, C) (C, K)
        y = _both_sides(A_T, y).reshape(4, 4, down, right, -1)
        # (4, 4, down, right, K) -> (down, 4, right, 4, K) -> (4 down, 4 right, K)
        y = y.transpose(2, 0, 3, 1, 4).reshape(part.shape) + bias
        np.maximum(y, 0, out=part)

    workers.run(write_tiles, range(0, rows, 4 * height))
    return result[:H, :W]


def _both_sides(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return M x M^T of the first two axes, (b, b, ...) -> (a, a, N)."""
    a, b = matrix.shape
    matrix = matrix.astype(np.float32)
    # First along axis 0, (b, b N) -> (a, b N), then along axis 1 as a batch of `a`
    # products, (b, N) -> (a, N): no transpose is needed.
    y: np.ndarray = matrix @ (matrix @ x.reshape(b, -1)).reshape(a, b, -1)
    return y


def pool(x: np.ndarray) -> np.ndarray:
    """Return the maximum of 2 x 2 pixels, (H, W, C) -> (H / 2, W / 2, C)."""
    # Pooling drops the last row or column where a side is odd, as Keras does.
    H = x.shape[0] // 2 * 2
    W = x.shape[1] // 2 * 2
    rows = np.maximum(x[0:H:2], x[1:H:2])
    pooled: np.ndarray = np.maximum(rows[:, 0:W:2], rows[:, 1:W:2])
    return pooled


def scene_net(pixels: np.ndarray, weights: Arrays) -> np.ndarray:
    """Return SceneNet's map of a picture (S, S, 3) RGB, (S / 8, S / 8, 64)."""
    x = pixels.astype(np.float32) / np.float32(127.5) - 1
    for k, (_, stride) in enumerate(SCENE_NET, start=1):
        kernel, gamma, beta, mean, variance = weights[f"conv{k}"]
        # The normalisation is folded into the kernel and the bias.
        gamma = gamma / np.sqrt(variance + np.float32(_EPSILON))
        x = convolve(x, kernel * gamma, beta - gamma * mean)
        if stride == 2:  # Keras pads even sides below and right only
            x = x[1::2, 1::2]
    kernel, bias = weights["seen"]
    # A convolution of 1 x 1 is a product.
    x = np.maximum(x @ kernel[0, 0] + bias, 0)
    axis = np.linspace(-1, 1, len(x), dtype=np.float32)
    row, column = np.meshgrid(axis, axis, indexing="ij")
    # Rise towards top, bottom, left and right edge, in the order of Keras' `Edges`.
    near = np.maximum(np.stack([-row, row, -column, column], axis=2), 0)
    return np.concatenate([x, SCENE_NET_EDGE * near], axis=2)


class Weights(NamedTuple):
    """The weights of a network."""

    # Kernel (3, 3, C, K) and bias (K,) of each convolution, by its name; of SceneNet's,
    # kernel and the normalisation's four vectors.
    layers: Arrays
    digests: Mapping[str, str]  # SHA-256 of the weights up to a layer, where known


class Encoder:
    """VGG16 or VGG19 up to one of its layers, or SceneNet, with its preprocessing.

    Attributes:
        settings: the EncoderSettings.
        layers: names of its layers, in order.
        grid: (rows, columns) of the annotations; L is their product.
        width: D.
        weights: the arrays of each convolution, see :class:`Weights`.

    Args:
        settings: the EncoderSettings; ``precision`` is not used.
        weights: of every convolution; by default read by :func:`read_weights`.

    Raises:
        ModelFileError: the weights cannot be read, or SceneNet cannot divide the side.
        NotImplementedError: only Keras has the network or its weights.
    """

    def __init__(self, settings: EncoderSettings, weights: Weights | None = None):
        self.settings = settings
        self.layers = layers_until(settings.network, settings.layer)
        if weights is None:
            weights = read_weights(settings.weights, settings.network)
        self._digests = weights.digests
        if settings.network == "SceneNet":
            self.weights = weights.layers
            self.width = SCENE_NET[-1][0]
            halves = sum(stride == 2 for _, stride in SCENE_NET)
            # Keras pads odd maps in another way.
            if settings.image_size % 2**halves:
                raise ModelFileError(
                    f"`image_size` of SceneNet must be a multiple of {2**halves}. "
                    f"Received: {settings.image_size}; correct encoder.image_size"
                )
        else:
            # Pooling layers alone halve the side.
            convolutions = [name for name in self.layers if "conv" in name]
            self.weights = {name: weights.layers[name] for name in convolutions}
            self.width = _width_of(self.layers[-1])
            halves = len(self.layers) - len(convolutions)
        side = settings.image_size // 2**halves
        self.grid = (side, side)
        self._products: dict[str, np.ndarray] = {}  # Winograd's kernels

    def expect(self, photos: int) -> None:
        """Prepare for a number of photos: compute Winograd's kernels for many."""
        if photos >= MANY_PHOTOS and not self._products:
            kernels = {
                name: kernel
                for name, (kernel, *_) in self.weights.items()
                if min(kernel.shape[2:]) >= LEAST_CHANNELS
            }
            products = each(winograd_kernel, kernels.values())
            self._products = dict(zip(kernels, products, strict=True))

    def encode(self, squares: np.ndarray, mirror: bool = False) -> np.ndarray:
        """Compute the annotation vectors of photos.

        Args:
            squares: (B, S, S, 3) uint8, RGB.
            mirror: whether to encode the mirror images too.

        Returns:
            (B, L, D) float32; with `mirror` (B, 2, L, D), of the photo and its mirror
            image.
        """
        if mirror:
            views = (squares, squares[:, :, ::-1])
            return np.stack([self.encode(view) for view in views], axis=1)
        # Several photos are computed side by side, a single one in parts: either way
        # each thread has work of its own.
        if len(squares) > 1:
            return np.stack(each(self._annotations, squares))
        with all_cores() as workers:
            return np.stack([self._annotations(square, workers) for square in squares])

    def _annotations(
        self, square: np.ndarray, workers: Workers = ONE_WORKER
    ) -> np.ndarray:
        if self.settings.network == "SceneNet":
            x = scene_net(square, self.weights)
        else:
            # VGG's weights of ImageNet read B, G, R.
            x = self._vgg(square[..., ::-1].astype(np.float32) - MEAN, workers)
        return x.reshape(-1, self.width)

    def _vgg(self, x: np.ndarray, workers: Workers) -> np.ndarray:
        """Apply the layers to centred pixels (S, S, 3), B, G, R."""
        for name in self.layers:
            if name.endswith("pool"):
                x = pool(x)
                continue
            kernel, bias = self.weights[name]
            if name in self._products:
                x = convolve_by_winograd(x, self._products[name], bias, workers)
            else:
                x = convolve(x, kernel, bias, workers)
        return x

    def identity(self) -> Identity:
        """Return everything that determines the features, as JSON values."""
        settings = self.settings
        is_scene_net = settings.network == "SceneNet"
        last = next(reversed(self.weights))
        # A digest takes as long as a third of the convolutions.
        digest = self._digests.get(last) or digests_of(self.weights)[last]
        return {
            "network": settings.network,
            "layer": settings.layer,
            "weights": Path(settings.weights).name,
            "weights_digest": digest,
            "image_size": settings.image_size,
            "resize": settings.resize,
            "preprocessing": "none" if is_scene_net else settings.network.lower(),
            "grid": list(self.grid),
            "width": self.width,
            "precision": "float32",
            "seed": settings.seed,
            "versions": {"numpy": np.__version__},
        }


def read_weights(source: str | Path, network: str) -> Weights:
    """Read the weights of all convolutions.

    A kernel w of blocks 3 to 5 of the packaged VGG16 has 8 bits per weight and one
    scale per output channel o, with which the encoder computes w'_o = s_o q_o in
    float32::

        s_o = max |w_o| / 127,    q_o = clip(round(w_o / s_o), -127, 127)

    The kernels of blocks 1 and 2 and all biases are float16.
    ``python -m data_prep.quantise_encoder`` makes the file.

    Args:
        source: ``imagenet_8bit``, the packaged weights of VGG16, ``scenes``, those of
            SceneNet, or the path of a ``.safetensors`` file.
        network: ``VGG16``, ``VGG19`` or ``SceneNet``.

    Raises:
        ModelFileError: the file is absent, damaged or of another network.
        NotImplementedError: only Keras has the weights.
    """
    if (source, network) == ("imagenet_8bit", "VGG16"):
        source = PACKAGED_WEIGHTS
    elif (source, network) == ("scenes", "SceneNet"):
        source = SCENE_NET_WEIGHTS
    elif source in BUILT_IN_WEIGHTS:
        raise NotImplementedError(
            f"the encoder's weights {source!r} of {network} need Keras: NumPy reads "
            "those of the package, and files named by --encoder-weights"
        )
    return _read_file(source, network, _version_of(source))


def _version_of(file: str | Path) -> tuple[object, ...]:
    """Return what differs once a path names another file, or other content."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):  # reading the file gives the reason
        return ()
    place = os.path.abspath(file)  # the working folder may change
    return place, found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=4)  # models share an encoder
def _read_file(
    source: str | Path, network: str, version: tuple[object, ...]
) -> Weights:
    """Read a file; ``version`` is part of the key, as another may take its place."""
    places = layout(network)
    shapes = {name: shape for arrays in places.values() for name, shape in arrays}
    arrays, digests = read_encoder(source, network, shapes)
    layers = {
        layer: tuple(arrays[name] for name, _ in own) for layer, own in places.items()
    }
    return Weights(layers, digests)


def layout(network: str) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Return the name in a file and the shape of each array, by convolution."""
    if network == "SceneNet":
        convolutions = [(f"conv{k}", w) for k, (w, _) in enumerate(SCENE_NET, start=1)]
    else:
        names = layers_until(network, "block5_pool")
        convolutions = [(n, _width_of(n)) for n in names if "conv" in n]
    places: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    width = 3
    for name, wider in convolutions:
        vectors = [f"{name}/bias"]
        if network == "SceneNet":
            norm = name.replace("conv", "norm")
            parts = ("gamma", "beta", "moving_mean", "moving_variance")
            vectors = [f"{norm}/{part}" for part in parts]
        places[name] = [(f"{name}/kernel", (3, 3, width, wider))]
        places[name] += [(vector, (wider,)) for vector in vectors]
        width = wider
    if network == "SceneNet":
        seen = width - 4  # the other four channels are the edges
        places["seen"] = [("seen/kernel", (1, 1, width, seen)), ("seen/bias", (seen,))]
    return places
