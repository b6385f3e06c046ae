"""Compare the second measurement of a row with its first.

The first is ``experiments/reproduction/<row>.json``, the second is beside it in
``experiments/reproduction/again/``, which nothing replaces. Two scores of the same
photos agree if one is within the other's 95 % bootstrap interval. An interval contains
the choice of photos, not the variation between seeds or machines.
"""

from show_attend_tell.runtime.table import align

FOLDER = "again"  # beside the first measurements
AGREES = "agrees"
DIFFERS = "differs"
UNKNOWN = "no interval"


def verdict_of(score: str, first: dict, second: dict) -> str:
    """Return whether a score of two runs agrees, differs, or has no interval."""
    value = float(first["scores"][score])
    other = float(second["scores"][score])
    intervals = (
        (first.get("intervals", {}).get(score), other),
        (second.get("intervals", {}).get(score), value),
    )
    within = [ends[0] <= x <= ends[1] for ends, x in intervals if ends is not None]
    if value == other or any(within):
        return AGREES
    return DIFFERS if within else UNKNOWN


def comparison(name: str, scores: list[str], first: dict, second: dict) -> list[str]:
    """Return a table of two measurements of a row and a verdict, as lines.

    Args:
        name: the row.
        scores: the scores that its claim shows.
        first: its result.
        second: the result of its second measurement.
    """
    before = {_key(run): run for run in first["runs"]}
    table = [["score", "seed", "first", "second", ""]]
    apart = []
    verdicts = set()
    for run in second["runs"]:
        earlier = before.get(_key(run))
        if earlier is None:
            continue
        seed, label = _key(run)
        part = " ".join(str(x) for x in (seed, label) if x is not None)
        for score in scores:
            if score in run["scores"] and score in earlier["scores"]:
                verdict = verdict_of(score, earlier, run)
                cells = [_cell(score, earlier), _cell(score, run)]
                table.append([score, part, *cells, verdict])
                verdicts.add(verdict)
                if verdict == DIFFERS:
                    apart.append(f"{score} (seed {part})" if part else score)
    if apart:
        verdict = f"{DIFFERS} in {', '.join(apart)}"
    else:
        verdict = AGREES if AGREES in verdicts else UNKNOWN
    revisions = [_revision(result) for result in (first, second)]
    title = f"{name}: first at {revisions[0]}, second at {revisions[1]}"
    return [title, *align(table, "lrrrl"), f"verdict: {verdict}"]


def _key(run: dict) -> tuple:
    return run.get("seed"), run.get("label")


def _cell(score: str, run: dict) -> str:
    text = f"{float(run['scores'][score]):.4g}"
    if ends := run.get("intervals", {}).get(score):
        text += f" [{ends[0]:.4g}, {ends[1]:.4g}]"
    return text


def _revision(result: dict) -> str:
    return result["runs"][-1].get("revision") or result.get("revision") or "no revision"
