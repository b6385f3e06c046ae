"""Write docs/reproduction.md from the claims, rows and results.

The page opens with a table of all claims: verdict, our figure, the paper's and one
sentence. The section of a claim has a paragraph, a small table and perhaps a figure; a
fold has every run with its interval and revision, and the commands.
"""

import re
import shlex

from reproduction_figures import figure_name, plotted
from reproduction_rows import (
    NOT_MEASURED,
    ROOT,
    cost,
    missing_seeds,
    origin,
    selected_runs,
)

from show_attend_tell.runtime.table import markdown

PAGE = ROOT / "docs" / "reproduction.md"
_SHARES = {"exact_match", "pointing", "pointing_centre", "pointing_mass"}
# Short headings of the columns.
_HEADINGS = {
    "BLEU-1-no-bp-files": "BLEU-1 ¹",
    "BLEU-4-no-bp-files": "BLEU-4 ¹",
    "SNR, 1": "SNR, 1 sample",
    "SNR, 5": "SNR, 5 samples",
    "SNR, 20": "SNR, 20 samples",
    "attention_entropy": "entropy of attention",
    "bound": "bound, nats",
    "distinct": "distinct captions",
    "error": "error, %",
    "exact_match": "exact captions",
    "mean_length": "words a caption",
    "pointing": "peak inside",
    "pointing_centre": "centre inside",
    "pointing_mass": "attention inside",
    "weighted_bound": "importance-weighted",
    "word_accuracy": "words read, %",
}
_HEAD = """\
# What of the papers reproduces

*Made by `make reproduce` from `experiments/reproduction/`: do not edit it.* Figures of
several seeds are separated by commas; [how they were measured](#how-it-was-measured).
"""
_NOTES = """\
## How it was measured

- BLEU (PTB tokenizer, with brevity penalty), METEOR and CIDEr are in percent. ¹ On the
  tokens of the files, without brevity penalty: probably the convention of Table 1.
- Flickr8k is measured on its 1,000 dev photos, on which settings were chosen too; the
  papers measure test photos. Features are VGG16's in 8 bits, the paper's are VGG19's.
- *Inside* is the share of named objects of the drawn scenes whose box contains the
  peak of attention, or the centre, and the attention inside; on photos, of people in
  400 photos of COCO.
- Brackets and bars are 95 % bootstrap intervals over the photos or words for one model.
  They do not contain the variation between seeds.
- The last column of the folded tables is the git revision. ² Measured before `make
  reproduce` existed; `git show 9d31cb6:experiments/LOG.md` has the circumstances.
  ³ Measured once, outside this repository.
- `make reproduce` lists rows with their cost, and `make reproduce ROWS='ROW ROW'
  DATA=DIR` runs some. The files of `experiments/reproduction/` have more scores, the
  machine, the seconds and the exact commands. A row that has its results is measured a
  second time: `again/` keeps that, and both are printed with intervals and a verdict.
"""


def page(claims: dict, rows: dict, results: dict) -> str:
    """Return the page in Markdown."""
    verdicts = markdown(_verdicts(claims, results))
    lines = [_HEAD, '<div class="claims" markdown>', "", *verdicts, "", "</div>", ""]
    lines.append(_NOTES)
    for key, claim in claims.items():
        lines += section(key, claim, rows, results)
    return "\n".join(lines).rstrip("\n") + "\n"


def _verdicts(claims: dict, results: dict) -> list[list[str]]:
    """Return the cells of the first table."""
    lines = [["claim", "verdict", "ours", "paper", "in one sentence"]]
    for claim in claims.values():
        name = f"[{claim['title']}](#{anchor(claim['title'])})"
        ours = headline(claim["ours"], results)
        figures = [ours, claim["paper_figure"]]
        lines.append([name, claim["verdict"], *figures, claim["sentence"]])
    return lines


def headline(template: str, results: dict) -> str:
    """Return a text with each ``{ROW|SCORE}`` or ``{ROW|LABEL|SCORE}`` filled in.

    A score is that of every run of the row with the label, without intervals, and
    ``revision`` the revision of these runs. Rows without results are "not measured",
    and so is a text of such rows alone.
    """

    def filled(match: re.Match) -> str:
        key, _, score = match[1].rpartition("|")
        found = selected_runs(key, results)
        if score == "revision":
            result = results.get(key.partition("|")[0], {})
            values = [_revision(origin(run, result)) for run in found]
        else:
            values = [value_of(score, run) for run in found if score in run["scores"]]
        return ", ".join(dict.fromkeys(values)) or NOT_MEASURED

    fields = list(re.finditer(r"\{([^{}]+)\}", template))
    if fields and all(filled(field) == NOT_MEASURED for field in fields):
        return NOT_MEASURED
    return re.sub(r"\{([^{}]+)\}", filled, template)


