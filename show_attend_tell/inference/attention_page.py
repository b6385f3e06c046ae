"""One self-contained page of captions: move along the words, see where it looks.

The page asks nothing of any network: photo, attention, style and script lie in it. Its
script repeats the drawing of :mod:`inference.attention_figure` with the same constants.
"""

import base64
import html
import importlib.resources
import io
import json
from collections.abc import Iterable

import numpy as np
from PIL import Image

from show_attend_tell.inference import attention_figure as visualize

QUALITY = 82  # of the JPEG in the page
FRAME = 620  # pixels, the frame's height in Jupyter until the page tells its own


def render(captions: Iterable) -> str:
    """Return the page of captions, of type :class:`.caption_result.Caption`."""
    head, tail = template()
    return head + "".join(map(element, captions)) + tail


def frame(caption) -> str:
    """Return the page of one caption inside a frame, as Jupyter shows it.

    A frame keeps the page's style and script apart from those of the notebook.
    """
    page = html.escape(render([caption]), quote=True)
    return (
        f'<iframe title="{html.escape(caption.text)}" srcdoc="{page}" '
        f'style="width:100%;height:{FRAME}px;border:0"></iframe>'
    )


def template() -> tuple[str, str]:
    """Return what stands before and behind the elements of a page."""
    folder = importlib.resources.files(__package__) / "templates"
    parts = {
        name: (folder / f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    constants = {
        "sigma": visualize.SIGMA,
        "veil": visualize.VEIL,
        "glow": visualize.GLOW,
    }
    page = parts["html"].replace("{style}", parts["css"])
    page = page.replace("{script}", parts["js"])
    head, tail = page.replace("{constants}", _json(constants)).split("{data}")
    return head, tail


def _json(value: object) -> str:
    """Return JSON that may stand inside of a ``script`` element, whatever it says."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def element(caption) -> str:
    """Return the element of a page that holds one photo with all its captions."""
    _, rows, columns = caption.attention.shape
    height, width = caption.picture.shape[:2]
    data = {
        "name": caption.path.name,
        "photo": _jpeg(caption.picture),
        "size": [width, height],
        "grid": [rows, columns],
        "beams": [_beam(one) for one in (caption, *caption.alternatives)],
    }
    return f'<script type="application/json" class="photo">{_json(data)}</script>\n'


def _beam(one) -> dict:
    """Return a caption or alternative as JSON values; attention in 256 shades.

    Each word's attention is scaled by its largest weight, as it is drawn.
    """
    T, rows, columns = one.attention.shape
    alpha = one.attention.reshape(T, rows * columns).astype(np.float64)
    peak = np.maximum(alpha.max(axis=1, keepdims=True), 1e-12)
    shades = np.rint(alpha / peak * 255).astype(np.uint8)
    return {
        "text": one.text,
        "logProb": round(one.log_prob, 2),
        "score": round(one.score, 2),
        "words": list(one.words),
        "p": np.exp(one.word_log_probs.astype(np.float64)).round(3).tolist(),
        "beta": one.beta.astype(np.float64).round(3).tolist(),
        "peaks": [_peak(weights, (rows, columns)) for weights in alpha],
        "alpha": base64.b64encode(shades.tobytes()).decode("ascii"),
        "locations": None if one.locations is None else one.locations.tolist(),
    }


def _peak(weights: np.ndarray, grid: tuple[int, int]) -> int:
    """Return the cell in which a word's attention, as it is drawn, is largest."""
    drawn = visualize.attention_map(weights, grid)
    row, column = np.unravel_index(drawn.argmax(), drawn.shape)
    step = visualize.UPSAMPLING
    return int(row // step * grid[1] + column // step)


def _jpeg(pixels: np.ndarray) -> str:
    """Return a picture as a data URI."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")
