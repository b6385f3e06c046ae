"""Compare evaluated runs: means over seeds, and paired bootstrap p-values.

The captions of every run are scored again, because p-values need the statistics of each
photo, which ``scores.json`` does not have. All runs are scored on the same resamples of
the photos. A p-value describes the choice of photos; the standard deviation shows the
effect of the seed. The settings in which rows differ from the first follow the table.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm.contrib.logging import logging_redirect_tqdm

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import (
    AnyExperiment,
    experiment_from_dict,
    experiment_to_dict,
    read_experiment_file,
)
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import folder_of, read_photos
from show_attend_tell.evaluation.coco_results import read_captions
from show_attend_tell.evaluation.metrics.bootstrap import (
    Statistic,
    paired_p,
    resample,
)
from show_attend_tell.evaluation.report import decimals_of, score_photos
from show_attend_tell.runtime.errors import ConfigError, EvaluationError, nearest, quote
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.table import align, markdown
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

SCORES = "scores.json"
FORMATS = ("text", "markdown", "csv")
DEFAULT_METRICS = ("BLEU-1", "BLEU-4", "METEOR", "CIDEr")
# The mark of a run of one seed, in a name, a path or the path of a model.
_SEED = re.compile(r"-seed-\d+(?=$|/|\.safetensors$)")
# Decoding settings that the runs of a row share.
_DECODING = (
    "temperature",
    "beam",
    "length_normalisation",
    "max_words",
    "allow_unknown",
    "locations",
)


@dataclass(frozen=True)
class _Run:
    """One evaluation of a run.

    Attributes:
        file: the file of the scores, in the run folder.
        experiment: the settings of the run.
        scores: content of the file.
        suffix: shared end of the names of the evaluation's files: ``-beam-10``.
        captions: photo id -> caption.
    """

    file: Path
    experiment: AnyExperiment
    scores: dict
    suffix: str
    captions: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of the training, none for captions of a file."""
        if "captions" in self.scores:
            return ()
        return (self.experiment.training.seed,)

    @property
    def method(self) -> object:
        """The method of decoding, which scores of version 0.3 do not record."""
        return self.scores.get("method", "beam")

    @property
    def key(self) -> object:
        """Everything but name and seed: evaluations of equal keys share a row."""
        tables = experiment_to_dict(self.experiment)
        training = {k: v for k, v in tables["training"].items() if k != "seed"}
        # Each seed may start from its own run of an earlier stage.
        training["init_from"] = _SEED.sub("", training["init_from"])
        tables |= {"name": "", "training": training}
        # None for a setting that the method does not use, as the temperature of a beam.
        decoding = [self.scores.get(name) for name in _DECODING]
        return tables, self.suffix, self.method, decoding

    @property
    def settings(self) -> dict[str, object]:
        """The settings by key, without name and seed, and who wrote the captions."""
        if "captions" in self.scores:
            return {"captions": self.scores["captions"]}
        settings: dict[str, object] = {"captions": "by the model"}
        for table, values in experiment_to_dict(self.experiment).items():
            if isinstance(values, dict):
                settings |= {f"{table}.{key}": value for key, value in values.items()}
        settings["decoding.method"] = self.method
        for name in _DECODING:
            if name in self.scores:  # as eval was asked to
                settings[f"decoding.{name}"] = self.scores[name]
        settings["mirror"] = self.scores.get("mirror", False)
        settings["reranked"] = "reranker" in self.scores
        settings["training.init_from"] = _SEED.sub(
            "", self.experiment.training.init_from
        )
        del settings["training.seed"]
        return settings


