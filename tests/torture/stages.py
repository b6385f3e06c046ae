"""Stages in processes of their own, and the comparison of what they write."""

import os
import re
import shutil
import time
from pathlib import Path

import command_line
from child_process import Child, Limits
from tally import Tally

SECONDS = 600  # a run that takes longer hangs, also on a busy machine
_TIMES = re.compile(rb'"(seconds|date|date_saved|revision|cores)": [^,}\n]*')


def content_of(path: Path, folder: Path | None = None) -> object:
    """Return what must be equal: the content, JSON without times.

    Args:
        path: the file.
        folder: its mention in the file is left out.
    """
    content = path.read_bytes()
    if folder is not None:
        content = content.replace(os.fsencode(folder), b"")
    return _TIMES.sub(b"", content)


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("events.")
    }


def differences(folder: Path, reference: Path, parts: list[str]) -> list[str]:
    """Return the files that differ, are missing or are left over."""
    found, wanted = (
        {f"{part}/{name}": p for part in parts for name, p in _files(f / part).items()}
        for f in (folder, reference)
    )
    lost = [f"{name} missing" for name in sorted(wanted.keys() - found.keys())]
    lost += [f"{name} left over" for name in sorted(found.keys() - wanted.keys())]
    for name in sorted(found.keys() & wanted.keys()):
        ours, theirs = (
            content_of(found[name], folder),
            content_of(wanted[name], reference),
        )
        if ours != theirs:
            lost.append(f"{name} differs{_differing_members(ours, theirs)}")
    return lost


def _differing_members(ours: object, theirs: object) -> str:
    """Return which members of two archives differ, with the start of the first."""
    if not isinstance(ours, dict):
        return ""
    names = sorted(
        k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)
    )
    if "position.json" in names:
        return (
            f" in {len(names)}: {ours['position.json']}, not {theirs['position.json']}"
        )
    return f" in {len(names)} of {len(theirs)} members: {', '.join(names[:3])}"


class Stage:
    """One stage: its arguments, what it needs and what it writes."""

    def __init__(self, verb: str, world, root: Path):
        self.verb, self.world, self.root = verb, world, root
        self.reference = root / "reference"
        self.parts = {"prepare": ["work"], "features": ["work"]}.get(verb, ["runs"])
        self.parts = ["out"] if verb == "caption" else self.parts
        self.reset(self.reference)
        self.changes = root / "changes"
        start = time.monotonic()
        done = self.start(self.reference, count_to=str(self.changes)).end(SECONDS)
        assert done.code == 0, done
        self.seconds = time.monotonic() - start
        self.change_count = int(self.changes.read_text())

    def reset(self, folder: Path) -> None:
        """Make a folder as the earlier stages left it."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        work = self.world.work / "tiny"
        if self.verb == "caption":
            (folder / "out").mkdir()
        elif self.verb != "prepare":
            shutil.copytree(work, folder / "work" / "tiny")
        if self.verb == "features":
            for path in (folder / "work" / "tiny").glob("features*"):
                path.unlink()
        if self.verb == "eval":
            shutil.copytree(self.world.runs, folder / "runs")
            for path in (folder / "runs" / "tiny").glob("*.json"):
                path.unlink()

    def arguments(self, folder: Path) -> list[str]:
        """Return the arguments for the folder's next run."""
        if self.verb == "caption":
            out = str(folder / "out" / "rows.jsonl")
            model = str(self.world.model)
            return ["caption", "--model", model, "--out", out, str(self.world.photos)]
        more = ["--set", "training.validate_every=2"] if self.verb == "train" else []
        if (folder / "runs" / "tiny" / "checkpoint.safetensors").exists():
            more += ["--resume"] if self.verb == "train" else []
        elif self.verb == "train":
            more += ["--overwrite"]
        return self.world.stage(self.verb, folder, *more)

    def start(self, folder: Path, **limits) -> Child:
        """Start the next run in a folder."""
        return Child(self.arguments(folder), folder, Limits(**limits))


def count_end(
    tally: Tally, stage: Stage, folder: Path, case: str, kills: int = 1, **limits
) -> None:
    """Run a stage to its end and compare; a chain of kills counts as so many."""
    done = stage.start(folder, **limits).end(SECONDS)
    outcome, signature = command_line.judge(done, refused="refused")
    lost = [] if signature else differences(folder, stage.reference, stage.parts)
    if lost:
        outcome, signature = "failed", f"results differ: {', '.join(lost[:3])}"
    for _ in range(kills if outcome == "handled" else 1):
        tally.count(case, outcome, signature)
