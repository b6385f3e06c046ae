"""Format the table and write results.json."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.row import Row
from show_attend_tell.runtime.files import atomic_write

_HEAD = (
    "work",
    "ours",
    "baseline",
    "ratio",
    "bar",
    "reached",
    "limit",
    "share",
    "cores",
)


def number(value: float | None, unit: str = "") -> str:
    """Return a number with three digits and its unit, a dash for None."""
    if value is None:
        return "-"
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(map(str.ljust, line, widths)) + " |"
        for line in (head, rule, *lines)
    )


def cells(row: Row) -> list[str]:
    """Return a row's cells in the order of the table's head."""
    verdict = {None: "-", True: "yes", False: "no"}[row.reached]
    share = row.share_of_limit
    return [
        f"{row.work}: {row.what}",
        number(row.ours, row.unit),
        number(row.baseline, row.unit),
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        row.bar.text(row.unit) if row.bar else "-",
        verdict,
        number(row.limit, row.unit),
        "-" if share is None else f"{share:.0%}",
        _cores(row),
    ]


def _cores(row: Row) -> str:
    """Return the processors that ours and the baseline used."""
    used = (row.cores, row.baseline_cores)
    return ", ".join(f"{one:.2f}" for one in used if one is not None) or "-"


def table(rows: Sequence[Row]) -> str:
    """Return the table, followed by the notes of its rows."""
    text = markdown(_HEAD, [cells(row) for row in rows])
    notes = [f"- {row.work}: {row.what}: {row.note}" for row in rows if row.note]
    return "\n".join([text, *([""] if notes else []), *notes])


def write_results(path: str | Path, values: Sequence[dict]) -> None:
    """Write rows as JSON, atomically."""
    atomic_write(path, json.dumps(values, indent=1) + "\n")
