"""Draw generated pictures as a grid, as an animation, and step by step.

``outputs`` are arrays, from :class:`draw.bound.Sampler` or :meth:`Draw.draw`.
``scale`` is the side of a pixel in the result.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from keras import ops
from PIL import Image, ImageDraw

from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.digits.draw.filter_bank import make_window
from show_attend_tell.siblings.digits.draw.model import Draw

WINDOW = (255, 92, 57)  # colour of the windows, visible on black and on white
_GAP = (70, 70, 70)  # colour between pictures
_SECONDS = 3.0  # of an animation, before its last frame
_FRAMES_PER_SECOND = 15  # at most
_LAST = 2000  # milliseconds of the last frame


class WindowBox(NamedTuple):
    """What is drawn of a window, in pixels from the top left corner of the picture."""

    sides: np.ndarray  # left, top, right, bottom, through the centres of outer filters
    sigma: float  # of the filters


def grid_size(
    count: int, columns: int, height: int, width: int, scale: int
) -> tuple[int, int]:
    """Return width and height of the picture that :func:`tile` returns, in pixels."""
    rows = -(-count // columns)
    return columns * (width * scale + 1) + 1, rows * (height * scale + 1) + 1


def tile(
    pictures: np.ndarray,
    columns: int,
    scale: int,
    boxes: Sequence[WindowBox | None] | None = None,
) -> Image.Image:
    """Return pictures in rows of `columns`, with a gap of one pixel between them.

    Args:
        pictures: (N, H, W) in [0, 1].
        columns: pictures in a row.
        scale: see above.
        boxes: the window of each picture, None for a picture without a window.
    """
    N, H, W = pictures.shape
    high = H * scale + 1
    wide = W * scale + 1
    whole = Image.new("RGB", grid_size(N, columns, H, W, scale), _GAP)
    for k, picture in enumerate(pictures):
        pixels = np.uint8(np.round(255 * picture)).repeat(scale, 0).repeat(scale, 1)
        panel = Image.fromarray(pixels).convert("RGB")
        box = None if boxes is None else boxes[k]
        if box is not None:
            _draw_box(panel, box, scale)
        row, column = divmod(k, columns)
        whole.paste(panel, (column * wide + 1, row * high + 1))
    return whole


def _draw_box(image: Image.Image, box: WindowBox, scale: int) -> None:
    """Draw a rectangle whose line is as wide as the filters.

    The frame of a window larger than the picture is drawn on the border.
    """
    farthest = np.array([*image.size, *image.size]) - 1
    corners = np.clip(box.sides * scale, 0, farthest).tolist()
    width = int(np.clip(round(box.sigma * scale), 1, 2 * scale))
    ImageDraw.Draw(image).rectangle(corners, outline=WINDOW, width=width)


def window_boxes(
    parameters: np.ndarray, N: int, height: int, width: int, settings
) -> list[WindowBox]:
    """Return what to draw of windows.

    Args:
        parameters: (n, 5), from the model.
        N: number of filters on each axis.
        height: of the picture.
        width: of the picture.
        settings: the model's settings, for the limits of windows.
    """
    window = make_window(ops.convert_to_tensor(parameters), N, height, width, settings)
    x, y, stride, variance, _ = (ops.convert_to_numpy(field) for field in window)
    reach = (N - 1) / 2 * stride
    # Pixel 1 extends from 0 to 1, and its centre is 1/2.
    sides = np.stack([x - reach, y - reach, x + reach, y + reach], axis=1) - 0.5
    limit = 4 * max(height, width)  # Pillow's coordinates are integers of 32 bits
    pairs = zip(sides.clip(-limit, limit), np.sqrt(variance), strict=True)
    return [WindowBox(corners, float(sigma)) for corners, sigma in pairs]


def written_boxes(parameters: np.ndarray, model: Draw) -> list[WindowBox]:
    """Return what to draw of the windows that write; see :func:`window_boxes`."""
    return window_boxes(
        parameters, model.settings.write, model.height, model.width, model.settings
    )


def probabilities(canvas: np.ndarray, model: Draw) -> np.ndarray:
    """Return the pictures of canvases: (..., P) logits -> (..., H, W) in [0, 1]."""
    values = 0.5 * (1 + np.tanh(canvas / 2))  # the sigmoid, without overflow
    return values.reshape(*canvas.shape[:-1], model.height, model.width)


def encode_png(image: Image.Image) -> bytes:
    """Return the bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def sample_grid(outputs: dict, model: Draw, columns: int, scale: int) -> Image.Image:
    """Return the last canvases of samples in a grid."""
    return tile(probabilities(outputs["canvas"][:, -1], model), columns, scale)


