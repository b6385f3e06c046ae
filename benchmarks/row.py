"""A row of the table: what was measured, against what, and what is asked of it."""

import dataclasses
from dataclasses import dataclass

from benchmarks.cost import Cost


@dataclass(frozen=True)
class Bar:
    """What is asked of a row.

    Attributes:
        of: the field of the row that is judged, ``ratio`` or ``ours``.
        least: it must be at least this, or None.
        most: it must be at most this, or None.
    """

    of: str
    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """Tell whether a value is good enough."""
        above = self.least is None or value >= self.least
        return above and (self.most is None or value <= self.most)

    def text(self, unit: str) -> str:
        """Return it in words."""
        end = "x" if self.of == "ratio" else f" {unit}"
        if self.least is not None:
            return f"at least {self.least:g}{end}"
        return f"at most {self.most:g}{end}"


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        work: what kind of work.
        what: one line on what ours does.
        unit: of `ours`, `baseline` and `limit`.
        ours: measured, the median.
        baseline: measured in the same run; None where there is none.
        ratio: see `ratio_is`; the median over pairs, not the ratio of the medians.
        ratio_is: ``baseline / ours`` (times faster) or ``ours / baseline``.
        bar: what is asked; None asks nothing.
        limit: the least that the machine allows, see :mod:`benchmarks.cost`.
        share_of_limit: `limit / ours`.
        operations: that cannot be done without, or None where none are counted.
        bytes: that must move.
        precision: of the large products.
        note: what else a reader must know, such as how the baseline was scaled.
        machine: see :mod:`benchmarks.machine`.
    """

    work: str
    what: str
    unit: str
    ours: float
    machine: dict
    baseline: float | None = None
    ratio: float | None = None
    ratio_is: str = "baseline / ours"
    bar: Bar | None = None
    limit: float | None = None
    operations: float | None = None
    bytes: float | None = None
    precision: str = "float32"
    note: str = ""

    @property
    def share_of_limit(self) -> float | None:
        """The part of what the machine allows that was reached."""
        return None if self.limit is None else self.limit / self.ours

    @property
    def reached(self) -> bool | None:
        """Whether the bar was met; None where nothing is asked or known."""
        value = getattr(self, self.bar.of) if self.bar else None
        return None if value is None else self.bar.met(value)

    def limited(self, cost: Cost, units: float = 1) -> "Row":
        """Return the row with its limit, `cost` being that of `units` of its unit."""
        rates = self.machine["rates"]
        known = set(cost.operations) <= rates.keys()
        return dataclasses.replace(
            self,
            limit=cost.seconds(rates) / units if known else None,
            operations=cost.count / units,
            bytes=cost.bytes / units,
        )

    def to_json(self) -> dict:
        """Return all fields as JSON values, the derived ones too."""
        values = dataclasses.asdict(self)
        bar = self.bar.text(self.unit) if self.bar else None
        derived = {"bar": bar, "reached": self.reached}
        return {**values, **derived, "share_of_limit": self.share_of_limit}
