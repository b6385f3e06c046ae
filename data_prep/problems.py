"""Collect the problems of a data set by kind and name."""

import re
from pathlib import Path

from show_attend_tell.runtime.files import atomic_write

MALFORMED_LINE = "malformed line"
EMPTY_CAPTION = "empty caption"
DUPLICATE_ID = "duplicate id"
DUPLICATE_FILE = "photo file found twice"
MISSING_PHOTO = "missing photo"
NO_CAPTIONS = "photo without captions"
TWO_SPLITS = "photo in two splits"
UNSAFE_ENTRY = "unsafe archive entry"
DAMAGED_ENTRY = "damaged archive entry"
BROKEN_LINK = "broken link"
SPECIAL_FILE = "not a regular file"
UNREADABLE_FOLDER = "unreadable folder"

_SHOWN = 3  # names per kind in a summary
_LONGEST = 120  # characters of a name in a summary
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Problems:
    """Names of skipped items under the kind of their problem, in insertion order.

    The user may want to correct a problem; its item is skipped. A note is a choice made
    for the user, such as a split by hash.

    Attributes:
        notes: sentences for the user.
    """

    def __init__(self):
        self._names: dict[str, dict[str, None]] = {}
        self.notes: list[str] = []

    def add(self, kind: str, name: str) -> None:
        """Record one name under a kind; the same name counts once."""
        self._names.setdefault(kind, {})[name] = None

    def names(self, kind: str) -> list[str]:
        """Return the names recorded under a kind."""
        return list(self._names.get(kind, ()))

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def update(self, other: "Problems") -> None:
        """Add all names and notes of another collection."""
        for kind, names in other._names.items():
            self._names.setdefault(kind, {}).update(names)
        self.notes.extend(other.notes)

    def summary(self) -> list[str]:
        """Return one line per kind with its count and first few names."""
        lines = []
        for kind, names in self._names.items():
            first = [printable(name) for name in list(names)[:_SHOWN]]
            shown = ", ".join(name[:_LONGEST] for name in first)
            more = ", ..." if len(names) > _SHOWN else ""
            lines.append(f"{kind}: {len(names)} ({shown}{more})")
        return lines

    def write_listing(self, path: Path) -> None:
        """Write a line for each name and its kind; without names remove the file."""
        if not self:
            path.unlink(missing_ok=True)
            return
        lines = [
            f"{kind}\t{printable(name)}\n"
            for kind, names in self._names.items()
            for name in names
        ]
        atomic_write(path, "".join(lines))


def printable(name: str) -> str:
    """Escape control characters, and surrogates, which UTF-8 cannot encode."""
    name = _CONTROL.sub(lambda match: repr(match[0])[1:-1], name)
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
