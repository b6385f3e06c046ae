"""Draw the figures of docs/reproduction.md: intervals of each run, or curves.

A figure is an SVG file in ``docs/images/reproduction/``. It holds the digest of what it
shows, and is drawn again only if that changes, because another version of Matplotlib
writes other bytes. Delete a file to have it drawn again.
"""

import hashlib
import io
import json
import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from reproduction_rows import ROOT, selected_runs

from show_attend_tell.runtime.files import atomic_write

FIGURES = ROOT / "docs" / "images" / "reproduction"
_COLOURS = ("#5d4037", "#e64a19", "#00796b", "#455a64")
# In inches.
_WIDTH = 7.0
_LINE_HEIGHT = 0.34
_MARGINS = 0.75
_SEED_STEP = 0.22  # between the seeds of a line, in lines
# Text stays text, and ids of the file do not change from run to run.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "reproduction", "font.size": 9}


def figure_name(key: str) -> str:
    """Return the file name of a claim's figure."""
    return f"{key}.svg"


def plotted(claim: dict, results: dict) -> dict:
    """Return what the figure of a claim shows; empty without a plot or without results.

    Returns:
        ``score``; ``intervals``: for each line its label and, of each run, value and
        interval, with ``beside`` a second value; or ``curves``: for each curve its
        label, positions and values.
    """
    plot = claim.get("plot")
    if plot is None:
        return {}
    if "x" in plot:
        curves = _curves(plot, claim, results)
        shape = {"axis": plot["axis"], "log": plot.get("log", False)}
        return {"score": plot["score"], "curves": curves, **shape} if curves else {}
    lines = _intervals(plot, claim, results)
    if not lines:
        return {}
    papers = {
        what: float(scores[plot["score"]])
        for what, scores in claim.get("paper_scores", {}).items()
        if plot["score"] in scores
    }
    return {"score": plot["score"], "intervals": lines, "papers": papers}


def _intervals(plot: dict, claim: dict, results: dict) -> list[dict]:
    score = plot["score"]
    lines = []
    for key in plot.get("lines", claim["shown"]):
        found = [r for r in selected_runs(key, results) if score in r["scores"]]
        points = [
            {
                "value": float(run["scores"][score]),
                "ends": run.get("intervals", {}).get(score),
            }
            for run in found
        ]
        line = {"label": claim["shown"][key], "points": points}
        if "beside" in plot:
            line["beside"] = [float(run["scores"][plot["beside"]]) for run in found]
        if points:
            lines.append(line)
    return lines


def _curves(plot: dict, claim: dict, results: dict) -> list[dict]:
    names = dict.fromkeys(key.partition("|")[0] for key in claim["shown"])
    curves: dict[str, list] = {}
    for run in (run for name in names for run in results.get(name, {}).get("runs", [])):
        match = re.fullmatch(plot["x"], run.get("label", ""))
        if match and plot["score"] in run["scores"]:
            label = match.groupdict().get("line", "")
            point = [int(match["x"]), run["scores"][plot["score"]]]
            curves.setdefault(label, []).append(point)
    return [{"label": label, "points": sorted(p)} for label, p in curves.items()]


def digest_of(shown: dict) -> str:
    """Return the digest of what a figure shows."""
    text = json.dumps(shown, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_figures(claims: dict, results: dict, headings) -> None:
    """Draw the figures that are absent or show other results.

    Args:
        claims: the claims by key.
        results: the results by row.
        headings: a function that returns the words for the name of a score.
    """
    for key, claim in claims.items():
        shown = plotted(claim, results)
        path = FIGURES / figure_name(key)
        if shown and not is_current(path, shown):
            FIGURES.mkdir(parents=True, exist_ok=True)
            atomic_write(path, draw(shown, headings))


def is_current(path: Path, shown: dict) -> bool:
    """Return whether the figure at a path shows this."""
    return path.exists() and digest_of(shown) in path.read_text("utf-8")


def draw(shown: dict, headings) -> str:
    """Return a figure as the text of an SVG file."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _height(shown)), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        if "curves" in shown:
            _draw_curves(axes, shown, headings)
        else:
            _draw_intervals(axes, shown, headings)
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Description": digest_of(shown)}
        figure.savefig(file, format="svg", metadata=metadata)
    # Matplotlib ends some lines with spaces.
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _height(shown: dict) -> float:
    if "curves" in shown:
        return 2.8
    return _MARGINS + _LINE_HEIGHT * len(shown["intervals"])


def _draw_intervals(axes, shown: dict, headings) -> None:
    """Draw a dot with its interval for each run; seeds of a line are apart."""
    lines = shown["intervals"]
    for place, line in enumerate(lines):
        count = len(line["points"])
        for k, point in enumerate(line["points"]):
            y = place + _SEED_STEP * (k - (count - 1) / 2)
            if point["ends"]:
                axes.plot(point["ends"], [y, y], color=_COLOURS[0], linewidth=1.2)
            axes.plot(point["value"], y, "o", color=_COLOURS[0], markersize=4)
            if "beside" in line:
                axes.plot(line["beside"][k], y, "x", color=_COLOURS[1], markersize=4)
    if any("beside" in line for line in lines):
        axes.plot([], [], "o", color=_COLOURS[0], markersize=4, label="peak inside")
        axes.plot([], [], "x", color=_COLOURS[1], markersize=4, label="centre inside")
        axes.legend(frameon=False, fontsize=8)
    for what, value in shown["papers"].items():
        axes.axvline(value, color=_COLOURS[1], linewidth=1, linestyle="--")
        axes.annotate(f"paper: {what}", (value, -0.75), fontsize=7, color=_COLOURS[1])
    axes.set_yticks(range(len(lines)), [line["label"] for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(headings(shown["score"]))


def _draw_curves(axes, shown: dict, headings) -> None:
    """Draw a curve for each label, over equally spaced positions."""
    positions = sorted({x for curve in shown["curves"] for x, _ in curve["points"]})
    for curve, colour in zip(shown["curves"], _COLOURS, strict=False):
        places = [positions.index(x) for x, _ in curve["points"]]
        values = [y for _, y in curve["points"]]
        axes.plot(places, values, "o-", color=colour, label=curve["label"])
    axes.set_xticks(range(len(positions)), [f"{x:,}" for x in positions])
    if shown["log"]:
        axes.set_yscale("log")
    if len(shown["curves"]) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_xlabel(shown["axis"])
    axes.set_ylabel(headings(shown["score"]))
