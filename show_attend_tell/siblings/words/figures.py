"""Draw the attention of each character over the crop of its word."""

import numpy as np
from matplotlib.figure import Figure

from show_attend_tell.inference.visualization.attention_figure import attention_figure
from show_attend_tell.inference.visualization.pages import (
    photo_values,
    text_values,
)
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.siblings.words.data import HEIGHT
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.reading import Reading


def draw_reading(reading: Reading, dark: bool = False) -> Figure:
    """Draw the crop, then the crop under the attention of each character.

    The characters are the model's, before a lexicon.

    Args:
        reading: the word of a crop, by a model that attends to places.
        dark: whether to draw light text on a dark background.
    """
    attention = _attention_of(reading)
    return attention_figure(
        _seen_pixels(reading.crop, attention.shape[1:]),
        list(reading.characters),
        attention,
        probabilities=reading.probabilities,
        dark=dark,
    )


def describe_reading(reading: Reading) -> dict:
    """Return a word's values for JSON, see :func:`pages.photo_values`.

    The characters are the model's, before a lexicon; the text is the word.
    """
    attention = _attention_of(reading)
    grid = attention.shape[1:]
    text = text_values(
        reading.word,
        list(reading.characters),
        reading.log_prob,
        reading.probabilities,
        attention,
    )
    pixels = _seen_pixels(reading.crop, grid)
    return photo_values(reading.path.name, pixels, grid, [text])


def _attention_of(reading: Reading) -> np.ndarray:
    """Return the attention (T, rows, columns) of a model that attends to places."""
    assert reading.attention is not None  # see require_places
    return reading.attention


def _seen_pixels(crop: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return the columns of a crop that places cover, (H, W) -> (H, W', 3)."""
    return np.repeat(crop[:, : seen_width(grid), None], 3, axis=2)


def require_places(model: Reader, option: str = "attention") -> None:
    """Raise a CaptionError unless a reader attends to places of the crop.

    Args:
        model: the reader.
        option: the option that needs places.
    """
    if model.grid is None:
        raise CaptionError(
            f"`{option}` needs a model that attends to places. Received: decoder = "
            f"{model.settings.decoder!r}, attend = {model.settings.attend!r}; leave "
            "the option out"
        )


def seen_width(grid: tuple[int, int]) -> int:
    """Return how many columns of pixels the places of a grid cover.

    Pooling drops the last columns: 100 pixels become 12 places of 8 pixels.
    """
    rows, columns = grid
    return columns * (HEIGHT // rows)
