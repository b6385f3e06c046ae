"""Run a recipe: the stages from data to packaged models, one after the other.

``experiments/reproduction/everyday.toml`` has the stages; its head names the keys. A
stage that ends is noted in ``stages.json`` of the recipe's run folder with its command,
revision, machine and seconds, and is not run again. So a recipe that was interrupted,
killed or refused continues where it was: the verbs themselves continue features and
trainings that are half done. A stage that ended with another command than it has now is
refused: what later stages made depends on it.
"""

import json
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from string import Template

from measured import machine, numbers_of
from reproduction_rows import RESULTS, RUNS, WORK

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.machine import git_revision

STAGES = "stages.json"
INTERRUPTED = "seconds of interrupted attempts"
_VERB = ("-m", "show_attend_tell")


def read_stages(name: str) -> list[dict]:
    """Return the stages of a recipe."""
    text = (RESULTS / f"{name}.toml").read_text(encoding="utf-8")
    stages: list[dict] = tomllib.loads(text)["stages"]
    return stages


def values_of(name: str, seed: int, data: str) -> dict[str, str]:
    """Return what the variables of the commands stand for.

    Args:
        name: the recipe.
        seed: of the recipe.
        data: the folder of the data sets.
    """
    folder = Path(data)
    own = folder / "everyday"  # photos with a table of captions
    source = "folder" if own.is_dir() else "everyday"
    photos = own if own.is_dir() else folder
    boxes = (own if own.is_dir() else WORK / "everyday") / "people_boxes.jsonl"
    return {
        "seed": str(seed),
        "data": shlex.quote(data),
        "everyday": f"--set data.source={source} --data {shlex.quote(str(photos))}",
        "boxes": f"--boxes {shlex.quote(str(boxes))}" if boxes.is_file() else "",
        "runs": str(RUNS),
        "made": str(run_folder(name, seed)),
    }


def run_folder(name: str, seed: int) -> Path:
    """Return the folder of what a recipe makes."""
    return RUNS / f"{name}-seed-{seed}"


def run_recipe(name: str, seed: int, data: str) -> list[dict]:
    """Run the stages of a recipe that are not done; return the runs of its result.

    Args:
        name: the recipe.
        seed: its seed.
        data: the folder of the data sets.

    Raises:
        DataError: the folder of the data sets is absent, or a stage that has ended has
            another command now.
        subprocess.CalledProcessError: a stage has failed; its message is printed.
    """
    if not Path(data or "absent").is_dir():
        raise DataError(
            "DATA must be the folder of the data sets, with a sub-folder for each (see "
            f"docs/datasets.md). Received: {data!r}; name it by DATA=FOLDER"
        )
    data = str(Path(data).resolve())
    folder = run_folder(name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / STAGES
    done = json.loads(journal.read_text("utf-8")) if journal.exists() else {}
    runs = []
    stages = read_stages(name)
    for number, stage in enumerate(stages, start=1):
        # An earlier stage may have written files that a later one names.
        words = words_of(stage, values_of(name, seed, data))
        command = _shown(words, data)
        title = stage["name"]
        ended_as = done.get(title, {}).get("command")
        if ended_as not in (None, command):
            raise DataError(
                f"{journal}: stage {title!r} ended as {ended_as!r}, which is now "
                f"{command!r}. Restore the recipe; or, to begin anew, remove {folder} "
                "and the runs of its trainings"
            )
        if ended_as is None:
            print(f"[{number}/{len(stages)}] {title}: {command}", flush=True)
            entry = done.setdefault(title, {INTERRUPTED: 0})
            try:
                done[title] = _attempt(stage, words, entry) | {"command": command}
            finally:
                atomic_write(journal, json.dumps(done, indent=1) + "\n")
        entry = done[title]
        if "scores" in stage:
            runs.append({"seed": seed, "label": stage["scores"], **entry["result"]})
    return [run | _about([done[stage["name"]] for stage in stages]) for run in runs]


def words_of(stage: dict, values: dict[str, str]) -> list[str]:
    """Return the command of a stage, without that of Python."""
    if "program" in stage:
        return shlex.split(Template(stage["program"]).substitute(values))
    return [*_VERB, *shlex.split(Template(stage["command"]).substitute(values))]


def _shown(words: Sequence[str], data: str) -> str:
    """Return a command as it is noted: without the folder of the data.

    Args:
        words: the command, where the folder of the data is absolute.
        data: that folder.
    """
    verb = words[: len(_VERB)] == list(_VERB)
    own = ["show-attend-tell", *words[len(_VERB) :]] if verb else ["python", *words]
    shown = [
        str("DIR" / Path(word).relative_to(data))
        if Path(word).is_relative_to(data)
        else word
        for word in own
    ]
    return shlex.join(shown)


def _attempt(stage: dict, words: Sequence[str], before: dict) -> dict:
    """Run a stage; return its entry.

    Args:
        stage: the stage.
        words: its command.
        before: has the seconds of interrupted attempts, also of this one.
    """
    started = time.time()
    try:
        entry = _run(stage, words)
    finally:
        before[INTERRUPTED] += round(time.time() - started)
    return entry | {"seconds": before[INTERRUPTED]}


def _run(stage: dict, words: Sequence[str]) -> dict:
    """Run a stage; return its entry."""
    revision = git_revision()
    printed = subprocess.PIPE if "program" in stage else None
    finished = subprocess.run([sys.executable, *words], check=True, stdout=printed)
    entry = {"revision": revision, "machine": machine()}
    if printed is not None:
        entry["printed"] = json.loads(finished.stdout)
    if "scores" in stage:
        run = RUNS / words[words.index("--name") + 1]
        file = max(run.glob("scores*.json"), key=lambda file: file.stat().st_mtime)
        entry["result"] = numbers_of(json.loads(file.read_text("utf-8")))
    return entry


def _about(entries: Sequence[dict]) -> dict:
    """Return where the stages ran and how long they took.

    The seconds are those of all attempts, unless the whole recipe was killed.
    """
    # None where the source is in no git repository.
    revisions = dict.fromkeys(entry["revision"] or "" for entry in entries)
    return {
        "seconds": sum(entry["seconds"] for entry in entries),
        "revision": ", ".join(filter(None, revisions)) or None,
        "machine": entries[-1]["machine"],
        "commands": [entry["command"] for entry in entries],
    }
