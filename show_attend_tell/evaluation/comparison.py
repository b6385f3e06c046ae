"""Compare evaluated runs: means over seeds, and paired bootstrap p-values.

The captions of every run are scored again, because p-values need the statistics of each
photo, which ``scores.json`` does not have. All runs are scored on the same resamples of
the photos. A p-value describes the choice of photos, not that of seeds, whose effect
the standard deviation shows.
"""

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import (
    Experiment,
    experiment_to_dict,
    read_experiment_file,
)
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import folder_of, read_photos
from show_attend_tell.evaluation.coco_results import read_captions
from show_attend_tell.evaluation.metrics import Statistic
from show_attend_tell.evaluation.metrics.bootstrap import paired_p, resample
from show_attend_tell.evaluation.report import score_photos
from show_attend_tell.runtime.errors import ConfigError, EvaluationError, quote
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import read_text_bytes
from show_attend_tell.runtime.table import align, markdown

SCORES = "scores.json"
FORMATS = ("text", "markdown", "csv", "latex")
DEFAULT_METRICS = ("BLEU-1", "BLEU-4", "METEOR", "CIDEr")
_SEED = re.compile(r"-seed-\d+(?=$|/|\.keras$)")
# Settings of an evaluation that runs of one row share.
_DECODING = ("beam", "length_normalisation", "max_words", "allow_unknown", "locations")


@dataclass(frozen=True)
class EvaluatedRun:
    """The scores and the captions of one evaluation of a run.

    Attributes:
        file: the file of the scores, in the run folder.
        experiment: the settings of the run.
        scores: content of the file.
        captions: photo id -> caption.
    """

    file: Path
    experiment: Experiment
    scores: dict
    captions: dict[str, str]

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.file.parent

    @property
    def suffix(self) -> str:
        """What the names of the files have in common, such as ``-beam-10``."""
        return self.file.stem.removeprefix(Path(SCORES).stem)

    @property
    def key(self) -> object:
        """Everything but name and seed: evaluations of equal keys share a row."""
        tables = experiment_to_dict(self.experiment)
        training = {k: v for k, v in tables["training"].items() if k != "seed"}
        training["init_from"] = _SEED.sub("", training["init_from"])
        tables |= {"name": "", "training": training}
        return tables, self.suffix, [self.scores.get(name) for name in _DECODING]


@dataclass(frozen=True)
class ComparisonRow:
    """One experiment, with one run or a run for each of several seeds.

    Attributes:
        label: name of the experiment or of the run folder.
        seeds: seed of each run.
        means: score -> mean over the runs.
        deviations: score -> standard deviation over the runs (n - 1); none of one run.
        p_values: score -> two-sided p-value of the difference to the first row; none
            in the first row.
    """

    label: str
    seeds: tuple[int, ...]
    means: dict[str, float]
    deviations: dict[str, float]
    p_values: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """A table of runs.

    Attributes:
        split: name of the split.
        photos: number of photos.
        tokenizer: tokenizer of the scores.
        rows: experiments in the order of their first runs.
    """

    split: str
    photos: int
    tokenizer: str
    rows: tuple[ComparisonRow, ...]


def compare_runs(
    names: Sequence[str | Path],
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    metrics: Sequence[str] | None = None,
) -> Comparison:
    """Compare runs by the captions of their last evaluations.

    Args:
        names: run folders, names of runs in `runs_folder`, or files of scores in run
            folders, such as ``scores-beam-10-reranked.json``; by default of a run
            ``scores.json``.
        work: folder of prepared data, for the captions of the photos.
        runs_folder: folder of run folders.
        metrics: scores to compare; by default those of :data:`DEFAULT_METRICS` that can
            be computed here.

    Raises:
        EvaluationError: a run has no evaluation, is named twice, or differs from the
            first in split, photos or tokenizer; or a score is unknown.
        ManifestError, ConfigError, ResultsFileError, MetricsError: a file is absent or
            malformed.
    """
    found = [_read_run(name, runs_folder) for name in names]
    _require_comparable(found)
    photos = _photos_of(found[0], work)
    statistics = [_score(run, photos) for run in found]
    known = set.intersection(*map(set, statistics))
    if metrics is None:
        metrics = [name for name in DEFAULT_METRICS if name in known]
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise EvaluationError(
            f"`metric` must be one of {', '.join(sorted(known))}. Received: "
            f"{quote(unknown[0])}"
        )
    chosen = [{name: own[name] for name in metrics} for own in statistics]
    groups = _grouped(found)
    resamples = [_mean_resamples([chosen[k] for k in group]) for group in groups]
    rows = []
    for group, own in zip(groups, resamples, strict=True):
        p_values = {}  # of the differences to the first row
        if group is not groups[0]:
            p_values = {name: paired_p(own[name] - resamples[0][name]) for name in own}
        members = [found[k] for k in group], [chosen[k] for k in group]
        rows.append(_row(*members, p_values))
    firsts = [found[group[0]] for group in groups]
    return Comparison(
        split=found[0].scores["split"],
        photos=len(photos),
        tokenizer=found[0].scores["tokenizer"],
        rows=_with_distinct_labels(rows, firsts),
    )


