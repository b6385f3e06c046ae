"""Read captions of other programs from a JSON file.

Two forms are accepted:

* a list of ``{"image_id": 1 or "a.jpg", "caption": "a dog runs"}``: the COCO results
  format, and the files that an evaluation saves (further keys are ignored);
* an object, ``{"a.jpg": "a dog runs"}``.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from show_attend_tell.runtime.errors import ResultsFileError, quote
from show_attend_tell.runtime.untrusted import is_encodable, parse_json, read_text_bytes

_SHOWN = 3  # ids that are listed in an error
_LONGEST_ID = 80  # characters of an id in an error
# COCO's results name photos by number, its files by split and number.
_COCO_FILE = re.compile(r"COCO_[a-z]+\d{4}_0*(\d+)\.jpg")


def read_captions(
    path: str | Path, photo_ids: Iterable[str] | None = None
) -> dict[str, str]:
    """Read one caption for each photo.

    Args:
        path: path of the file.
        photo_ids: ids of the photos; None accepts any photos. Ids are compared as
            strings; a number also matches the photo whose COCO file name contains it.

    Returns:
        Photo id -> caption, in the order of ``photo_ids`` or else of the file.

    Raises:
        ResultsFileError: the file is absent or malformed, or does not have exactly one
            caption for each photo.
    """
    rows = _rows(path)
    photos = list(dict(rows) if photo_ids is None else photo_ids)
    names = {
        number[1]: photo
        for photo in photos
        if photo_ids is not None and (number := _COCO_FILE.fullmatch(photo))
    }
    rows = [(names.get(photo, photo), caption) for photo, caption in rows]
    _require_single(path, [photo for photo, _ in rows])
    captions = dict(rows)
    unknown = captions.keys() - set(photos)
    _require_none(
        path, unknown, "not in the split", "remove them or choose their split"
    )
    missing = set(photos) - captions.keys()
    remedy = "add them, or choose another split"
    _require_none(path, missing, "without a caption", remedy)
    return {photo: captions[photo] for photo in photos}


def _rows(path: str | Path) -> list[tuple[str, str]]:
    """Return (id, caption) of every row, in the order of the file."""
    keys: list[str] = []  # of the outermost object, which is parsed last

    def to_dict(pairs: list[tuple]) -> dict:
        keys[:] = [key for key, _ in pairs]
        return dict(pairs)

    try:
        text = read_text_bytes(path).decode("utf-8-sig")
        content = parse_json(text, object_pairs_hook=to_dict)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ResultsFileError(
            f"{path}: cannot be read as JSON: {reason}; name a JSON file of captions"
        ) from None
    if isinstance(content, dict):
        _require_single(path, keys)
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
    is_id = isinstance(photo, str | int) and not isinstance(photo, bool)
    if not is_id or not isinstance(caption, str) or not is_encodable(caption):
        raise ResultsFileError(
            f"{path}, entry {number}: must have `image_id`, a string or an integer, "
            f"and `caption`, a string. Received: {quote(row)}"
        )
    return str(photo), caption


def _require_single(path: str | Path, photos: Iterable[str]) -> None:
    repeated = [photo for photo, count in Counter(photos).items() if count > 1]
    _require_none(path, repeated, "captioned more than once", "keep one caption each")


def _require_none(
    path: str | Path, photos: Collection[str], fault: str, remedy: str
) -> None:
    """Raise an error that lists the first photos, if there are any."""
    if photos:
        first = sorted(photos)[:_SHOWN]
        shown = ", ".join(
            photo if len(photo) <= _LONGEST_ID and photo.isprintable() else quote(photo)
            for photo in first
        )
        more = ", ..." if len(photos) > _SHOWN else ""
        raise ResultsFileError(
            f"{path}: {len(photos)} photos {fault}: {shown}{more}; {remedy}"
        )