def sample_frames(
    outputs: dict, model: Draw, columns: int, scale: int
) -> list[Image.Image]:
    """Return the canvases c_0 to c_T in grids, with the window that wrote each."""
    pictures = probabilities(outputs["canvas"], model)  # (N, T + 1, H, W)
    frames = []
    for t in range(pictures.shape[1]):
        boxes = None
        # c_0 is learned: no window has written it.
        if t and "write" in outputs:
            boxes = written_boxes(outputs["write"][:, t - 1], model)
        frames.append(tile(pictures[:, t], columns, scale, boxes))
    # The frame that stays longest shows the pictures without windows.
    return [*frames, tile(pictures[:, -1], columns, scale)]


def encode_gif(frames: list[Image.Image], each: int, last: int) -> bytes:
    """Return the bytes of an animation; ``each`` and ``last`` are milliseconds."""
    first, *others = frames
    options = {"save_all": True, "loop": 0, "append_images": others}
    buffer = io.BytesIO()
    first.save(buffer, "GIF", duration=[each] * len(others) + [last], **options)
    return buffer.getvalue()


def save_samples(path: Path, outputs: dict, model: Draw, columns: int, scale: int):
    """Write samples as a grid (``.png``) or as an animation (``.gif``)."""
    if path.suffix.lower() == ".gif":
        frames = sample_frames(outputs, model, columns, scale)
        each = int(1000 * max(_SECONDS / len(frames), 1 / _FRAMES_PER_SECOND))
        atomic_write(path, encode_gif(frames, each, _LAST))
    else:
        grid = sample_grid(outputs, model, columns, scale)
        atomic_write(path, encode_png(grid))


def canvas_strip(images: np.ndarray, outputs: dict, model: Draw, scale=2):
    """Return a row for each picture: the picture, then the canvas after each step.

    The panel of a step shows the window that wrote in this step. The pictures are
    (N, H, W) in [0, 1].
    """
    N, T = outputs["l_z"].shape
    pictures = probabilities(outputs["canvas"], model)  # (N, T + 1, H, W)
    panels = np.concatenate([images[:, None], pictures], axis=1)
    boxes = []
    for row in range(N):
        written = [None] * T
        if "write" in outputs:
            written = written_boxes(outputs["write"][row], model)
        # The picture itself and c_0 have no window.
        boxes += [None, None, *written]
    shape = (-1, model.height, model.width)
    return tile(panels.reshape(shape), T + 2, scale, boxes)


def nearest_figure(drawn: np.ndarray, training: np.ndarray, scale: int) -> Image.Image:
    """Return drawn pictures in a row, and below each the nearest training picture.

    ``drawn`` is (N, H, W) in [0, 1], ``training`` (M, H, W) uint8.
    """
    flat = training.reshape(len(training), -1).astype(np.float32) / 255
    queries = drawn.reshape(len(drawn), -1).astype(np.float32)
    # |a - b|^2 less |a|^2, which is the same for every b
    distances = (flat**2).sum(1) - 2 * queries @ flat.T  # (N, M)
    nearest = flat[distances.argmin(1)].reshape(drawn.shape)
    return tile(np.concatenate([drawn, nearest]), len(drawn), scale)
