"""Build one self-contained page of captions that shows the attention of each word.

The page loads nothing from a network: it contains photos, attention, style and script.
Its script repeats the drawing of :mod:`inference.visualization.attention_figure` with
the same constants.
"""

import base64
import io
from collections.abc import Iterable, Iterator

import numpy as np
from PIL import Image

from show_attend_tell.inference.sentence import capitalized
from show_attend_tell.inference.visualization import templating
from show_attend_tell.inference.visualization.attention_figure import (
    GLOW,
    SIGMA,
    UPSAMPLING,
    VEIL,
    attention_map,
)

JPEG_QUALITY = 82
FRAME_HEIGHT = 620  # pixels, the frame's height in Jupyter until its script sets it

_TEMPLATE = "attention_page.html"
_CONSTANTS = {"sigma": SIGMA, "veil": VEIL, "glow": GLOW}


def stream_page(captions: Iterable) -> Iterator[str]:
    """Yield the page of captions piece by piece; captions are read one at a time.

    Args:
        captions: objects of type :class:`~show_attend_tell.inference.result.Caption`.
    """
    photos = map(_photo_data, captions)
    return templating.stream(_TEMPLATE, constants=_CONSTANTS, photos=photos)


def render_page(captions: Iterable) -> str:
    """Return the page of captions, see :func:`stream_page`."""
    return "".join(stream_page(captions))


def render_frame(caption) -> str:
    """Return the page of one caption inside an ``iframe``, for Jupyter.

    A frame isolates the page's style and script from those of the notebook.
    """
    return templating.render(
        "frame.html",
        title=caption.sentence,
        page=render_page([caption]),
        height=FRAME_HEIGHT,
    )


def _photo_data(caption) -> dict:
    """Return the values for JSON of one photo with all its captions."""
    _, rows, columns = caption.attention.shape
    height, width = caption.view.shape[:2]
    return {
        "name": caption.path.name,
        "photo": _data_uri(caption.view),
        "size": [width, height],
        "grid": [rows, columns],
        "confidence": caption.confidence,
        "doubtful": caption.is_doubtful,
        "region": None if caption.region is None else list(caption.region),
        "beams": [_beam_data(one) for one in (caption, *caption.alternatives)],
    }


def _beam_data(caption) -> dict:
    """Return the values for JSON of a caption or alternative; alpha in 256 shades.

    The attention of each word is scaled by its largest weight, as it is drawn.
    """
    attention = caption.attention.astype(np.float64)  # (T, rows, columns)
    peak = np.maximum(attention.max(axis=(1, 2), keepdims=True), 1e-12)
    shades = np.rint(attention / peak * 255).astype(np.uint8)
    locations = caption.locations
    return {
        "text": caption.sentence,
        "logProb": round(caption.log_prob, 2),
        "score": round(caption.score, 2),
        "words": [*map(capitalized, caption.words[:1]), *caption.words[1:]],
        "p": np.exp(caption.word_log_probs.astype(np.float64)).round(3).tolist(),
        "beta": caption.beta.astype(np.float64).round(3).tolist(),
        "peaks": [_peak_location(weights) for weights in attention],
        "alpha": base64.b64encode(shades.tobytes()).decode("ascii"),
        "locations": None if locations is None else locations.tolist(),
    }


def _peak_location(weights: np.ndarray) -> int:
    """Return the location in which one word's drawn attention is largest.

    Args:
        weights: (rows, columns).

    Returns:
        An index in [0, rows * columns).
    """
    drawn = attention_map(weights)  # (rows, columns) -> (16 rows, 16 columns)
    row, column = np.unravel_index(drawn.argmax(), drawn.shape)
    return int(row // UPSAMPLING * weights.shape[1] + column // UPSAMPLING)


def _data_uri(pixels: np.ndarray) -> str:
    """Return pixels (H, W, 3) uint8 as the data URI of a JPEG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")
