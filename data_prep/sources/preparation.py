"""Define the argument and the result of every source."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.problems import Problems
from data_prep.unpack import Progress
from show_attend_tell.runtime.errors import DataError

PROBLEMS = "problems.txt"


@dataclass(frozen=True)
class Preparation:
    """A data set to prepare.

    Attributes:
        experiment: the settings, of any task; ``experiment.data`` names the source.
        data: the user's folder, or None.
        folder: the folder to write to.
        refuse: whether a problem raises an error instead of skipping the item.
        progress: called after every item.
        limit: maximum number of photos of each split; None for all.
    """

    experiment: Any
    data: Path | None
    folder: Path
    refuse: bool = False
    progress: Progress | None = None
    limit: int | None = None

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

    def record(self, problems: Problems) -> None:
        """Write the list of problems.

        Raises:
            DataError: there are problems, and they are refused.
        """
        listing = self.folder / PROBLEMS
        problems.write_listing(listing)
        if self.refuse and problems:
            raise DataError(
                f"refused because of {len(problems)} problems: "
                f"{'; '.join(problems.summary())}; correct the items listed in "
                f"{listing}, or pass --on-problem skip"
            )


@dataclass(frozen=True)
class Prepared:
    """Counts and problems of a prepared data set.

    Attributes:
        folder: the folder that has the files.
        counts: split -> noun -> number of items.
        facts: sentences about the data set.
        problems: skipped items, and notes.
        seconds: wall-clock time.
    """

    folder: Path
    counts: dict[str, dict[str, int]]
    facts: list[str] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = []
        for split, counts in self.counts.items():
            items = (f"{count:,} {noun}" for noun, count in counts.items())
            lines.append(f"{split}: {', '.join(items)}")
        lines += self.facts
        lines += [f"note: {note}" for note in self.problems.notes]
        lines += [f"skipped: {line}" for line in self.problems.summary()]
        if self.problems:
            lines.append(f"all skipped items: {self.folder / PROBLEMS}")
        return [*lines, f"prepared in {self.folder} ({self.seconds:.0f} s)"]
