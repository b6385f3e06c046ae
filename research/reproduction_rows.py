"""Read the claims, rows and results of ``experiments/reproduction/``.

``rows.toml`` has the claims of the papers and the rows that test them; its head names
the keys. ``<row>.json`` has the measured runs of a row. A row is an experiment with
changed settings and some seeds, from which the arguments of the verbs follow.
"""

import json
import tomllib
from pathlib import Path

from show_attend_tell.config import runs

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "reproduction"
NOT_MEASURED = "not measured"
VERDICTS = (
    "reproduced",
    "partly",
    "not reproduced",
    "untestable here",
    "not claimed",
)
RUNS = Path("experiments/runs")
WORK = Path("prepared")


def read_table() -> tuple[dict, dict]:
    """Return the claims and the rows by name."""
    # Not by `parse_toml`, which limits the length of files that others wrote.
    tables = tomllib.loads((RESULTS / "rows.toml").read_text(encoding="utf-8"))
    return tables["claims"], tables["rows"]


def read_results() -> dict[str, dict]:
    """Return the results by row."""
    files = sorted(RESULTS.glob("*.json"))
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


def missing_seeds(row: dict, result: dict) -> list:
    """Return the seeds of a row without a result; [None] of a row without seeds."""
    done = {run.get("seed") for run in result.get("runs", [])}
    return [seed for seed in row.get("seeds", [None]) if seed not in done]


def selected_runs(key: str, results: dict) -> list[dict]:
    """Return the runs that a key of a claim names.

    Args:
        key: ``ROW``, its runs without a label; ``ROW|LABEL``; or several of these with
            `` + `` between them: the runs of the first, to which runs of the others
            with the same seed add the scores that it lacks.
        results: the results by row.
    """
    first, *others = key.split(" + ")
    found = _runs_of(first, results)
    for other in others:
        scores = {run.get("seed"): run["scores"] for run in _runs_of(other, results)}
        found = [
            run | {"scores": scores.get(run.get("seed"), {}) | run["scores"]}
            for run in found
        ]
    return found


def _runs_of(key: str, results: dict) -> list[dict]:
    name, _, label = key.partition("|")
    found = results.get(name, {}).get("runs", [])
    return [run for run in found if run.get("label", "") == label]


def origin(run: dict, result: dict) -> dict:
    """Return what has the revision of a run, and its source: the run or its result."""
    return run if "revision" in run else result | run


def cost(row: dict, seeds: int) -> str:
    """Return the minutes of some seeds of a row, in words."""
    minutes = row.get("minutes")
    return "cost not measured" if minutes is None else f"{minutes * seeds} min"


def changes_of(name: str, rows: dict, seed: int = 1) -> list[str]:
    """Return the changed settings of a row, KEY=VALUE.

    ``seed`` is that of the run that training starts from, with ``after``.
    """
    row = rows[name]
    first = []
    if "of" in row:
        first = rows[row["of"]].get("set", [])
    if "after" in row:
        model = RUNS / f"{row['after']}-seed-{seed}" / runs.MODEL
        first = [f"training.init_from={model}"]
    return [*first, *row.get("set", [])]


def commands(name: str, rows: dict, seeds: list, data: str = "DIR") -> dict:
    """Return the arguments of the verbs that measure seeds of a row, by verb.

    ``eval`` has those of each seed.
    """
    row = rows[name]
    run = row.get("of", name)
    experiment = ["-e", row["experiment"]]
    changed = changes_of(name, rows, seeds[0])
    changes = [x for change in changed for x in ("--set", change)]
    given = ["--data", data] if "data" in row else []
    changed = [*experiment, *changes]
    verbs = {"prepare": [*changed, *given], "features": changed}
    if run == name and not {"model", "script", "recipe"} & row.keys():
        several = ["--seeds", ",".join(map(str, seeds)), "--resume"]
        verbs["train"] = [*experiment, "--name", name, *several, *changes]
    options = ["--model", row["model"]] if "model" in row else []
    options += [x for beam in row.get("beams", []) for x in ("--beam", str(beam))]
    named = [run if seed is None else f"{run}-seed-{seed}" for seed in seeds]
    options += [*changes, *row.get("eval", [])]
    return verbs | {"eval": [[*experiment, "--name", n, *options] for n in named]}
