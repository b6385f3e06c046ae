"""Run rows of ``experiments/reproduction/rows.toml``, write docs/reproduction.md.

    python docs/reproduction.py                        list rows with cost and state
    python docs/reproduction.py ROW ROW --data DIR     run rows, then write the page
    python docs/reproduction.py ROW --cluster ADDRESS  train its seeds side by side
    python docs/reproduction.py --write                write the page alone

A row is an experiment with changed settings and some seeds. To run it is to prepare
absent data and features, to train the runs ``<row>-seed-<n>``, where interrupted ones
continue, and to evaluate them. Its result is ``experiments/reproduction/<row>.json``;
rows that have one are skipped. The tables of the page are made from these files alone.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.toml import read_toml
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.shard_store import feature_set
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.machine import git_revision
from show_attend_tell.runtime.table import align, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "reproduction"
PAGE = ROOT / "docs" / "reproduction.md"
NOT_RUN, VERDICTS = "not run yet", ("reproduced", "partly", "not", "untestable here")
RUNS, WORK = Path("experiments/runs"), Path("prepared")
_DIGITS = 4  # decimals in result files
_SHARES = {"exact_match", "pointing", "pointing_centre", "pointing_mass"}
_HEAD = """\
# What of the papers reproduces

*Made by `make reproduce` from `experiments/reproduction/`; do not edit it.* Each claim
has a verdict, the rows that test it and their commands. BLEU (with brevity penalty, PTB
tokenizer), METEOR and CIDEr are in percent. Brackets are 95 % bootstrap intervals over
the photos for one model; they do not contain the variation between seeds. Flickr8k is
measured on its 1,000 dev photos, on which settings were chosen too; the papers measure
test photos. The last column is the git revision, and for figures that were measured
earlier the section of the log.
"""


def read_table() -> tuple[dict, dict]:
    """Return the claims and the rows by name."""
    tables = read_toml(RESULTS / "rows.toml")
    return tables["claims"], tables["rows"]


def read_results() -> dict[str, dict]:
    """Return the results by row."""
    files = sorted(RESULTS.glob("*.json"))
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


def commands(name: str, rows: dict, data: str = "DIR") -> dict[str, list[str]]:
    """Return the arguments of the verbs that make a row, by verb.

    ``eval`` is the evaluation of the run of the first seed.
    """
    row = rows[name]
    trained = row.get("of", name)
    experiment = ["-e", row["experiment"]]
    changes = [] if trained == name else rows[trained].get("set", [])
    changes = [
        x for change in (*changes, *row.get("set", [])) for x in ("--set", change)
    ]
    start = []
    if "after" in row:
        file = RUNS / f"{row['after']}-seed-{row['seeds'][0]}" / runs.MODEL
        start = ["--init-from", str(file)]
    given = ["--data", data] if "data" in row else []
    verbs = {"prepare": [*experiment, *given], "features": experiment}
    if trained == name and "model" not in row:
        seeds = ",".join(map(str, row["seeds"]))
        named = [*experiment, "--name", name, "--seeds", seeds, "--resume"]
        verbs["train"] = [*named, *changes, *start]
    options = ["--model", row["model"]] if "model" in row else []
    run = f"{trained}-seed-{row['seeds'][0]}"
    options += [x for beam in row.get("beams", []) for x in ("--beam", str(beam))]
    measured = [*experiment, "--name", run, *options, *changes, *row.get("eval", [])]
    return verbs | {"eval": measured}


def run_row(name: str, rows: dict, data: str, options: list[str]) -> dict:
    """Run a row; return its result."""
    row, entries = rows[name], []
    machine = {"revision": git_revision(), "machine": _machine()}
    if "script" in row:
        command = shlex.split(row["script"])
        done = subprocess.run([sys.executable, *command], check=True, stdout=-1)
        return (
            {"command": f"python {row['script']}"} | machine | json.loads(done.stdout)
        )
    verbs, done = commands(name, rows, data), []
    experiment = load_experiment(row["experiment"], row.get("set", []))
    if not (WORK / experiment.data.name).exists():
        done.append(_run("prepare", verbs["prepare"]))
    if experiment.task == "caption":
        file = feature_path(WORK / experiment.data.name, experiment.encoder)
        if not feature_set(file).exists():
            done.append(_run("features", verbs["features"]))
    if "train" in verbs:
        done.append(_run("train", [*verbs["train"], *options]))
    for seed in row["seeds"]:
        first, own = f"-seed-{row['seeds'][0]}", f"-seed-{seed}"
        arguments = [
            x.removesuffix(first) + own if x.endswith(first) else x
            for x in verbs["eval"]
        ]
        folder = RUNS / arguments[arguments.index("--name") + 1]
        before = {file: file.stat().st_mtime_ns for file in folder.glob("scores*.json")}
        done.append(_run("eval", arguments))
        for file in sorted(folder.glob("scores*.json")):
            if before.get(file) != file.stat().st_mtime_ns:
                scores = json.loads(file.read_text("utf-8"))
                entry = {"seed": seed, "seconds": _seconds(folder), **_kept(scores)}
                if "beams" in row:
                    entry["label"] = f"beam {scores['beam']}"
                entries.append(entry)
    return {"commands": done} | machine | {"runs": entries}


def _run(verb: str, arguments: list[str]) -> str:
    command = ["show-attend-tell", verb, *arguments]
    print("$", shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", "show_attend_tell", *command[1:]], check=True)
    return shlex.join(command)


def _kept(scores: dict) -> dict:
    """Return the numbers of a scores.json, rounded, and their intervals."""
    intervals = scores.get("intervals", {}).get("scores", {})
    intervals |= {"word_accuracy": scores["interval"]} if "interval" in scores else {}
    numbers = {k: x for k, x in scores.items() if isinstance(x, int | float)}
    return {
        "scores": {name: round(x, _DIGITS) for name, x in numbers.items()},
        "intervals": {
            name: [round(x, _DIGITS) for x in ends] for name, ends in intervals.items()
        },
    }


def _seconds(folder: Path) -> int | None:
    """Return the time from the first file of a training to its last checkpoint."""
    files = [folder / name for name in (runs.SETTINGS, runs.CHECKPOINT)]
    if not all(file.exists() for file in files):
        return None
    first, last = (file.stat().st_mtime for file in files)
    return round(last - first)


def _machine() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    load = os.getloadavg()[2]
    return f"{os.cpu_count()} cores, {names[0] if names else '?'}, load {load:.0f}"


def state_of(name: str, results: dict) -> str:
    """Return where the figures of a row are from."""
    if name not in results:
        return NOT_RUN
    return results[name].get("source") or f"measured at {results[name]['revision']}"


def listing(rows: dict, results: dict) -> list[str]:
    """Return the rows as lines: name, cost, state."""
    lines = [
        [
            name,
            _cost(row, len(row.get("seeds", [0]))),
            state_of(name, results),
        ]
        for name, row in rows.items()
    ]
    return align([["row", "cost", "state"], *lines])


def _cost(row: dict, seeds: int) -> str:
    minutes = row.get("minutes")
    return "cost not measured" if minutes is None else f"{minutes * seeds} min"


def page(claims: dict, rows: dict, results: dict) -> str:
    """Return the page in Markdown."""
    verdicts = [
        [f"[{claim['title']}](#{_anchor(claim['title'])})", claim["verdict"]]
        for claim in claims.values()
    ]
    lines = [_HEAD, *markdown([["claim", "verdict"], *verdicts])]
    for key, claim in claims.items():
        own = [name for name, row in rows.items() if row["claim"] == key]
        lines += [
            "",
            f"## {claim['title']}",
            "",
            f"*{claim['paper']}.* {claim['text']}",
        ]
        lines += ["", f"**Verdict: {claim['verdict']}.** {claim['reason']}", ""]
        table = [["measured", "seed", *claim["scores"], "from"]]
        for name in own:
            table += _cells_of(name, rows[name], claim["scores"], results.get(name))
        lines += markdown(table)
        for name in own:
            lines += ["", *_commands_of(rows[name], name, results.get(name, {}))]
    return "\n".join(lines) + "\n"


def _cells_of(name: str, row: dict, scores: list[str], result: dict | None) -> list:
    """Return the cells of a row for each of its runs."""
    what, seeds = f"{row['what']} (`{name}`)", row.get("seeds", [])
    if result is None:
        cost = f"not run; {_cost(row, 1)} a seed"
        return [[what, ", ".join(map(str, seeds)), *("-" for _ in scores), cost]]
    lines = []
    for run in result["runs"]:
        label = f"{what}, {run['label']}" if "label" in run else what
        values = [_cell(score, run) for score in scores]
        lines.append([label, str(run.get("seed", "")), *values, _source(result | run)])
    return lines


def _cell(name: str, run: dict) -> str:
    if name not in run["scores"]:
        return ""
    decimals = 3 if name in _SHARES else 2
    value = run["scores"][name]
    text = f"{value:.2g}" if abs(value) < 0.1 else f"{value:.{decimals}f}"
    if ends := run.get("intervals", {}).get(name):
        text += " [{:.{d}f}, {:.{d}f}]".format(*ends, d=decimals)
    return text


def _source(result: dict) -> str:
    if "source" not in result:
        return f"{result['revision']}"
    section = result["source"].removeprefix("LOG.md, section ")
    link = f"[LOG, {section}](../experiments/LOG.md#{_anchor(section)})"
    return f"{link}, {result['revision']}"


def _commands_of(row: dict, name: str, result: dict) -> list[str]:
    if "source" in result:
        return [f"    {command}" for command in result["commands"]]
    return [f"    make reproduce ROWS={name}" + (" DATA=DIR" if "data" in row else "")]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def main() -> None:
    """List the rows, or run those that are named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ROW")
    parser.add_argument("--data", default="", help="folder of the archives or files")
    parser.add_argument("--cluster", help="address of a Ray cluster, see train")
    parser.add_argument("--write", action="store_true", help="write the page alone")
    given = parser.parse_args()
    claims, rows = read_table()
    if unknown := [name for name in given.names if name not in rows]:
        parser.error(f"{unknown[0]}: no such row; the rows are {', '.join(rows)}")
    for name in given.names:
        if name in read_results():
            print(f"{name}: already measured; delete its file to measure it again")
            continue
        options = ["--cluster", given.cluster] if given.cluster else []
        result = run_row(name, rows, given.data, options)
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        atomic_write(RESULTS / f"{name}.json", text)
    results = read_results()
    if given.names or given.write:
        atomic_write(PAGE, page(claims, rows, results))
    print("\n".join(listing(rows, results)))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
