"""Read captions made elsewhere: COCO's results format, ours, or plain ids.

Three forms are understood, all of them JSON:

* a list of ``{"image_id": 1 or "a.jpg", "caption": "a dog runs"}``, which is COCO's
  results format and, with further keys, the form that an evaluation saves;
* one object ``{"a.jpg": "a dog runs"}``.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from show_attend_tell.runtime.errors import ResultsFileError

_SHOWN = 3  # ids that an error names
# COCO's results name photos by number, its files by split and number.
_COCO_FILE = re.compile(r"COCO_[a-z]+\d{4}_0*(\d+)\.jpg")


def read(path: str | Path, photo_ids: Iterable[str]) -> dict[str, str]:
    """Read one caption for each of the photos given.

    Args:
        path: the file.
        photo_ids: the photos to be captioned. Ids are compared as texts; a number
            also stands for the photo whose COCO file name has it.

    Returns:
        Photo id -> caption, in the order of ``photo_ids``.

    Raises:
        ResultsFileError: the file is absent or of another form, or its photos are not
            those given, once each.
    """
    names: dict[str, str] = {}
    for photo in photo_ids:
        number = _COCO_FILE.fullmatch(photo)
        if number:
            names[number[1]] = photo
        names[photo] = photo
    rows = _rows(path)
    found = [(names.get(photo, photo), caption) for photo, caption in rows]
    counts = Counter(photo for photo, _ in found)
    twice = [photo for photo, count in counts.items() if count > 1]
    _refuse(path, twice, "captioned more than once", "keep one caption each")
    wanted = dict.fromkeys(names.values())
    unknown = [photo for photo in counts if photo not in wanted]
    _refuse(path, unknown, "not in the split", "remove them or choose their split")
    missing = [photo for photo in wanted if photo not in counts]
    _refuse(path, missing, "without a caption", "add them, or choose another split")
    captions = dict(found)
    return {photo: captions[photo] for photo in wanted}


def _rows(path: str | Path) -> list[tuple[str, str]]:
    """Return (id, caption) of every row as they stand in the file."""

    def distinct(pairs: list[tuple]) -> dict:
        counts = Counter(key for key, _ in pairs)
        twice = [key for key, count in counts.items() if count > 1]
        _refuse(path, twice, "captioned more than once", "keep one caption each")
        return dict(pairs)

    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        content = json.loads(text, object_pairs_hook=distinct)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ResultsFileError(
            f"{path}: cannot be read as JSON: {reason}; name a file of captions"
        ) from None
    if isinstance(content, dict):
        content = [
            {"image_id": key, "caption": value} for key, value in content.items()
        ]
    if not isinstance(content, list) or not content:
        raise ResultsFileError(
            f"{path}: must be a list of {{image_id, caption}} or an object of captions "
            f"by id, not empty. Received: {text[:40]!r}"
        )
    return [_row(path, number, row) for number, row in enumerate(content, start=1)]


def _row(path: str | Path, number: int, row: object) -> tuple[str, str]:
    photo = row.get("image_id") if isinstance(row, dict) else None
    caption = row.get("caption") if isinstance(row, dict) else None
    sound = isinstance(photo, str | int) and not isinstance(photo, bool)
    if not sound or not isinstance(caption, str):
        raise ResultsFileError(
            f"{path}, entry {number}: must have `image_id`, a text or a whole number, "
            f"and `caption`, a text. Received: {str(row)[:80]}"
        )
    return str(photo), caption


def _refuse(path: str | Path, photos: Collection[str], fault: str, remedy: str) -> None:
    if photos:
        first = ", ".join(sorted(photos)[:_SHOWN])
        more = ", ..." if len(photos) > _SHOWN else ""
        raise ResultsFileError(
            f"{path}: {len(photos)} photos {fault}: {first}{more}; {remedy}"
        )
