"""Read and write the manifest: one row per photo, the same for every data set.

A manifest is a JSON Lines file in UTF-8. Every row is an object with the keys ``id``,
``path``, ``split`` and ``captions``, and ``objects`` where boxes are known. The path
of a photo below the manifest's folder is stored relative to that folder, so that a
prepared folder can be moved as a whole.

``<manifest>.sha256`` holds its digest in the format of ``sha256sum``. Delete it to have
an edited manifest read.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.files import atomic_path, atomic_write
from show_attend_tell.runtime.json_lines import read_rows
from show_attend_tell.runtime.untrusted import (
    is_text,
    read_text_bytes,
    reading,
    require_regular,
)

_REQUIRED = ("id", "path", "split", "captions")


@dataclass(frozen=True)
class Photo:
    """One photo with its split, captions and boxes.

    Attributes:
        id: unique in the manifest; the photo's file name, or its path below the
            user's folder.
        path: path of the photo, absolute or relative to the manifest's folder.
        split: ``train``, ``val``, ``test`` or ``none`` (in no list); all captions of a
            photo belong to its split.
        captions: raw text, stripped of white space at both ends.
        objects: ``{"name": str, "box": [x0, y0, x1, y1]}`` in pixel coordinates of the
            photo; the top left corner is inside the box, the bottom right outside.
    """

    id: str
    path: Path
    split: str
    captions: tuple[str, ...]
    objects: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Convert text to a path and sequences to tuples."""
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "captions", tuple(self.captions))
        object.__setattr__(self, "objects", tuple(self.objects))


def _fault_of_object(item: object) -> str | None:
    if not isinstance(item, dict) or set(item) != {"name", "box"}:
        return "each of `objects` must have the keys `name` and `box`"
    box = item["box"]
    numbers = isinstance(box, list | tuple) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in box
    )
    # Not by >=, which NaN passes.
    if not (numbers and len(box) == 4 and box[0] < box[2] and box[1] < box[3]):
        return "`box` must be [x0, y0, x1, y1] with x0 < x1 and y0 < y1"
    return None if is_text(item["name"]) else "`name` must be a string"


def _fault(row: object) -> str | None:
    """Return the fault of a row of the file, or None."""
    if not isinstance(row, dict):
        return "a row must be a JSON object"
    missing = [key for key in _REQUIRED if key not in row]
    if missing:
        return f"a row must have the key `{missing[0]}`"
    unknown = sorted(set(row) - {*_REQUIRED, "objects"})
    if unknown:
        return f"the key {quote(unknown[0])} is unknown"
    for key in ("id", "path", "split"):
        if not is_text(row[key]):
            return f"`{key}` must be a non-empty string in UTF-8"
    captions = row["captions"]
    if not isinstance(captions, list) or not all(map(is_text, captions)):
        return "`captions` must be a list of non-empty strings in UTF-8"
    objects = row.get("objects", [])
    if not isinstance(objects, list):
        return "`objects` must be a list"
    return next(filter(None, map(_fault_of_object, objects)), None)


def read_manifest(path: str | Path) -> list[Photo]:
    """Read a manifest.

    Args:
        path: path of the ``manifest.jsonl``.

    Returns:
        The photos in the order of the file, with absolute paths.

    Raises:
        DataError: the file is absent or malformed, differs from its digest, or
            has an id twice.
    """
    path = Path(path)
    folder = path.parent.absolute()
    absent = "manifest; prepare the data"
    with reading(path, DataError, "prepare the data again", absent):
        require_regular(path)
        _verify_digest(path)
        # A person may have edited it: editors on Windows write a byte order mark.
        with path.open(encoding="utf-8-sig") as lines:
            rows = read_rows(path, lines, _fault, "id", "prepare the data again")
            # `/` keeps an absolute path as it is.
            return [Photo(**row | {"path": folder / row["path"]}) for row in rows]


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _digest_line(path: Path) -> str:
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n"


def _verify_digest(path: Path) -> None:
    try:
        stored = read_text_bytes(_digest_path(path))
    except FileNotFoundError:
        return
    # The digest without the name, so that both files may be renamed.
    if stored.split()[:1] != _digest_line(path).encode().split()[:1]:
        raise DataError(
            f"{path}: differs from its digest in {_digest_path(path).name}: the file "
            "is damaged or was edited; prepare the data again, or delete the digest to "
            "read an edited file"
        )


def _to_row(photo: Photo, folder: Path) -> dict[str, Any]:
    path = photo.path
    if path.is_absolute() and path.is_relative_to(folder):
        path = path.relative_to(folder)
    row: dict[str, Any] = {
        "id": photo.id,
        "path": path.as_posix(),
        "split": photo.split,
        "captions": list(photo.captions),
    }
    if photo.objects:
        row["objects"] = list(photo.objects)
    return row


def write_manifest(path: str | Path, photos: Iterable[Photo]) -> None:
    """Write a manifest atomically.

    Args:
        path: path of the ``manifest.jsonl``; its folder is made if need be.
        photos: the rows, in the order of the file.

    Raises:
        DataError: a photo cannot be stored, or an id occurs twice; an earlier
            file is left as it was.
    """
    path = Path(path)
    folder = path.parent.absolute()
    seen: set[str] = set()
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as file,
    ):
        for photo in photos:
            row = _to_row(photo, folder)
            fault = _fault(row)
            if fault is None and photo.id in seen:
                fault = f"the id {quote(photo.id)} occurs twice"
            if fault:
                raise DataError(f"photo {quote(photo.id)}: {fault}")
            seen.add(photo.id)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())  # a power failure must not leave an empty manifest
        # A killed process leaves no digest rather than another manifest's.
        _digest_path(path).unlink(missing_ok=True)
    atomic_write(_digest_path(path), _digest_line(path))
