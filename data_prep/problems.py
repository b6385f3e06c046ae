"""What is odd about a data set: counted by kind, and listed by name."""

import os
from pathlib import Path

from show_attend_tell.runtime.errors import DataError

ODD_LINE = "odd line"
EMPTY_CAPTION = "empty caption"
DUPLICATE_ID = "duplicate id"
DUPLICATE_FILE = "photo file found twice"
MISSING_PHOTO = "missing photo"
NO_CAPTIONS = "photo without captions"
TWO_SPLITS = "photo in two splits"
UNSAFE_ENTRY = "unsafe archive entry"
DAMAGED_ENTRY = "damaged archive entry"

_SHOWN = 3  # names of a kind that a summary mentions


class Problems:
    """Names under the kind of problem they have, in the order found.

    A problem is something that the user may want to correct; what has it is left
    out. A note is a choice made for the user, such as a split by hash.

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

    def counts(self) -> dict[str, int]:
        """Return how many names each kind has."""
        return {kind: len(names) for kind, names in self._names.items()}

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def update(self, other: "Problems") -> None:
        """Add all that another collection holds."""
        for kind, names in other._names.items():
            self._names.setdefault(kind, {}).update(names)
        self.notes.extend(other.notes)

    def summary(self) -> list[str]:
        """Return one line per kind with its count and first few names."""
        lines = []
        for kind, names in self._names.items():
            shown = ", ".join(list(names)[:_SHOWN])
            more = ", ..." if len(names) > _SHOWN else ""
            lines.append(f"{kind}: {len(names)} ({shown}{more})")
        return lines

    def write(self, path: Path) -> None:
        """Write every name with its kind, one a line, or remove the file if none."""
        if not self:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".part")
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            for kind, names in self._names.items():
                file.writelines(f"{kind}\t{name}\n" for name in names)
        os.replace(unfinished, path)

    def refuse(self, listing: Path) -> None:
        """Stop if there is any problem.

        Args:
            listing: the file that :meth:`write` wrote, named in the message.

        Raises:
            DataError: with all kinds and their first few names.
        """
        if self:
            raise DataError(
                f"refused because of {len(self)} problems: "
                f"{'; '.join(self.summary())}; all are in {listing}: correct them, "
                "or have them skipped"
            )
