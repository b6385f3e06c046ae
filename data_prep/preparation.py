"""Define the argument, the result and the problems of every preparation."""

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.errors import DataError, plural
from show_attend_tell.runtime.files import atomic_write

PROBLEMS = "problems.txt"
_SHOWN = 3  # names per kind in a summary
_LONGEST = 120  # characters of a name in a summary
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Problem(StrEnum):
    """Kinds of problems, as they are listed."""

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


@dataclass(frozen=True)
class Preparation:
    """A data set to prepare, and how; see :func:`data_prep.prepare.prepare`."""

    experiment: Any  # the settings, of any task; `experiment.data` names the source
    data: Path | None  # the user's folder
    folder: Path  # the folder to write to
    refuse: bool = False  # whether a problem raises an error
    progress: bool = False  # whether to show progress bars
    limit: int | None = None  # maximum number of photos of each split

    def require_data(self) -> Path:
        """Return the user's folder.

        Raises:
            DataError: the user named none.
        """
        if self.data is None:
            raise DataError(
                f"`data` must be the folder of {self.experiment.data.source}'s files. "
                "Received: None; pass the folder with --data"
            )
        return Path(self.data)

    def limited(self, photos: list[Photo]) -> list[Photo]:
        """Return the first photos of each split, in their order."""
        counts: Counter[str] = Counter()
        chosen = []
        for photo in photos:
            counts[photo.split] += 1
            if self.limit is None or counts[photo.split] <= self.limit:
                chosen.append(photo)
        return chosen

    def record(self, problems: Problems) -> None:
        """Write the list of problems.

        Raises:
            DataError: there are problems, and they are refused.
        """
        listing = self.folder / PROBLEMS
        problems.write_listing(listing)
        if self.refuse and problems:
            raise DataError(
                f"refused because of {plural(len(problems), 'problem')}: "
                f"{'; '.join(problems.summary())}; correct the items listed in "
                f"{listing}, or pass --on-problem skip"
            )


@dataclass(frozen=True)
class Prepared:
    """Counts and problems of a prepared data set."""

    folder: Path  # the folder that has the files
    counts: dict[str, dict[str, int]]  # split -> noun -> number of items
    facts: list[str] = field(default_factory=list)  # sentences about the data set
    problems: Problems = field(default_factory=Problems)  # skipped items, and notes
    seconds: float = 0.0  # wall-clock time

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = []
        for split, counts in self.counts.items():
            # The nouns are plurals; plural() takes a singular.
            items = (plural(count, noun[:-1]) for noun, count in counts.items())
            lines.append(f"{split}: {', '.join(items)}")
        lines += self.facts
        lines += [f"note: {note}" for note in self.problems.notes]
        lines += [f"skipped: {line}" for line in self.problems.summary()]
        if self.problems:
            lines.append(f"all skipped items: {self.folder / PROBLEMS}")
        return [*lines, f"prepared in {self.folder} ({self.seconds:.0f} s)"]
