"""The table as people read it, and results.json."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.row import Row

_HEAD = ("work", "ours", "baseline", "ratio", "bar", "reached", "limit", "share")


def number(value: float | None, unit: str = "") -> str:
    """Return a number in three digits with its unit, a dash for None."""
    if value is None:
        return "-"
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned."""
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
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the whole table with the rows' notes below."""
    text = markdown(_HEAD, [cells(row) for row in rows])
    notes = [f"- {row.work}: {row.what}: {row.note}" for row in rows if row.note]
    return "\n".join([text, *([""] if notes else []), *notes])


def write(path: str | Path, values: Sequence[dict]) -> None:
    """Write rows as JSON, all or nothing."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
