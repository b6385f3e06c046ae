"""Write a page of photos with captions to copy as alternative texts."""

import base64
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from PIL import Image

from show_attend_tell.data.photo_faults import UNREADABLE, pillow_faults
from show_attend_tell.data.preprocessing import (
    open_photo,
    pillow_warnings_ignored,
    upright_rgb,
)
from show_attend_tell.inference.journal import Row, tag_names
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.result import (
    CONFIDENCE_WORDS,
    DOUBTFUL,
    as_sentence,
    confidence_figures,
    confidence_word,
    is_below,
)
from show_attend_tell.inference.visualization.pages import (
    require_page,
    stream_template,
)
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.progress import progress_bar

_THUMBNAIL = 320  # pixels, longer side
_JPEG_QUALITY = 78  # about 10 kB a photo
_TITLE = re.compile(rb"<title>Captions of \d+ photos?</title>")


def require_gallery(path: Path) -> None:
    """Raise unless a file is absent, empty or a page of :func:`write_gallery`.

    Raises:
        CaptionError: it is another file, or a folder.
        OSError: the file cannot be read.
    """
    require_page(path, _TITLE, "captions")


def write_gallery(
    path: Path,
    rows: Sequence[Row],
    failures: Sequence[Failure] = (),
    locate: Callable[[Row], Path] = lambda row: Path(row["path"]),
) -> None:
    """Write the page atomically, captions of the highest confidence first.

    The page holds its pictures, so that it can be moved and sent, and shows formats
    that browsers do not decode. The ``<img>`` tags to copy link the photos, relative to
    the page unless they are on another drive.

    Args:
        path: path of the page.
        rows: rows with ``path``, ``caption``, ``log_prob`` and ``confidence``.
        failures: photos without a caption, listed at the end.
        locate: returns the path of a row's photo from the working folder.
    """
    # A confidence may be None, without a calibration.
    ordered = sorted(rows, key=lambda row: -(row.get("confidence") or 0))
    # The cards are a generator, so that one thumbnail at a time is in memory.
    pieces = stream_template(
        "gallery.html",
        count=len(rows),
        cards=_cards(path, ordered, locate),
        words=CONFIDENCE_WORDS.items(),
        calibrated=any(row.get("confidence") is not None for row in rows),
        reasons=[readable(failure.reason) for failure in failures],
    )
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def _cards(
    page: Path, rows: Sequence[Row], locate: Callable[[Row], Path]
) -> Iterator[dict[str, Any]]:
    """Yield the values of each photo for the template."""
    with progress_bar(len(rows), "photo", "page") as bar:
        for row in rows:
            photo = locate(row)
            confidence = row.get("confidence")
            yield {
                "picture": base64.b64encode(_thumbnail(photo)).decode("ascii"),
                "is_there": os.path.lexists(photo),
                "source": _source(photo, page.parent),
                "name": readable(row["path"]),
                "sentence": as_sentence(row["caption"]),
                "tags": ", ".join(tag_names(row)),
                "log_prob": row["log_prob"],
                "confidence": confidence_figures(confidence),
                "value": "" if confidence is None else f"{confidence:.6f}",
                "word": confidence_word(confidence) or "",
                "doubtful": is_below(confidence, DOUBTFUL),
            }
            bar.update()


def _thumbnail(photo: Path) -> bytes:
    """Return a small JPEG of a photo, empty if it cannot be read."""
    content = io.BytesIO()
    try:
        with pillow_warnings_ignored(), open_photo(photo) as opened:
            # A JPEG is decoded at a fraction of its size, in a fraction of the time.
            with pillow_faults():
                opened.draft("RGB", (2 * _THUMBNAIL, 2 * _THUMBNAIL))
            image = upright_rgb(opened)
    except UNREADABLE:
        return b""
    image.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
    image.save(content, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    return content.getvalue()


def _source(photo: Path, folder: Path) -> str:
    """Return the URL of a photo, relative to a folder where that is possible."""
    try:
        relative = os.path.relpath(photo, folder).replace(os.sep, "/")
    except ValueError:  # on another drive of Windows
        return photo.absolute().as_uri()
    # By bytes: a name that is not UTF-8 keeps its bytes in the URL.
    return quote_from_bytes(os.fsencode(relative), safe="/")


def readable(text: str) -> str:
    """Replace bytes of a path that are not UTF-8, so that the text can be written."""
    return os.fsencode(text).decode("utf-8", "replace")
