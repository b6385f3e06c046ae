"""Define a row of the table: a measurement, its baseline and its required bar."""

import dataclasses
from dataclasses import dataclass

from benchmarks.cost import Cost


@dataclass(frozen=True)
class Bar:
    """The required value of a row.

    Attributes:
        of: field of the row that is compared, ``ratio`` or ``ours``.
        least: minimum, or None.
        most: maximum, or None.
    """

    of: str
    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """Return whether a value meets the bar."""
        above = self.least is None or value >= self.least
        return above and (self.most is None or value <= self.most)

    def text(self, unit: str) -> str:
        """Return the bar in words."""
        end = "x" if self.of == "ratio" else f" {unit}"
        if self.least is not None:
            return f"at least {self.least:g}{end}"
        return f"at most {self.most:g}{end}"


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        work: kind of work.
        what: one-line description of our work.
        unit: unit of `ours`, `baseline` and `limit`.
        ours: our median.
        baseline: median of the baseline in the same run; None without a baseline.
        ratio: see `ratio_is`; the median over pairs, not the ratio of the medians.
        cores: processors that we used, processor time over wall time; fewer than the
            machine has where a core was taken by something else.
        baseline_cores: those of the baseline.
        ratio_is: ``baseline / ours`` (times faster) or ``ours / baseline``.
        bar: required value, or None.
        limit: lower bound that the machine allows, see :mod:`benchmarks.cost`.
        share_of_limit: `limit / ours`.
        operations: operations that are necessary, or None if they are not counted.
        bytes: bytes that must be moved.
        precision: dtype of the large products.
        note: remarks, such as how the baseline was scaled.
        machine: see :mod:`benchmarks.machine`.
    """

    work: str
    what: str
    unit: str
    ours: float
    machine: dict
    baseline: float | None = None
    ratio: float | None = None
    cores: float | None = None
    baseline_cores: float | None = None
    ratio_is: str = "baseline / ours"
    bar: Bar | None = None
    limit: float | None = None
    operations: float | None = None
    bytes: float | None = None
    precision: str = "float32"
    note: str = ""

    @property
    def share_of_limit(self) -> float | None:
        """The limit divided by our value."""
        return None if self.limit is None else self.limit / self.ours

    @property
    def reached(self) -> bool | None:
        """Whether the bar was met; None without a bar or a value."""
        value = getattr(self, self.bar.of) if self.bar else None
        return None if value is None else self.bar.met(value)

    def limited(self, cost: Cost, units: float = 1) -> "Row":
        """Return the row with its limit; `cost` is that of `units` of its unit."""
        rates = self.machine["rates"]
        known = set(cost.operations) <= rates.keys()
        return dataclasses.replace(
            self,
            limit=cost.seconds(rates) / units if known else None,
            operations=cost.count / units,
            bytes=cost.bytes / units,
        )

    def to_json(self) -> dict:
        """Return all fields as JSON values, including the derived ones."""
        values = dataclasses.asdict(self)
        bar = self.bar.text(self.unit) if self.bar else None
        derived = {"bar": bar, "reached": self.reached}
        return {**values, **derived, "share_of_limit": self.share_of_limit}
