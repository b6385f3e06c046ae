"""Draw the path of RAM's glimpses over a picture, and what the retina saw at each."""

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from show_attend_tell.siblings.glimpse_figure import Glimpses, draw_glimpses
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.ram.retina import see


def retina_views(
    images: np.ndarray, locations: np.ndarray, model: RecurrentAttention
) -> np.ndarray:
    """Return what the retina saw, its scales laid over each other.

    A patch of a smaller scale covers the middle of the next larger one, as sharp as it
    was seen.

    Args:
        images: (N, H, H) uint8.
        locations: (N, T, 2).
        model: the model that saw them.

    Returns:
        (N, T, S, S) in [0, 1], where S = 2^(k-1) g pixels.
    """
    s, (N, T, _) = model.settings, locations.shape
    whole = np.repeat(images, T, axis=0).astype(np.float32) / 255
    places = locations.reshape(N * T, 2).astype(np.float32)
    given = map(ops.convert_to_tensor, (whole, places))
    patches = np.asarray(
        ops.convert_to_numpy(see(*given, s.patch, s.scales, model.reach))
    )
    side = s.patch * 2 ** (s.scales - 1)
    views = np.zeros((N * T, side, side), np.float32)
    for scale in reversed(range(s.scales)):
        width = s.patch * 2**scale
        # (N T, g, g) -> (N T, width, width): every cell as 2^i x 2^i pixels
        patch = patches[:, scale].repeat(2**scale, axis=1).repeat(2**scale, axis=2)
        start = (side - width) // 2
        views[:, start : start + width, start : start + width] = patch
    return views.reshape(N, T, side, side)


def retina_boxes(places: np.ndarray, model: RecurrentAttention) -> np.ndarray:
    """Return left, top, right and bottom of the smallest patch of glimpses; (..., 4).

    Coordinates are pixels from the top left corner of the picture.

    Args:
        places: (..., 2).
        model: the model that looked there.
    """
    width = model.settings.patch
    centres = model.canvas / 2 + places * model.reach
    corners = np.floor(centres - width / 2 + 0.5)  # (..., 2)
    return np.concatenate([corners, corners + width], axis=-1)


def glimpse_figure(
    images: np.ndarray,
    locations: np.ndarray,
    model: RecurrentAttention,
    classes: np.ndarray,
    shown: int | None = None,
) -> Figure:
    """Draw a row for each picture: the path of glimpses, then each retina's view.

    A box is the smallest patch of the retina.

    Args:
        images: (N, H, H) uint8.
        locations: (N, T, 2).
        model: the model that saw them.
        classes: the class that the model chose, (N,).
        shown: how many glimpses are drawn; all by default.
    """
    glimpses = Glimpses(
        centres=model.canvas / 2 + locations * model.reach,
        boxes=retina_boxes(locations, model),
        views=retina_views(images, locations, model),
    )
    return draw_glimpses(images, glimpses, classes, shown)
