"""Count the outcomes of a part of `make torture` and print them as one table."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from show_attend_tell.runtime.table import align

T = TypeVar("T")

RESULTS = "TORTURE_RESULTS"  # folder that test processes write their counts to
MINUTES = float(os.environ.get("TORTURE_MINUTES", 8))
_FULL_MINUTES = 15  # in which two cores use up all shares; shorter runs try fewer cases
SCALE = float(os.environ.get("TORTURE_SCALE", max(MINUTES / _FULL_MINUTES, 1)))
_EXAMPLES = 3  # cases named for each distinct failure


def scaled(count: int) -> int:
    """Return a number of cases multiplied by TORTURE_SCALE, at least 1."""
    return max(1, round(count * SCALE))


@dataclass
class Tally:
    """Outcomes of one part.

    Attributes:
        part: name of the row in the table.
        planned: number of cases to try.
        share: seconds that the part may take in a run of 15 minutes.
        tried: number of cases tried.
        refused: number of cases refused in one line.
        handled: number of cases that gave a result.
        failures: signature of a failure -> the cases that failed so.
        notes: measurements, printed below the table.
    """

    part: str
    planned: int
    share: float
    tried: int = 0
    refused: int = 0
    handled: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def within_time(self, cases: Iterable[T]) -> Iterator[T]:
        """Yield the cases until the part's time is used up; then :meth:`finish`.

        The time is the part's share of TORTURE_MINUTES. A first case is tried also on
        a busy machine: every part has a result.
        """
        allowed = self.share * MINUTES / _FULL_MINUTES
        until = time.monotonic() + allowed
        for case in cases:
            if self.tried and time.monotonic() > until:
                self.notes.append(
                    f"{self.part}: out of time (share {allowed:.0f} s) after "
                    f"{self.tried} of {self.planned} cases; raise TORTURE_MINUTES"
                )
                break
            yield case
        self.finish()

    def count(self, case: str, outcome: str, signature: str = "") -> None:
        """Add the outcome of one case.

        Args:
            case: what was tried, enough to try it again.
            outcome: ``refused``, ``handled`` or ``failed``.
            signature: failures with equal signatures are one distinct failure.
        """
        self.tried += 1
        if outcome == "failed":
            self.failures.setdefault(signature, []).append(case)
            self._save()  # also of a run that is cut short
        elif outcome == "refused":
            self.refused += 1
        else:
            self.handled += 1

    def finish(self) -> None:
        """Save the counts for the table; raise AssertionError if a case failed."""
        self._save()
        assert not self.failures, "\n".join(
            f"{len(cases)} x {signature}\n    "
            + "\n    ".join(case[:600] for case in cases[:_EXAMPLES])
            for signature, cases in sorted(self.failures.items())
        )

    def _save(self) -> None:
        if folder := os.environ.get(RESULTS):
            name = "".join(c if c.isalnum() else "-" for c in self.part)
            text = json.dumps(asdict(self))
            (Path(folder) / f"{name}.json").write_text(text)


def table(folder: Path) -> list[str]:
    """Return the lines of the table of all parts that saved their counts."""
    counts = [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]
    rows = {}
    for count in counts:
        failed = sum(map(len, count["failures"].values()))
        row = count["tried"], count["refused"], count["handled"], failed
        rows[count["part"]] = row
    rows["all"] = map(sum, zip(*rows.values(), strict=True)) if rows else (0, 0, 0, 0)
    head = ["part", "tried", "refused in one line", "handled", "failed"]
    cells = [head, *([part, *map("{:,}".format, row)] for part, row in rows.items())]
    return align(cells) + [note for count in counts for note in count["notes"]]
