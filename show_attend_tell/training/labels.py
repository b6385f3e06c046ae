"""Read captions that were judged with the photo in sight.

A file of labels has one JSON object a line::

    {"photo": "1.jpg", "caption": "a dog in the grass", "labels": ["right", "slip"]}

with the photo's file name, the caption, and a label of each pass over the captions:
``right``, ``slip`` (one detail is wrong) or ``wrong``. A caption counts as its lowest
label. Blank lines are skipped.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.json_lines import read_rows
from show_attend_tell.runtime.untrusted import is_text, read_text_bytes, reading

GRADES = {"wrong": 0, "slip": 1, "right": 2}
_COCO_ID = re.compile(r"_(\d{12})\.\w+$")


@dataclass(frozen=True)
class Label:
    """A judged caption.

    Attributes:
        photo: file name of the photo.
        caption: the caption.
        grades: values of :data:`GRADES`, one of each pass.
        group: the set of photos that the photo belongs to; empty if it is not told.
    """

    photo: str
    caption: str
    grades: tuple[int, ...]
    group: str = ""

    @property
    def grade(self) -> int:
        """The lowest grade."""
        return min(self.grades)

    @property
    def is_fitted(self) -> bool:
        """Whether the label fits a confidence; the others measure it.

        The first byte of the SHA-256 of the photo's name is even.
        """
        # A hash, and no draw: a photo stays in its half when labels are added.
        return hashlib.sha256(self.photo.encode()).digest()[0] % 2 == 0


def key_of(name: str) -> str:
    """Return what tells a photo in labels: its file name, of COCO's photos their id.

    COCO's names end in the twelve digits of the id, after its split:
    ``COCO_val2014_000000000071.jpg``.
    """
    found = _COCO_ID.search(name)
    return found[1] if found else name


def read_labels(path: Path) -> list[Label]:
    """Read a file of labels.

    Raises:
        DataError: the file is absent, empty or malformed, has an unknown label, or
            judges a photo twice.
    """
    with reading(path, DataError, "correct the file"):
        # Not by splitlines: a caption may contain U+2028, which it splits at.
        lines = read_text_bytes(path).decode("utf-8-sig").split("\n")
    labels = []
    photos: dict[str, str] = {}  # key of each photo -> its name
    advice = "correct the file"
    for row in read_rows(path, lines, _fault, "photo", advice, skip_blank=True):
        name = row["photo"]
        if (other := photos.setdefault(key_of(name), name)) != name:
            raise DataError(
                f"{path}: the photo {quote(name)} occurs twice, also as "
                f"{quote(other)}; {advice}"
            )
        grades = tuple(GRADES[label] for label in row["labels"])
        labels.append(Label(name, row["caption"], grades, row.get("list", "")))
    if not labels:
        raise DataError(f"{path}: must have a label a line. Received: an empty file")
    return labels


def _fault(row: object) -> str | None:
    """Return the fault of a line, or None."""
    if not isinstance(row, dict):
        return "a line must be a JSON object"
    for key in ("photo", "caption"):
        if not is_text(row.get(key)):
            return f"`{key}` must be text. Received: {quote(row.get(key))}"
    if "list" in row and not is_text(row["list"]):
        return f"`list` must be text. Received: {quote(row['list'])}"
    given = row.get("labels")
    if not isinstance(given, list) or not given:
        return f"`labels` must be a list of labels. Received: {quote(given)}"
    for label in given:
        if not isinstance(label, str) or label not in GRADES:
            known = ", ".join(GRADES)
            return f"a label must be one of {known}. Received: {quote(label)}"
    return None