def _read_run(name: str | Path, runs_folder: str | Path) -> EvaluatedRun:
    """Read the settings, the scores and the captions of a run."""
    path = Path(name)
    if path.suffix != ".json":
        path = path / SCORES
    if not path.is_file():
        path = Path(runs_folder) / path
    folder = path.parent
    try:
        scores = parse_json(read_text_bytes(path))
    except FileNotFoundError:
        raise EvaluationError(
            f"{path}: no such file; evaluate the run with `show-attend-tell eval`"
        ) from None
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"{path}: cannot be read ({error}); evaluate the run again"
        ) from None
    if isinstance(scores, dict) and "split" in scores and "tokenizer" not in scores:
        raise EvaluationError(
            f"{path}: has no scores of captions; `compare` takes runs of captioners"
        )
    texts = ("split", "tokenizer", "experiment")
    if not isinstance(scores, dict) or not all(
        isinstance(scores.get(key), str) for key in texts
    ):
        raise EvaluationError(
            f"{path}: must have the keys {', '.join(texts)}; evaluate the run again"
        )
    settings = folder / runs.SETTINGS
    try:
        experiment = (
            read_experiment_file(settings)
            if settings.is_file()
            else load_experiment(scores["experiment"])
        )
    except ConfigError as error:
        raise EvaluationError(f"{settings}: cannot be read: {error}") from None
    suffix = EvaluatedRun(path, experiment, scores, {}).suffix
    split = Path(scores["split"]).name
    captions = read_captions(folder / f"captions-{split}{suffix}.json")
    return EvaluatedRun(path, experiment, scores, captions)


def _require_comparable(found: Sequence[EvaluatedRun]) -> None:
    """Raise an error unless all runs caption the same photos."""
    first, seen = found[0], set()
    for run in found:
        if run.file.resolve() in seen:
            raise EvaluationError(f"{run.folder}: the run is named twice; name it once")
        seen.add(run.file.resolve())
        for key in ("split", "tokenizer"):
            own, expected = run.scores[key], first.scores[key]
            if own != expected:
                raise EvaluationError(
                    f"{run.folder}: {key} must be that of {first.folder}, "
                    f"{expected!r}. Received: {own!r}; evaluate one of them again"
                )
        own, expected = run.experiment.data.name, first.experiment.data.name
        if own != expected or run.captions.keys() != first.captions.keys():
            raise EvaluationError(
                f"{run.folder}: must caption the {len(first.captions)} photos that "
                f"{first.folder} captions, of {expected!r}. Received: "
                f"{len(run.captions)} of {own!r}; evaluate both with the same data"
            )


def _photos_of(run: EvaluatedRun, work: str | Path) -> list[Photo]:
    """Return the photos that a run captions, from the manifest."""
    path = folder_of(run.experiment, work) / "manifest.jsonl"
    by_id = {photo.id: photo for photo in read_photos(run.experiment, work)}
    missing = [photo for photo in run.captions if photo not in by_id]
    if missing:
        raise EvaluationError(
            f"{path}: {len(missing)} photos of {run.folder} are missing, the first is "
            f"{missing[0]}; name the folder of its prepared data with --work"
        )
    return [by_id[photo] for photo in run.captions]


def _score(run: EvaluatedRun, photos: Iterable[Photo]) -> dict[str, Statistic]:
    """Return the statistic of each score of a run, in one order of the photos."""
    captions = {photo.id: run.captions[photo.id] for photo in photos}
    result = score_photos(captions, photos, run.scores["tokenizer"])
    saved = run.scores.get("BLEU-4")
    if (
        not isinstance(saved, int | float)
        or abs(saved - result.scores["BLEU-4"]) > 1e-6
    ):
        raise EvaluationError(
            f"{run.file}: BLEU-4 must be that of the captions beside it, "
            f"{result.scores['BLEU-4']:.4f}. Received: {saved}; evaluate the run again"
        )
    return result.statistics


