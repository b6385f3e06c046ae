"""Read captions of other programs from a JSON file in the COCO results format.

The file is a list of ``{"image_id": 1 or "a.jpg", "caption": "a dog runs"}``; further
keys, such as those that an evaluation saves, are ignored.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from show_attend_tell.data.unicode_text import in_one_form
from show_attend_tell.runtime.errors import EvaluationError, quote
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

_SHOWN = 3  # ids that are listed in an error
_LONGEST_ID = 80  # characters of an id in an error
# COCO's results name photos by number, its files by split and number in 2014, and since
# 2017 by a number of twelve digits alone.
_COCO_FILE = re.compile(r"(?:COCO_[a-z]+\d{4}_|(?=\d{12}\.))0*(\d+)\.jpg")


def _encodable(text: str) -> str:
    text.encode()  # a ValueError of half a character
    return text


@dataclass
class _Row:
    image_id: StrictInt | StrictStr
    caption: Annotated[StrictStr, AfterValidator(_encodable)]


_ROWS = TypeAdapter(Annotated[list[_Row], Field(min_length=1)])


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
        EvaluationError: the file is absent or malformed, or does not have exactly one
            caption for each photo.
    """
    rows = _rows(path)
    photos = [photo for photo, _ in rows] if photo_ids is None else list(photo_ids)
    names = {
        number[1]: photo
        for photo in photos
        if photo_ids is not None and (number := _COCO_FILE.fullmatch(photo))
    }
    # After the numbers, as the exact id of a photo wins over the number in a file name.
    names |= {in_one_form(photo): photo for photo in photos}
    # An id of no photo stays as it is, for the list of unknown ids.
    rows = [(names.get(in_one_form(photo), photo), caption) for photo, caption in rows]
    # Counted in the rows: a dict keeps only the last caption of an id.
    counts = Counter(photo for photo, _ in rows)
    captions = dict(rows)
    repeated = [photo for photo, count in counts.items() if count > 1]
    _require_none(path, repeated, "captioned more than once", "keep one caption each")
    unknown = captions.keys() - set(photos)
    missing = set(photos) - captions.keys()
    if unknown and missing:
        raise EvaluationError(
            f"{path}: `image_id` must be an id of the split, such as "
            f"{_listed(missing)}. Received: {_listed(unknown)}; write the ids of the "
            f"manifest, or choose the split of the file ({len(unknown)} of "
            f"{len(captions)} ids are of no photo of the split)"
        )
    remedy = "remove them or choose their split"
    _require_none(path, unknown, "not in the split", remedy)
    remedy = "add them, or choose another split"
    _require_none(path, missing, "without a caption", remedy)
    return {photo: captions[photo] for photo in photos}


def _rows(path: str | Path) -> list[tuple[str, str]]:
    """Return (id, caption) of every row, in the order of the file."""
    with reading(path, EvaluationError, "name a JSON file of captions"):
        # Editors on Windows write a byte order mark, which JSON refuses.
        content = parse_json(read_text_bytes(path).decode("utf-8-sig"))
    try:
        rows = _ROWS.validate_python(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        # pydantic counts rows from 0, and names none if the document is no list.
        entry = f", entry {int(fault['loc'][0]) + 1}" if fault["loc"] else ""
        raise EvaluationError(
            f"{path}{entry}: must be a list, not empty, of objects with `image_id`, a "
            "string or an integer, and `caption`, a string. Received: "
            f"{quote(fault['input'])}; correct the file"
        ) from None
    return [(str(row.image_id), row.caption) for row in rows]


def _require_none(
    path: str | Path, photos: Collection[str], fault: str, remedy: str
) -> None:
    """Raise an error that lists the first photos, if there are any."""
    if photos:
        raise EvaluationError(
            f"{path}: {len(photos)} photos {fault}: {_listed(photos)}; {remedy}"
        )


def _listed(photos: Collection[str]) -> str:
    """Return the first ids."""
    shown = ", ".join(
        photo if len(photo) <= _LONGEST_ID and photo.isprintable() else quote(photo)
        for photo in sorted(photos)[:_SHOWN]
    )
    return f"{shown}, ..." if len(photos) > _SHOWN else shown
