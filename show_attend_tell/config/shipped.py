"""List the shipped experiments; imports no settings, so that ``--help`` is fast.

They are the TOML files of ``experiments/``, which is inside the package in an
installation and beside the package in a checkout.
"""

import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_experiments() -> dict[str, Path]:
    """Return the file of each shipped experiment by name, in alphabetical order."""
    for folder in (_PACKAGE / "experiments", _PACKAGE.parent / "experiments"):
        files = sorted(folder.glob("*.toml"))
        if files:
            return {file.stem: file for file in files}
    return {}


def experiment_task(path: Path) -> str:
    """Return the task of an experiment's file."""
    found = re.search(r'^task = "(\w+)"', path.read_text(encoding="utf-8"), re.M)
    return found[1] if found else "caption"


def experiment_summary(path: Path) -> str:
    """Return the first sentence of an experiment's header, on one line."""
    lines = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = line.removeprefix("#").strip()
            if not line.startswith("#") or not text:
                break
            lines.append(text)
    return " ".join(lines).partition(". ")[0].removesuffix(".")