def _grouped(found: Sequence[EvaluatedRun]) -> list[list[int]]:
    """Return the positions of the runs of each row, one run of each seed."""
    rows: list[tuple[object, dict[int, int]]] = []  # key, position of each seed's run
    for k, run in enumerate(found):
        key, seed = run.key, run.experiment.training.seed
        for own, members in rows:
            if own == key and seed not in members:
                members[seed] = k
                break
        else:
            rows.append((key, {seed: k}))
    return [list(members.values()) for _, members in rows]


def _mean_resamples(own: Sequence[dict[str, Statistic]]) -> dict[str, np.ndarray]:
    """Return the mean score of several runs on each resample, (R,) for each score."""
    each = [resample(statistics) for statistics in own]
    return {name: np.mean([one[name] for one in each], axis=0) for name in each[0]}


def _row(
    members: Sequence[EvaluatedRun],
    own: Sequence[dict[str, Statistic]],
    p_values: dict[str, float],
) -> ComparisonRow:
    values = {name: [one[name].score() for one in own] for name in own[0]}
    name, several = members[0].folder.name, len(members) > 1
    return ComparisonRow(
        label=(_SEED.sub("", name) if several else name) + members[0].suffix,
        seeds=tuple(run.experiment.training.seed for run in members),
        means={name: float(np.mean(scores)) for name, scores in values.items()},
        deviations={
            name: float(np.std(scores, ddof=1)) for name, scores in values.items()
        }
        if several
        else {},
        p_values=p_values,
    )


def _with_distinct_labels(
    rows: Sequence[ComparisonRow], firsts: Sequence[EvaluatedRun]
) -> tuple[ComparisonRow, ...]:
    """Return the rows, labelled by the path of the first run where names are equal."""
    labels = [row.label for row in rows]
    return tuple(
        dataclasses.replace(row, label=f"{first.folder}{first.suffix}")
        if labels.count(row.label) > 1
        else row
        for row, first in zip(rows, firsts, strict=True)
    )


def format_comparison(comparison: Comparison, style: str = "text") -> str:
    """Return the table of a comparison.

    Args:
        comparison: the rows.
        style: one of :data:`FORMATS`. CSV has the unrounded values in columns of their
            own, all others have ``mean ± deviation (p)``.
    """
    if style == "csv":
        return _to_csv(comparison)
    header = ["run", "seeds", *comparison.rows[0].means]
    rows = [
        _cells(row, "$\\pm$" if style == "latex" else "±") for row in comparison.rows
    ]
    note = (
        f"{comparison.photos} photos of {comparison.split}, tokenizer "
        f"{comparison.tokenizer}; mean ± standard deviation over seeds; p of the "
        "difference to the first row, paired bootstrap over photos"
    )
    if style == "latex":
        return _to_latex(header, rows, note)
    if style == "markdown":
        return "\n".join([*markdown([header, *rows]), "", note])
    return "\n".join([note, *align([header, *rows], "llr")])


def _cells(row: ComparisonRow, plus_minus: str) -> list[str]:
    """Return label, seeds and each score as text."""
    cells = [row.label, " ".join(map(str, row.seeds))]
    for name, mean in row.means.items():
        text = f"{mean:.2f}"
        if name in row.deviations:
            text += f" {plus_minus} {row.deviations[name]:.2f}"
        if name in row.p_values:
            text += f" ({row.p_values[name]:.3f})"
        cells.append(text)
    return cells


def _to_csv(comparison: Comparison) -> str:
    columns = ["run", "seeds", "split", "photos", "tokenizer"]
    for name in comparison.rows[0].means:
        columns += [name, f"{name} deviation", f"{name} p"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in comparison.rows:
        values = [row.label, " ".join(map(str, row.seeds)), comparison.split]
        values += [comparison.photos, comparison.tokenizer]
        for name, mean in row.means.items():
            values += [mean, row.deviations.get(name, ""), row.p_values.get(name, "")]
        writer.writerow(values)
    return out.getvalue().rstrip("\n")


def _to_latex(header: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a ``tabular``; the note is a comment above it."""
    lines = [" & ".join(map(_escape_latex, row)) for row in (header, *rows)]
    body = "\n".join(f"{line} \\\\" for line in lines[1:])
    return (
        f"% {note}\n\\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}\n\\hline\n"
        f"{lines[0]} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}"
    )


def _escape_latex(cell: str) -> str:
    return cell.replace("_", "\\_").replace("&", "\\&").replace("%", "\\%")
