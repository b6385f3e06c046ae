"""Print the rows of a report as aligned text or Markdown."""

from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def align(rows: Rows, columns: str = "lr") -> list[str]:
    """Return a line of text for each row, with every column as wide as its cells.

    Args:
        rows: the cells of each row; a row may end early.
        columns: the alignment of each column, ``l`` (left) or ``r`` (right); the last
            letter holds for all further columns.
    """
    count = max(map(len, rows), default=0)
    letters = columns.ljust(count, columns[-1])
    widths = [
        max((len(row[k]) for row in rows if k < len(row)), default=0)
        for k in range(count)
    ]

    def cell(k: int, text: str) -> str:
        return text.rjust(widths[k]) if letters[k] == "r" else text.ljust(widths[k])

    return [
        "  ".join(cell(k, text) for k, text in enumerate(row)).rstrip() for row in rows
    ]


def markdown(rows: Rows) -> list[str]:
    """Return the lines of a Markdown table; the first row is the header."""
    header, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [header, ["---"] * len(header), *body]
    return [f"| {' | '.join(line)} |" for line in lines]
