"""Find the commands in Markdown: console lines of indented and fenced blocks."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

# A line of a block is a command if it starts with one of these programs.
PROGRAMS = re.compile(
    r"(?:\$ )?((?:[A-Z_]+=\S+ )*(?:[^\s=]*/)?"
    r"(?:show-attend-tell|make|curl|python3?|pip|exiftool|export|jupyter|git)(?: .*)?)$"
)
CONSOLE = {"", "sh", "bash", "shell", "console", "text"}  # info strings of fences
COMMENT = re.compile(r"\s+#( .*)?$")


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a document, its continued lines joined, without its comment."""

    document: str
    text: str


def documents(root: Path) -> list[Path]:
    """Return README.md and the pages of docs/ in a checkout."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def commands_of(root: Path) -> list[Command]:
    """Return all commands of the documents of a checkout, in order."""
    return [
        Command(str(path.relative_to(root)), text)
        for path in documents(root)
        for text in commands(path.read_text(encoding="utf-8"))
    ]


def commands(markdown: str) -> list[str]:
    """Return the commands of a Markdown text, in order."""
    found = []
    lines = iter(block_lines(markdown))
    for line in lines:
        line = COMMENT.sub("", line)
        match = PROGRAMS.match(line.strip())
        if match is None:
            continue
        text = match[1]
        while text.endswith("\\"):
            text = text[:-1].rstrip() + " " + next(lines, "").strip()
        # A value between quotes may go on in the next line.
        while text.count("'") % 2:
            text += " " + next(lines, "'").strip()
        found.append(text)
    return found


def block_lines(markdown: str) -> Iterator[str]:
    """Yield the lines of indented blocks and of fenced blocks of console text."""
    fence = None  # the info string of the fence that is open
    for line in markdown.splitlines():
        opening = re.match(r"\s*```(\w*)", line)
        if opening:
            fence = opening[1] if fence is None else None
        elif fence is not None:
            if fence in CONSOLE:
                yield line
        elif line.startswith("    "):
            yield line