@dataclass(frozen=True)
class ComparisonRow:
    """One experiment, with one run or a run for each of several seeds.

    Attributes:
        label: name of the experiment or of the run folder.
        seeds: seed of each run.
        means: score -> mean over the runs.
        deviations: score -> standard deviation over the runs (n - 1), if several.
        p_values: score -> two-sided p-value of the difference to the first row; empty
            for the first row.
        settings: key -> value of each setting that differs from the first row.
        others: key -> the value of the first row.
    """

    label: str
    seeds: tuple[int, ...]  # none for captions of a file
    means: dict[str, float]
    deviations: dict[str, float]
    p_values: dict[str, float]
    settings: dict[str, object] = field(default_factory=dict)
    others: dict[str, object] = field(default_factory=dict)


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
    progress: bool = True,
) -> Comparison:
    """Compare runs by the captions of their last evaluations.

    Args:
        names: run folders, names of runs in `runs_folder`, or files of scores in run
            folders, such as ``scores-beam-10-reranked.json``. A run or a folder stands
            for its ``scores.json``.
        work: folder of prepared data, for the captions of the photos.
        runs_folder: folder of run folders.
        metrics: scores to compare; by default those of :data:`DEFAULT_METRICS` that can
            be computed here.
        progress: whether to show a progress bar.

    Raises:
        EvaluationError: a run has no evaluation, is named twice, or differs from the
            first in split, photos or tokenizer; or a score is unknown.
        DataError, ConfigError, EvaluationError: a file is absent or malformed.
    """
    evaluated = [_read_run(name, runs_folder) for name in names]
    _require_comparable(evaluated)
    first = evaluated[0]
    photos = _photos_of(first, work)
    statistics = _score_runs(evaluated, photos, metrics, progress)
    metrics = _require_metrics(metrics, statistics)
    groups = _group(evaluated)
    labels = _labels([[evaluated[k] for k in group] for group in groups])
    rows = []
    baseline = None  # the first row's scores of the resamples
    for label, group in zip(labels, groups, strict=True):
        chosen = [{name: statistics[k][name] for name in metrics} for k in group]
        # The same seed draws the same photos for every run, so the rows are paired.
        resamples = list(map(resample, chosen))
        # score -> (R,), the mean over the runs on each resample
        mean = {
            n: np.mean([scores[n] for scores in resamples], axis=0) for n in metrics
        }
        p_values = {}
        if baseline is None:
            baseline = mean
        else:
            p_values = {name: paired_p(mean[name] - baseline[name]) for name in metrics}
        values = {name: [each[name].score() for each in chosen] for name in metrics}
        deviations = {}
        if len(group) > 1:
            deviations = {n: float(np.std(each, ddof=1)) for n, each in values.items()}
        # The runs of a row differ only in name and seed: the first stands for all.
        run = evaluated[group[0]]
        settings, others = _differences(run.settings, first.settings)
        row = ComparisonRow(
            label=label,
            seeds=tuple(seed for k in group for seed in evaluated[k].seeds),
            means={name: float(np.mean(each)) for name, each in values.items()},
            deviations=deviations,
            p_values=p_values,
            settings=settings,
            others=others,
        )
        rows.append(row)
    split = first.scores["split"]
    tokenizer = first.scores["tokenizer"]
    return Comparison(split, len(photos), tokenizer, tuple(rows))


def _score_runs(
    evaluated: Sequence[_Run],
    photos: Sequence[Photo],
    metrics: Sequence[str] | None,
    progress: bool,
) -> list[dict[str, Statistic]]:
    """Return the statistics of each run's scores, in the order of `photos`."""
    statistics = []
    bar = progress_bar(len(evaluated), "run", "scoring", shown=progress)
    with logging_redirect_tqdm(), bar:
        for run in evaluated:
            bar.set_postfix_str(run.folder.name)
            # In one order for all runs, as their statistics are paired row by row.
            captions = {photo.id: run.captions[photo.id] for photo in photos}
            result = score_photos(captions, photos, run.scores["tokenizer"])
            statistics.append(result.statistics)
            # After the first run: scoring all of many runs takes minutes.
            _require_metrics(metrics, statistics)
            bar.update()
    return statistics


def _require_metrics(
    metrics: Sequence[str] | None, statistics: Sequence[dict[str, Statistic]]
) -> list[str]:
    """Return the scores to compare, which all runs must have."""
    known = set.intersection(*map(set, statistics))
    if metrics is None:
        return [name for name in DEFAULT_METRICS if name in known]
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise EvaluationError(
            f"`metric` must be one of {', '.join(sorted(known))}. Received: "
            f"{quote(unknown[0])}"
        )
    return list(metrics)


