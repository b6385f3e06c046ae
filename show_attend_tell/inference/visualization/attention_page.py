"""Build one self-contained page of captions that shows the attention of each word.

Words that are read from crops have the same page, with characters in place of words.
The page loads nothing from a network: it contains photos, attention, style and script.
Its script repeats the drawing of :mod:`inference.visualization.attention_figure` with
the same constants.
"""

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Literal

import jinja2
import numpy as np
from PIL import Image

from show_attend_tell.data.region import SIGMA
from show_attend_tell.inference.visualization.attention_figure import (
    GLOW,
    UPSAMPLING,
    VEIL,
    attention_map,
)

JPEG_QUALITY = 82
FRAME_HEIGHT = 620  # pixels, the frame's height in Jupyter until its script sets it

_TEMPLATE = "attention_page.html"
_CONSTANTS = {"sigma": SIGMA, "veil": VEIL, "glow": GLOW}

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(str(files(__package__) / "templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False}

Unit = Literal["word", "character"]  # each has attention of its own


def stream_template(name: str, **values: object) -> Iterator[str]:
    """Yield a template piece by piece; an iterator among the values is read lazily."""
    yield from _ENVIRONMENT.get_template(name).generate(values)


def stream_page(
    results: Iterable, describe: Callable | None = None, unit: Unit = "word"
) -> Iterator[str]:
    """Yield the page of captions piece by piece; captions are read one at a time.

    Args:
        results: objects of type :class:`~show_attend_tell.inference.result.Caption`,
            or others with `describe`.
        describe: returns the :func:`photo_values` of a result that is no caption.
        unit: the page's name for a part of the text.
    """
    photos = map(describe or _photo_data, results)
    constants = {**_CONSTANTS, "unit": unit}
    return stream_template(_TEMPLATE, constants=constants, photos=photos)


def render_page(captions: Iterable) -> str:
    """Return the page of captions, see :func:`stream_page`."""
    return "".join(stream_page(captions))


def render_frame(caption) -> str:
    """Return the page of one caption inside an ``iframe``, for Jupyter.

    A frame isolates the page's style and script from the notebook.
    """
    pieces = stream_template(
        "frame.html",
        title=caption.sentence,
        page=render_page([caption]),
        height=FRAME_HEIGHT,
    )
    return "".join(pieces)


def _photo_data(caption) -> dict:
    """Return the values for JSON of one photo with all its captions."""
    beams = [_beam_data(text) for text in (caption, *caption.alternatives)]
    values = photo_values(
        caption.path.name, caption.view, caption.attention.shape[1:], beams
    )
    return values | {
        "confidence": caption.confidence,
        "doubtful": caption.is_doubtful,
        "region": None if caption.region is None else list(caption.region),
    }


def shown_gates(beta: np.ndarray) -> np.ndarray | None:
    """Return the gates (T,) to draw; None for a model without gates."""
    return None if (beta == 1).all() else beta


def _beam_data(caption) -> dict:
    """Return the values for JSON of a caption or alternative."""
    locations, beta = caption.locations, shown_gates(caption.beta)
    first = "".join(caption.words[:1])
    words = [first[:1].upper() + first[1:], *caption.words[1:]][: len(caption.words)]
    p = np.exp(caption.word_log_probs.astype(np.float64))
    values = text_values(
        caption.sentence, words, caption.log_prob, p, caption.attention
    )
    return values | {
        "score": round(caption.score, 2),
        "beta": None if beta is None else beta.astype(np.float64).round(3).tolist(),
        "locations": None if locations is None else locations.tolist(),
    }


def photo_values(
    name: str, pixels: np.ndarray, grid: Sequence[int], texts: Sequence[dict]
) -> dict:
    """Return the values for JSON of one photo.

    Args:
        name: name of the file.
        pixels: (H, W, 3) uint8, the part of the photo that attention covers.
        grid: rows and columns of the attention.
        texts: :func:`text_values` of the best text and of its alternatives.
    """
    height, width = pixels.shape[:2]
    return {
        "name": name,
        "photo": _data_uri(pixels),
        "size": [width, height],
        "grid": list(grid),
        "confidence": None,
        "doubtful": False,
        "region": None,
        "beams": list(texts),
    }


def text_values(
    text: str,
    parts: Sequence[str],
    log_prob: float,
    probabilities: np.ndarray,
    attention: np.ndarray,
) -> dict:
    """Return the values for JSON of a text; alpha in 256 shades.

    The attention of each part is scaled by its largest weight, as it is drawn.

    Args:
        text: the whole text.
        parts: T words or characters.
        log_prob: log p(text) in nats.
        probabilities: (T,) p of each part.
        attention: (T, rows, columns) weights alpha.
    """
    attention = attention.astype(np.float64)  # (T, rows, columns)
    peak = np.maximum(attention.max(axis=(1, 2), keepdims=True), 1e-12)
    shades = np.rint(attention / peak * 255).astype(np.uint8)
    return {
        "text": text,
        "logProb": round(log_prob, 2),
        "score": None,
        "words": list(parts),
        "p": np.asarray(probabilities, np.float64).round(3).tolist(),
        "beta": None,
        "peaks": [_peak_location(weights) for weights in attention],
        "alpha": base64.b64encode(shades.tobytes()).decode("ascii"),
        "locations": None,
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
