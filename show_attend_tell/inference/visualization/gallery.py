"""Write a page of photos with captions to copy as alternative texts."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote_from_bytes

from show_attend_tell.inference.result import LOW_CONFIDENCE, Failure, as_sentence
from show_attend_tell.inference.visualization.attention_page import stream_template
from show_attend_tell.runtime.files import atomic_path


def write_gallery(
    path: str | Path, rows: Sequence[Mapping], failures: Sequence[Failure] = ()
) -> None:
    """Write one HTML file atomically; photos are linked, not copied.

    Args:
        path: path of the page; photos are linked relative to its folder.
        rows: rows with ``path``, ``caption``, ``log_prob`` and ``confidence``.
        failures: photos without a caption, listed at the end.
    """
    path = Path(path)
    cards = (
        {
            "source": _source(row["path"], path.parent),
            "name": readable(row["path"]),
            "sentence": as_sentence(row["caption"]),
            "log_prob": row["log_prob"],
            "confidence": row.get("confidence"),
        }
        for row in rows
    )
    reasons = [readable(failure.reason) for failure in failures]
    values = {"count": len(rows), "cards": cards, "reasons": reasons}
    values["low"] = LOW_CONFIDENCE
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(stream_template("gallery.html", **values))


def _source(photo: str, folder: Path) -> str:
    """Return the relative URL of a photo, seen from a folder."""
    relative = os.path.relpath(photo, folder).replace(os.sep, "/")
    return quote_from_bytes(os.fsencode(relative), safe="/")


def readable(text: str) -> str:
    """Replace bytes of a path that are not UTF-8, so that the text can be written."""
    return os.fsencode(text).decode("utf-8", "replace")
