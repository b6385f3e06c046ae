"""Build one self-contained page of captions that shows the attention of each word.

Words that are read from crops have the same page, with characters in place of words.
The page loads nothing from a network: it contains photos, attention, style and script.
Its script repeats the drawing of :mod:`inference.visualization.attention_figure` with
the same constants.
"""

import base64
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import jinja2
import numpy as np
from PIL import Image

from show_attend_tell.data.region import SIGMA
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.visualization.attention_figure import (
    GLOW,
    UPSAMPLING,
    VEIL,
    attention_map,
    lift_of,
    region_note,
    shown_gates,
)
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.files import atomic_path

if TYPE_CHECKING:  # its module imports this one
    from show_attend_tell.inference.result import Caption

Result = TypeVar("Result")
Values: TypeAlias = dict[str, Any]  # for JSON

JPEG_QUALITY = 82
FRAME_HEIGHT = 620  # pixels, the frame's height in Jupyter until its script sets it
_TITLE = re.compile(rb"<title>Attention of each (word|character)</title>")
_HEAD = 1024  # bytes of a page that contain its title

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(str(files(__package__) / "templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
# JSON has no NaN: an error here, and no page that the browser cannot parse.
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False}


def stream_template(name: str, **values: object) -> Iterator[str]:
    """Yield a template piece by piece; an iterator among the values is read lazily."""
    return _ENVIRONMENT.get_template(name).generate(values)


def require_page(path: Path, title: re.Pattern[bytes], noun: str) -> None:
    """Raise unless a file is absent, empty or a page with a title of this package.

    Args:
        path: path of the page to write.
        title: matches the title of its kind, which stands in its first bytes.
        noun: what the page is of, in an error.

    Raises:
        CaptionError: it is another file, or a folder.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return
    received = "a folder"
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not head or title.search(head):
            return
        received = "another file"
    raise CaptionError(
        f"{path}: must be absent, or a page of {noun}. Received: {received}; name "
        "another file, or move this one"
    )


def render_frame(caption: "Caption") -> str:
    """Return the page of one caption inside an ``iframe``, for Jupyter.

    A frame isolates the page's style and script from the notebook.
    """
    page = "".join(stream_page([describe_caption(caption)]))
    frame = stream_template(
        "frame.html", title=caption.sentence, page=page, height=FRAME_HEIGHT
    )
    return "".join(frame)


def stream_page(
    photos: Iterable[Values], unit: Literal["word", "character"] = "word"
) -> Iterator[str]:
    """Yield the page of attention piece by piece; photos are read one at a time.

    Args:
        photos: from :func:`describe_caption` or :func:`photo_values`.
        unit: the part of a text whose attention is drawn.
    """
    constants = {"sigma": SIGMA, "veil": VEIL, "glow": GLOW, "unit": unit}
    return stream_template("attention_page.html", constants=constants, photos=photos)


def describe_caption(caption: "Caption") -> Values:
    """Return the :func:`photo_values` of a caption and its alternatives."""
    texts = [_describe_text(text) for text in (caption, *caption.alternatives)]
    grid = caption.attention.shape[1:]
    return photo_values(caption.path.name, caption.view, grid, texts) | {
        "confidence": caption.confidence_figures or None,
        "confidenceWord": caption.confidence_word,
        "region": None if caption.region is None else list(caption.region),
        # A region has no tags.
        "note": region_note(caption.region_words, len(caption.words))
        or tags_note(caption.tag_names),
    }


def tags_note(names: Sequence[str]) -> str:
    """Return the line of a photo's tags, empty without any."""
    return f"Tags: {', '.join(names)}" if names else ""


def _describe_text(caption: "Caption") -> Values:
    """Return the :func:`text_values` of a caption or an alternative."""
    locations = caption.locations
    beta = shown_gates(caption.beta)
    words = list(caption.words)
    if words:
        # As in the sentence; `capitalize` would change the other letters.
        words[0] = words[0][:1].upper() + words[0][1:]
    p = np.exp(caption.word_log_probs.astype(np.float64))
    return text_values(
        caption.sentence, words, caption.log_prob, p, caption.attention
    ) | {
        "score": round(caption.score, 2),
        "beta": None if beta is None else beta.astype(np.float64).round(3).tolist(),
        "locations": None if locations is None else locations.tolist(),
    }


def photo_values(
    name: str, pixels: np.ndarray, grid: Sequence[int], texts: Sequence[Values]
) -> Values:
    """Return the values for JSON of one photo.

    Args:
        name: name of the file.
        pixels: (H, W, 3) uint8, the part of the photo that attention covers.
        grid: rows and columns of the attention.
        texts: :func:`text_values` of the best text and of its alternatives.
    """
    jpeg = io.BytesIO()
    Image.fromarray(pixels).save(jpeg, "JPEG", quality=JPEG_QUALITY, optimize=True)
    content = base64.b64encode(jpeg.getvalue()).decode("ascii")
    height, width = pixels.shape[:2]
    return {
        "name": name,
        "photo": f"data:image/jpeg;base64,{content}",
        "lift": round(lift_of(pixels), 2),
        "size": [width, height],
        "grid": list(grid),
        "confidence": None,
        "confidenceWord": None,
        "region": None,
        "note": "",
        "beams": list(texts),
    }


def text_values(
    text: str,
    parts: Sequence[str],
    log_prob: float,
    probabilities: np.ndarray,
    attention: np.ndarray,
) -> Values:
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
    # Weights that are all 0 stay 0.
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
        # One byte a weight, (T, rows, columns) in row-major order; decimals would be
        # many times longer.
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


def write_attention_page(
    results: Iterable[Result | Failure],
    path: str | Path,
    describe: Callable[[Any], Values] = describe_caption,
    unit: Literal["word", "character"] = "word",
) -> Iterator[Result | Failure]:
    """Write the page of attention atomically while results are generated.

    Args:
        results: captions or words, and failures, which the page omits.
        path: path of the page; its folder is made.
        describe: returns the :func:`photo_values` of a result.
        unit: see :func:`stream_page`.

    Yields:
        Each result; the file exists once all have been taken.

    Raises:
        CaptionError: see :func:`require_page`; no result has been taken yet.
        OSError: the file cannot be written.
    """
    require_page(Path(path), _TITLE, "attention")
    # The template takes results one at a time. What it has taken is yielded before it
    # takes more, so that a caption is printed as soon as it is on the page.
    taken: list[Result | Failure] = []

    def photos() -> Iterator[Values]:
        for result in results:
            taken.append(result)
            if not isinstance(result, Failure):
                yield describe(result)

    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for piece in stream_page(photos(), unit):
            file.write(piece)
            yield from taken
            taken.clear()
