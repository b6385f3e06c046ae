"""The manifest: one row per photo, the same whatever data set it came from.

A manifest is a JSON Lines file in UTF-8. Every row is an object with the keys ``id``,
``path``, ``split`` and ``captions``, and ``objects`` where boxes are known. Paths are
stored relative to the manifest's folder when the photo lies below it, so that a
prepared folder can be moved as a whole.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import ManifestError

_REQUIRED = ("id", "path", "split", "captions")


@dataclass(frozen=True)
class Photo:
    """One photo and what is said about it.

    Attributes:
        id: unique in the manifest; the photo's file name, or its path below the
            user's folder.
        path: where the photo lies; absolute, or relative to the manifest's folder.
        split: ``train``, ``val``, ``test`` or ``none`` (in no list). A split is a
            property of the photo, so captions of one photo never part.
        captions: raw text, untouched but for white space at both ends.
        objects: ``{"name": str, "box": [x0, y0, x1, y1]}`` in pixels of the photo,
            corners inclusive of the top left and exclusive of the bottom right.
    """

    id: str
    path: Path
    split: str
    captions: tuple[str, ...]
    objects: tuple[dict[str, Any], ...] = ()

    def __post_init__(self):
        """Take text for a path and any sequence for a tuple."""
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "captions", tuple(self.captions))
        object.__setattr__(self, "objects", tuple(self.objects))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _fault_of_object(item: object) -> str | None:
    if not isinstance(item, dict) or set(item) != {"name", "box"}:
        return "every one of `objects` must have the keys `name` and `box`"
    box = item["box"]
    numbers = isinstance(box, list | tuple) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in box
    )
    if not numbers or len(box) != 4 or box[0] >= box[2] or box[1] >= box[3]:
        return "`box` must be [x0, y0, x1, y1] with x0 < x1 and y0 < y1"
    return None if _is_text(item["name"]) else "`name` must be a text"


def _fault(row: object) -> str | None:
    """Return what is wrong with a row of the file, or None."""
    if not isinstance(row, dict):
        return "a row must be a JSON object"
    missing = [key for key in _REQUIRED if key not in row]
    if missing:
        return f"a row must have the key `{missing[0]}`"
    unknown = sorted(set(row) - {*_REQUIRED, "objects"})
    if unknown:
        return f"the key `{unknown[0]}` is unknown"
    for key in ("id", "path", "split"):
        if not _is_text(row[key]):
            return f"`{key}` must be a text that is not empty"
    captions = row["captions"]
    if not isinstance(captions, list) or not all(map(_is_text, captions)):
        return "`captions` must be a list of texts that are not empty"
    objects = row.get("objects", [])
    if not isinstance(objects, list):
        return "`objects` must be a list"
    return next(filter(None, map(_fault_of_object, objects)), None)


def read(path: str | Path) -> list[Photo]:
    """Read a manifest.

    Args:
        path: the ``manifest.jsonl``.

    Returns:
        The photos in the order of the file, their paths absolute.

    Raises:
        ManifestError: the file is absent or damaged, or an id occurs twice.
    """
    path = Path(path)
    folder = path.parent.absolute()
    photos: dict[str, Photo] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                row = json.loads(line)
                fault = _fault(row)
                if fault is None and row["id"] in photos:
                    fault = f"the id {row['id']!r} occurs twice"
                if fault:
                    raise ManifestError(
                        f"{path}, line {number}: {fault}; prepare the data again"
                    )
                row["path"] = folder / row["path"]
                photos[row["id"]] = Photo(**row)
    except FileNotFoundError:
        raise ManifestError(f"{path}: no such manifest; prepare the data") from None
    except json.JSONDecodeError as error:
        raise ManifestError(
            f"{path}, line {number}: not JSON ({error.msg}); prepare the data again"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read: {error}") from None
    return list(photos.values())


def _stored_path(photo: Photo, folder: Path) -> str:
    if photo.path.is_absolute() and photo.path.is_relative_to(folder):
        return photo.path.relative_to(folder).as_posix()
    return photo.path.as_posix()


def _to_row(photo: Photo, folder: Path) -> dict:
    row = {
        "id": photo.id,
        "path": _stored_path(photo, folder),
        "split": photo.split,
        "captions": list(photo.captions),
    }
    if photo.objects:
        row["objects"] = list(photo.objects)
    return row


def write(path: str | Path, photos: Iterable[Photo]) -> None:
    """Write a manifest whole or not at all.

    Args:
        path: the ``manifest.jsonl``; its folder is made if need be. An earlier file
            stays as it is until the new one is complete.
        photos: in the order wanted.

    Raises:
        ManifestError: a photo cannot be stored, or an id occurs twice.
    """
    path = Path(path)
    folder = path.parent.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        for photo in photos:
            row = _to_row(photo, folder)
            fault = _fault(row)
            if fault is None and photo.id in seen:
                fault = f"the id {photo.id!r} occurs twice"
            if fault:
                raise ManifestError(f"photo {photo.id!r}: {fault}")
            seen.add(photo.id)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def of_split(photos: Sequence[Photo], split: str) -> list[Photo]:
    """Return the photos of one split in their order.

    Raises:
        ManifestError: there are none.
    """
    chosen = [photo for photo in photos if photo.split == split]
    if not chosen:
        counts = Counter(photo.split for photo in photos)
        raise ManifestError(
            f"`split` must be one of {sorted(counts)}. Received: {split!r}; "
            "choose another or prepare data that has it"
        )
    return chosen
