"""Run the command line of a checkout, of whatever revision, in the present Python."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MODEL_SUFFIXES = (".keras", ".safetensors")
MODEL_FOLDERS = ("show_attend_tell", "experiments/models")


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A folder with the source files of one revision."""

    path: Path

    def environment(self) -> dict[str, str]:
        """Return the environment in which Python imports this checkout's packages."""
        fixed = {
            "PYTHONPATH": str(self.path),
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # Sums in one order; and no spinning threads beside other work.
            "OPENBLAS_NUM_THREADS": "1",
        }
        return os.environ | fixed

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line of `show-attend-tell` with some arguments."""
        return [sys.executable, "-m", "show_attend_tell", *map(str, arguments)]

    def run(self, folder: Path, *arguments: str | Path) -> str:
        """Run `show-attend-tell` in a folder and return its standard output.

        Raises:
            RuntimeError: it failed; with the end of its standard error.
        """
        done = subprocess.run(
            self.command(*arguments),
            cwd=folder,
            env=self.environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            words = " ".join(map(str, arguments[:4]))
            raise RuntimeError(
                f"{self.path}: `show-attend-tell {words} ...` failed with status "
                f"{done.returncode}: {done.stderr[-500:]}"
            )
        return done.stdout

    def model_file(self, name: str) -> Path:
        """Return the file of a shipped model by its name without suffix.

        Raises:
            RuntimeError: there is none, or more than one.
        """
        found = [
            path
            for folder in MODEL_FOLDERS
            for path in sorted((self.path / folder).rglob(f"{name}.*"))
            if path.stem == name and path.suffix in MODEL_SUFFIXES
        ]
        if len(found) != 1:
            raise RuntimeError(
                f"{self.path}: must have one model {name!r} in "
                f"{' or '.join(MODEL_FOLDERS)}. Received: {list(map(str, found))}"
            )
        return found[0]


def worktree(repository: Path, revision: str, path: Path) -> Checkout:
    """Return a checkout of a revision at a path, which git makes unless it exists."""
    if not path.exists():
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(path), revision],
            cwd=repository,
            check=True,
        )
    return Checkout(path)


def engine_options(usage: str, engine: str) -> Sequence[str]:
    """Return the options that choose ``numpy`` or ``keras`` from the usage of a verb.

    The name of NumPy's engine, and whether it has one, differs between revisions.

    Raises:
        RuntimeError: the usage names no option ``--engine``.
    """
    choices = re.search(r"--engine\s+(?:\[([\w|]+)\]|(\w+))", usage)
    if choices is None:
        raise RuntimeError("`caption --help` must name the option --engine")
    names = (choices[1] or choices[2]).split("|")
    if engine == "keras":
        return ("--engine", "keras")
    others = [name for name in names if name not in ("auto", "keras")]
    return ("--engine", others[0]) if others else ()
