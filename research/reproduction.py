"""Run rows of ``experiments/reproduction/rows.toml``, write docs/reproduction.md.

    python research/reproduction.py                        list rows with cost and state
    python research/reproduction.py ROW ROW --data DIR     run rows, then write the page
    python research/reproduction.py ROW --cluster ADDRESS  train its seeds side by side
    python research/reproduction.py --write                write the page alone

A row is an experiment with changed settings and some seeds. To run it is to prepare
absent data and features, to train the runs ``<row>-seed-<n>``, where interrupted ones
continue, and to evaluate them. The result of each seed is added to
``experiments/reproduction/<row>.json``; seeds that it has are skipped. The page and
its figures are made from these files alone: ``reproduction_page.py``. A row that has
all its seeds is measured a second time, beside the first: ``second_measurement.py``
compares the two.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

from measured import machine, numbers_of
from recipe import STAGES, run_folder, run_recipe
from reproduction_figures import write_figures
from reproduction_page import PAGE, heading, page
from reproduction_rows import (
    NOT_MEASURED,
    RESULTS,
    RUNS,
    WORK,
    changes_of,
    commands,
    cost,
    missing_seeds,
    read_results,
    read_table,
)
from second_measurement import FOLDER, comparison

from data_prep.sources.captions import MANIFEST
from show_attend_tell.config import runs
from show_attend_tell.config.experiments import (
    load_experiment,
    rename,
    seed_variants,
)
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.splits import folder_of, load_vocabulary
from show_attend_tell.runtime.errors import DataError, ShowAttendTellError, nearest
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.machine import git_revision
from show_attend_tell.runtime.table import align
from show_attend_tell.training.checkpoint import is_trained


def run_row(
    name: str, rows: dict, seeds: list, data: str = "", options: tuple = ()
) -> list[dict]:
    """Run seeds of a row; return the runs of its result.

    Args:
        name: the row.
        rows: all rows.
        seeds: from :func:`missing_seeds`.
        data: the folder of archives or files, for ``prepare``.
        options: further options of ``train``.
    """
    row = rows[name]
    if "recipe" in row:
        return [run for seed in seeds for run in run_recipe(row["recipe"], seed, data)]
    found = []
    about = {"revision": git_revision(), "machine": machine()}
    verbs = commands(name, rows, seeds, data)
    done = []
    experiment = load_experiment(row["experiment"], changes_of(name, rows, seeds[0]))
    if not _is_prepared(experiment):
        command = _run("prepare", verbs["prepare"])
        done.append(command.replace(shlex.quote(data), "DIR"))  # on any machine
    if experiment.task == "caption":
        mirrored = experiment.encoder.mirror and "train" in verbs
        splits = (None, "train") if mirrored else (None,)
        folder = WORK / experiment.data.name
        encoder = experiment.encoder
        files = [feature_path(folder, encoder, split) for split in splits]
        if not all(file.exists() for file in files):
            done.append(_run("features", verbs["features"]))
    if "script" in row:
        command = [sys.executable, *shlex.split(row["script"])]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        about["commands"] = [*done, f"python {row['script']}"]
        return [run | about for run in json.loads(printed)["runs"]]
    if "train" in verbs:
        trained = seed_variants(rename(experiment, name), seeds)
        if not all(map(_is_trained, trained)):
            _run("train", [*verbs["train"], *options])
        done.append(shlex.join(["show-attend-tell", "train", *verbs["train"]]))
    for seed, arguments in zip(seeds, verbs["eval"], strict=True):
        folder = RUNS / arguments[arguments.index("--name") + 1]
        before = {file: file.stat().st_mtime_ns for file in folder.glob("scores*.json")}
        about["commands"] = [*done, _run("eval", arguments)]
        for file in sorted(folder.glob("scores*.json")):
            if before.get(file) != file.stat().st_mtime_ns:
                scores = json.loads(file.read_text("utf-8"))
                run = {} if seed is None else {"seed": seed}
                if "beams" in row:
                    run["label"] = f"beam {scores['beam']}"
                run["seconds"] = _seconds(folder)
                found.append(run | numbers_of(scores) | about)
    return found


def _run(verb: str, arguments: list[str]) -> str:
    command = ["show-attend-tell", verb, *arguments]
    print("$", shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", "show_attend_tell", *command[1:]], check=True)
    return shlex.join(command)


def _is_prepared(experiment) -> bool:
    """Return whether the data of an experiment are prepared.

    Photos need a manifest and the vocabulary of the experiment's settings. Digits and
    pictures are one .npz file. The list of words, a .jsonl file, is written last. Other
    files may be those of an interrupted or refused preparation. Of rendered words
    `prepare` finds out itself.
    """
    folder = folder_of(experiment, WORK)
    if experiment.task == "caption":
        try:
            load_vocabulary(experiment, WORK)
        except DataError:  # absent, or of an experiment with other settings
            return False
        return (folder / MANIFEST).is_file()
    if experiment.data.source == "words":
        return False
    present = folder.glob("[!.]*.*")
    return any(file.suffix in (".npz", ".jsonl") for file in present)


def _is_trained(experiment) -> bool:
    folder = RUNS / experiment.name
    return runs.holds_run(folder) and is_trained(folder, experiment)


def _seconds(folder: Path) -> int | None:
    """Return the time from the first file of a training to its last checkpoint."""
    files = [folder / name for name in (runs.SETTINGS, runs.CHECKPOINT)]
    if not all(file.exists() for file in files):
        return None
    first, last = (file.stat().st_mtime for file in files)
    return round(last - first)


def listing(rows: dict, results: dict) -> list[str]:
    """Return the rows as lines: name, cost of all seeds, state."""
    lines = [["row", "cost", "state"]]
    for name, row in rows.items():
        result = results.get(name, {})
        missing = missing_seeds(row, result)
        source = result.get("source", "measured")
        state = source if result else NOT_MEASURED
        if result and missing:
            state += f", without seed {', '.join(map(str, missing))}"
        spent = cost(row, len(row.get("seeds", [0])))
        trained = result and result["runs"][0].get("training")
        if trained and "of" not in row:
            spent = f"{trained['seconds']} s, {trained['machine'].split(',')[0]}"
        lines.append([name, spent, state])
    return align(lines, "lrl")


def next_measurement(
    name: str, row: dict, seed: int | None = None
) -> tuple[Path, dict, list]:
    """Return the file of the next measurement of a row, its content and its seeds.

    The second measurement follows when the first has every seed, or the one `seed`.
    """
    for folder in (RESULTS, RESULTS / FOLDER):
        file = folder / f"{name}.json"
        result = {"runs": []}
        if file.exists():
            result = json.loads(file.read_text("utf-8"))
        missing = missing_seeds(row, result)
        chosen = [number for number in missing if seed in (None, number)]
        if chosen:
            break
    return file, result, chosen


def _print_second(name: str, row: dict, file: Path, seeds: list) -> None:
    """Print what a second measurement measures, or that there is one."""
    if not seeds:
        print(f"{name}: measured twice; remove {file} to repeat the second measurement")
        return
    print(f"{name}: measured before; the second measurement is kept in {file}")
    run = row.get("of", name)
    for seed in seeds:
        if "recipe" in row:
            folder = run_folder(row["recipe"], seed)
            if (folder / STAGES).exists():
                print(
                    f"{folder}: stages that are done are not run again; remove it and "
                    "the runs of its trainings to measure them anew"
                )
            continue
        folder = RUNS / (run if seed is None else f"{run}-seed-{seed}")
        if runs.holds_run(folder):
            print(f"{folder}: trained before; remove it to train it anew")


def main() -> None:
    """List the rows, or run those that are named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ROW")
    parser.add_argument("--data", default="", help="folder of the archives or files")
    parser.add_argument("--cluster", help="address of a Ray cluster, see train")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--write", action="store_true", help="write the page alone")
    given = parser.parse_args()
    claims, rows = read_table()
    if unknown := [name for name in given.names if name not in rows]:
        close = nearest(unknown[0], rows)
        parser.error(f"{unknown[0]}: no such row{close}; without one, all are listed")
    for name in given.names:
        row = rows[name]
        if given.cluster and ("recipe" in row or "script" in row):
            parser.error(f"{name}: it runs on this machine; leave out --cluster")
        seeds = row.get("seeds", [])
        if given.seed is not None and given.seed not in seeds:
            has = f"it has {', '.join(map(str, seeds))}" if seeds else "it has no seeds"
            parser.error(f"{name}: no seed {given.seed}; {has}")
    options = ("--cluster", given.cluster) if given.cluster else ()
    for name in given.names:
        file, result, chosen = next_measurement(name, rows[name], given.seed)
        if file.parent != RESULTS:
            _print_second(name, rows[name], file, chosen)
        # On a cluster the seeds train side by side, unless they start from other runs.
        together = options and chosen and "after" not in rows[name]
        for seeds in [chosen] if together else [[x] for x in chosen]:
            result["runs"] += run_row(name, rows, seeds, given.data, options)
            text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
            atomic_write(file, text)
        if file.parent != RESULTS:
            first = read_results()[name]
            scores = claims[rows[name]["claim"]]["scores"]
            print("\n".join(comparison(name, scores, first, result)))
    results = read_results()
    if given.names or given.write:
        write_figures(claims, results, heading)
        atomic_write(PAGE, page(claims, rows, results))
    print("\n".join(listing(rows, results)))
    print("make reproduce ROWS='row row' DATA=<its photos or digits> runs rows.")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except ShowAttendTellError as error:
        sys.exit(f"error: {error}")
