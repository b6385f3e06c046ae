"""Format a comparison of runs as text, Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Sequence

from show_attend_tell.evaluation.comparison import Comparison, ComparisonRow

FORMATS = ("text", "markdown", "csv", "latex")


def format_comparison(comparison: Comparison, style: str = "text") -> str:
    """Return the table of a comparison.

    Args:
        comparison: the rows.
        style: one of :data:`FORMATS`. CSV has the unrounded values in columns of their
            own, all others have ``mean ± deviation (p)``.
    """
    if style == "csv":
        return _to_csv(comparison)
    header = ["run", "seeds", *comparison.rows[0].means]
    rows = [
        _cells(row, "$\\pm$" if style == "latex" else "±") for row in comparison.rows
    ]
    note = (
        f"{comparison.photos} photos of {comparison.split}, tokenizer "
        f"{comparison.tokenizer}; mean ± standard deviation over seeds; p of the "
        "difference to the first row, paired bootstrap over photos"
    )
    if style == "latex":
        return _to_latex(header, rows, note)
    if style == "markdown":
        lines = [header, ["---"] * len(header), *map(_escape_bars, rows)]
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", note])
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    ]
    return "\n".join([note, *(line.rstrip() for line in lines)])


def _cells(row: ComparisonRow, plus_minus: str) -> list[str]:
    """Return label, seeds and each score as text."""
    cells = [row.label, " ".join(map(str, row.seeds))]
    for name, mean in row.means.items():
        text = f"{mean:.2f}"
        if name in row.deviations:
            text += f" {plus_minus} {row.deviations[name]:.2f}"
        if name in row.p_values:
            text += f" ({row.p_values[name]:.3f})"
        cells.append(text)
    return cells


def _escape_bars(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


def _to_csv(comparison: Comparison) -> str:
    columns = ["run", "seeds", "split", "photos", "tokenizer"]
    for name in comparison.rows[0].means:
        columns += [name, f"{name} deviation", f"{name} p"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in comparison.rows:
        values = [row.label, " ".join(map(str, row.seeds)), comparison.split]
        values += [comparison.photos, comparison.tokenizer]
        for name, mean in row.means.items():
            values += [mean, row.deviations.get(name, ""), row.p_values.get(name, "")]
        writer.writerow(values)
    return out.getvalue().rstrip("\n")


def _to_latex(header: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a ``tabular``; the note is a comment above it."""
    lines = [" & ".join(map(_escape_latex, row)) for row in (header, *rows)]
    body = "\n".join(f"{line} \\\\" for line in lines[1:])
    return (
        f"% {note}\n\\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}\n\\hline\n"
        f"{lines[0]} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}"
    )


def _escape_latex(cell: str) -> str:
    return cell.replace("_", "\\_").replace("&", "\\&").replace("%", "\\%")