def _differences(
    settings: dict[str, object], others: dict[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings that differ from others, and the others' values of them."""
    both = [key for key in settings if key in others]
    keys = [key for key in both if settings[key] != others[key]]
    return {key: settings[key] for key in keys}, {key: others[key] for key in keys}


def _read_run(name: str | Path, runs_folder: str | Path) -> _Run:
    """Read the settings, the scores and the captions of a run."""
    path = Path(name)
    if path.suffix != ".json":
        path = path / SCORES
    if not path.is_file():
        # Only now the name of a run: a path wins.
        path = Path(runs_folder) / path
    folder = path.parent
    if not folder.is_dir():
        known = nearest(folder.name, (run.name for run in folder.parent.glob("*/")))
        raise EvaluationError(
            f"{folder}: no such run{known}; `show-attend-tell eval` scores a run"
        )
    absent = "file; evaluate the run with `show-attend-tell eval`"
    with reading(path, EvaluationError, "evaluate the run again", absent):
        scores = parse_json(read_text_bytes(path))
    keys = ("split", "tokenizer", "experiment")
    if not isinstance(scores, dict) or not all(
        isinstance(scores.get(key), str) for key in keys
    ):
        raise EvaluationError(
            f"{path}: must have the keys {', '.join(keys)} of an evaluated captioner; "
            "evaluate the run again, or score captions with eval --captions"
        )
    settings = folder / runs.SETTINGS
    experiment: AnyExperiment
    read_from = path
    try:
        if settings.is_file():
            read_from = settings
            experiment = read_experiment_file(settings)
        elif isinstance(scores.get("settings"), dict):  # of a run without a training
            experiment = experiment_from_dict(scores["settings"], str(path))
        else:
            experiment = load_experiment(scores["experiment"])
    except ConfigError as error:
        raise EvaluationError(f"{read_from}: cannot be read: {error}") from None
    # Without folders: a forged split must not name a file outside of the run folder.
    split = Path(scores["split"]).name
    suffix = path.stem.removeprefix("scores")
    captions = read_captions(folder / f"captions-{split}{suffix}.json")
    return _Run(path, experiment, scores, suffix, captions)


def _require_comparable(evaluated: Sequence[_Run]) -> None:
    """Raise an error unless all runs caption the same photos."""
    first = evaluated[0]
    seen = set()
    for run in evaluated:
        if run.file.resolve() in seen:
            raise EvaluationError(f"{run.folder}: the run is named twice; name it once")
        seen.add(run.file.resolve())
        for key in ("split", "tokenizer"):
            value = run.scores[key]
            expected = first.scores[key]
            if value != expected:
                raise EvaluationError(
                    f"{run.folder}: {key} must be {expected!r}, as for {first.folder}. "
                    f"Received: {value!r}; evaluate one of them again"
                )
        data = run.experiment.data.name
        expected = first.experiment.data.name
        if data != expected or run.captions.keys() != first.captions.keys():
            raise EvaluationError(
                f"{run.folder}: must caption the {len(first.captions)} photos that "
                f"{first.folder} captions, of {expected!r}. Received: "
                f"{len(run.captions)} of {data!r}; evaluate both with the same data"
            )


def _photos_of(run: _Run, work: str | Path) -> list[Photo]:
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


def _group(evaluated: Sequence[_Run]) -> list[list[int]]:
    """Return the positions of the runs of each row, one run of each seed."""
    rows: list[tuple[object, dict[int, int]]] = []  # key, position of each seed's run
    for k, run in enumerate(evaluated):
        key = run.key
        seed = run.experiment.training.seed
        for row_key, members in rows:
            if row_key == key and seed not in members:
                members[seed] = k
                break
        else:
            # No row has this key, or the row has a run of this seed already.
            rows.append((key, {seed: k}))
    return [list(members.values()) for _, members in rows]


def _labels(groups: Sequence[Sequence[_Run]]) -> list[str]:
    """Return the names of the runs, or the path of the first where names are equal."""
    labels = []
    for group in groups:
        name = group[0].folder.name
        labels.append(_SEED.sub("", name) if len(group) > 1 else name)
        labels[-1] += group[0].suffix
    return [
        f"{group[0].folder}{group[0].suffix}" if labels.count(label) > 1 else label
        for label, group in zip(labels, groups, strict=True)
    ]


def format_comparison(comparison: Comparison, style: str = "text") -> str:
    """Return the table of a comparison.

    Args:
        comparison: the rows.
        style: one of :data:`FORMATS`. CSV has a column for each unrounded value; the
            other formats print ``mean ± deviation (p)``.
    """
    if style == "csv":
        return _to_csv(comparison)
    rows = [["run", "seeds", *comparison.rows[0].means]]
    for row in comparison.rows:
        cells = [row.label, " ".join(map(str, row.seeds))]
        for name, mean in row.means.items():
            decimals = decimals_of(name)
            text = f"{mean:.{decimals}f}"
            if name in row.deviations:
                text += f" ± {row.deviations[name]:.{decimals}f}"
            if name in row.p_values:
                text += f" ({row.p_values[name]:.3f})"
            cells.append(text)
        rows.append(cells)
    note = (
        f"{comparison.photos} photos of {comparison.split}, tokenizer "
        f"{comparison.tokenizer}; mean ± standard deviation over seeds; p of the "
        "difference to the first row, paired bootstrap over photos"
    )
    settings = _setting_lines(comparison)
    if style == "markdown":
        listed = [f"- {line}" for line in settings]
        return "\n".join([*markdown(rows), "", note, "", *listed]).rstrip()
    return "\n".join([note, *align(rows, "llr"), *settings])


def _setting_lines(comparison: Comparison) -> list[str]:
    """Return a line for each further row: the settings that differ from the first."""
    first = comparison.rows[0].label
    lines = []
    for row in comparison.rows[1:]:
        changes = [
            f"{key} = {quote(value)} (not {quote(row.others[key])})"
            for key, value in row.settings.items()
        ]
        listed = ", ".join(changes) or "no setting"
        lines.append(f"{row.label} differs from {first} in {listed}")
    return lines


def _to_csv(comparison: Comparison) -> str:
    columns = ["run", "seeds", "split", "photos", "tokenizer"]
    for name in comparison.rows[0].means:
        columns += [name, f"{name} deviation", f"{name} p"]
    columns.append("settings that differ")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in comparison.rows:
        values: list[object]
        values = [row.label, " ".join(map(str, row.seeds)), comparison.split]
        values += [comparison.photos, comparison.tokenizer]
        for name, mean in row.means.items():
            values += [mean, row.deviations.get(name, ""), row.p_values.get(name, "")]
        changes = [f"{key} = {value}" for key, value in row.settings.items()]
        values.append("; ".join(changes))
        writer.writerow(values)
    return out.getvalue().rstrip("\n")