def section(key: str, claim: dict, rows: dict, results: dict) -> list[str]:
    """Return the lines of a claim: paragraph, small table, figure and fold."""
    own = [name for name, row in rows.items() if row["claim"] == key]
    lines = [f"## {claim['title']}", "", f"*{claim['paper']}.* {claim['text']}", ""]
    lines += [f"**Verdict: {claim['verdict']}.** {claim['reason']}", ""]
    if claim["columns"]:
        lines += [*markdown(small_table(claim, results)), ""]
    if plotted(claim, results):
        alternative = _alternative_text(claim)
        lines += [f"![{alternative}](images/reproduction/{figure_name(key)})", ""]
    lines += ["<details markdown>", "<summary>Every run, and the commands</summary>"]
    lines += ["", claim["detail"], ""] if "detail" in claim else [""]
    table = [["measured", "seed", *map(heading, claim["scores"]), "revision"]]
    for name in own:
        table += cells_of(name, rows[name], claim["scores"], results.get(name, {}))
    lines += [*markdown(table), "", *commands_of(own, rows, results), ""]
    return [*lines, "</details>", ""]


def small_table(claim: dict, results: dict) -> list[list[str]]:
    """Return the cells of a claim's small table: a line for several seeds."""
    table = [["measured", *map(heading, claim["columns"])]]
    for key, what in claim["shown"].items():
        found = selected_runs(key, results)
        cells = [
            ", ".join(value_of(score, run) for run in found if score in run["scores"])
            for score in claim["columns"]
        ]
        if not any(cells):
            cells = [NOT_MEASURED, *cells[1:]]
        table.append([what, *cells])
    for what, scores in claim.get("paper_scores", {}).items():
        cells = [_number(s, scores[s]) if s in scores else "" for s in claim["columns"]]
        table.append([f"*the paper: {what}*", *cells])
    return table


def _alternative_text(claim: dict) -> str:
    plot = claim["plot"]
    score = heading(plot["score"])
    if "x" in plot:
        return f"{score} against {plot['axis']}"
    return f"{score} of the lines of this table, with 95 % intervals"


def cells_of(name: str, row: dict, scores: list[str], result: dict) -> list:
    """Return the cells of a row: of each run, and of the seeds that were not run."""
    what = f"{row['what']} (`{name}`)"
    lines = []
    for run in result.get("runs", []):
        label = f"{what}, {run['label']}" if "label" in run else what
        values = [_with_interval(score, run) for score in scores]
        source = source_of(origin(run, result))
        lines.append([label, str(run.get("seed", "")), *values, source])
        what = f"`{name}`"  # once in full
    if missing := missing_seeds(row, result):
        seeds = "" if missing == [None] else ", ".join(map(str, missing))
        values = ["-" for _ in scores]
        lines.append([what, seeds, *values, f"{NOT_MEASURED}; {cost(row, 1)}"])
    return lines


def heading(score: str) -> str:
    """Return the heading of a column of scores."""
    return _HEADINGS.get(score, score)


def value_of(score: str, run: dict) -> str:
    """Return a score of a run, which must have it, with the decimals of its kind."""
    return _number(score, run["scores"][score])


def _number(score: str, value: float | str) -> str:
    if isinstance(value, str):  # a figure of others, with the decimals that they gave
        return value
    decimals = 3 if score in _SHARES else 2
    small = 0 < abs(value) < 0.1 and score not in _SHARES
    return f"{value:.2g}" if small else f"{value:.{decimals}f}"


def _with_interval(score: str, run: dict) -> str:
    if score not in run["scores"]:
        return ""
    text = value_of(score, run)
    if ends := run.get("intervals", {}).get(score):
        decimals = 3 if score in _SHARES else 2
        text += " [{:.{d}f}, {:.{d}f}]".format(*ends, d=decimals)
    return text


def source_of(run: dict) -> str:
    """Return the revision of a run, and how it was measured or trained otherwise."""
    revision = _revision(run)
    if "LOG.md" in run.get("source", ""):
        return f"{revision} ²"
    if "source" in run:
        return f"{revision} ³"
    training = run.get("training")
    return f"{revision}, trained on {training['machine']}" if training else revision


def _revision(run: dict) -> str:
    return run["revision"] or "no git repository"


def commands_of(names: list[str], rows: dict, results: dict) -> list[str]:
    """Return the lines of the commands that measure rows, those of one data set in one.

    Rows with seeds that an earlier program trained on JAX begin with its command.
    """
    lines: list[str] = []
    by_data: dict[str, list[str]] = {}
    for name in names:
        by_data.setdefault(rows[name].get("data", ""), []).append(name)
        found = results.get(name, {}).get("runs", [])
        trained = [run["training"] for run in found if "training" in run]
        if trained and "of" not in rows[name]:
            first = trained[0]
            seeds = ", ".join(map(str, first["seeds"]))
            lines += [
                f"    # at {first['revision']} (seeds {seeds} of {name}):",
                f"    KERAS_BACKEND=jax {first['command']}",
            ]
    for data, several in by_data.items():
        rows_option = shlex.quote(" ".join(several))
        folder = f" DATA=DIR    # DIR: {data}" if data else ""
        lines.append(f"    make reproduce ROWS={rows_option}{folder}")
    return lines


def anchor(title: str) -> str:
    """Return the anchor that MkDocs and GitHub give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
