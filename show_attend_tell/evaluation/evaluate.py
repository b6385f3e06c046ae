"""Evaluate an experiment: write captions of a split, save them, then score them."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from show_attend_tell.config import runs
from show_attend_tell.config.settings import DecodingSettings, Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import Box, load_photo, seen_region
from show_attend_tell.data.splits import Split, folder_of, load_split, open_features
from show_attend_tell.evaluation import coco_results as captions_file
from show_attend_tell.evaluation.pointing_game import (
    Pointing,
    pointing_score,
    pointings,
)
from show_attend_tell.evaluation.report import (
    EvaluationReport,
    how_written,
    label_of,
    looked_from,
    make_report,
)
from show_attend_tell.evaluation.validation import best_words, write_captions
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import EvaluationError, ManifestError, PhotoError
from show_attend_tell.runtime.progress import progress_bar

_DIGITS = 6  # of log-probabilities in files


class Written(NamedTuple):
    """The captions written for a split, in the order of its photos.

    ``captions`` by photo id; ``log_probs`` in nats; ``pointings`` of all photos whose
    objects are known, None where there are none; ``notes``; ``seconds``.
    """

    captions: dict[str, str]
    log_probs: list[float]
    pointings: list[Pointing] | None
    notes: tuple[str, ...]
    seconds: float


def evaluate(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    beam: int | None = None,
    tokenizer: str = "auto",
    spice: bool = False,
    model: str | Path | None = None,
    suffix: str = "",
    progress: bool = True,
) -> EvaluationReport:
    """Write the captions of a split, save them, score them, save the scores.

    The run folder receives ``captions-<split>.json``, a list of ``image_id``,
    ``caption`` and ``log_prob`` (nats), and after it ``scores.json``. Where words are
    written from the likeliest or a sampled location, both names say so before their
    ``.json``: ``scores-likeliest.json``, ``scores-sampled-seed-3.json``.

    Args:
        experiment: the settings; those of decoding are used.
        work: folder of prepared data.
        runs_folder: where the experiment's run folder lies.
        split: by default ``test`` where it has captions, else ``val``.
        beam: hypotheses per photo, 1 is greedy; by default the experiment's.
        tokenizer: ``auto``, ``ptb`` or ``simple``, see :func:`metrics.score`.
        spice: whether to compute SPICE too.
        model: file of a captioner, by default the best of the experiment's run.
        suffix: of the names of both files, before ``.json``.
        progress: whether to show a bar with time left.

    Raises:
        EvaluationError: ``beam`` is below 1.
        ModelFileError, FeatureError, ManifestError: the model or the prepared data are
            absent, or do not fit each other.
        MetricsError: the captions, saved by then, cannot be scored.
    """
    decoding = experiment.decoding
    if beam is not None:
        if beam < 1:
            raise EvaluationError(f"`beam` must be at least 1. Received: {beam}")
        decoding = dataclasses.replace(decoding, beam=beam)
    folder = Path(runs_folder) / experiment.name
    file = folder / runs.MODEL if model is None else Path(model)
    photos = manifest.read_manifest(folder_of(experiment, work) / "manifest.jsonl")
    split = split or default_split(photos)
    captioner = load_captioner(file)
    identity = captioner.encoder_identity
    suffix += "".join(f"-{part}" for part in looked_from(decoding))
    with open_features(experiment, work, identity=identity) as reader:
        data = load_split(experiment, work, split, reader)
        written = _write(captioner, reader, data, decoding, progress)
    folder.mkdir(parents=True, exist_ok=True)
    _save_captions(folder / f"captions-{split}{suffix}.json", written)
    made = {"experiment": experiment.name, "model": str(file)}
    made |= how_written(decoding) | {"seconds": round(written.seconds, 1)}
    report = make_report(
        label_of(decoding),
        written.captions,
        data.photos,
        tokenizer,
        spice,
        made,
    )
    report = _complete(report, written, _left_out(photos, data))
    runs.write_json(folder / f"scores{suffix}.json", report.to_dict())
    return report


def compare(
    experiment: Experiment,
    work: str | Path,
    runs_folder: str | Path,
    split: str | None,
    beams: Sequence[int],
    tokenizer: str = "auto",
    spice: bool = False,
    progress: bool = True,
) -> list[EvaluationReport]:
    """Evaluate an experiment with several beams, for a table of them.

    The experiment's own beam is saved as :func:`evaluate` does, every other with the
    suffix ``-beam-<n>``, so that ``scores.json`` holds the experiment's own.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: where the experiment's run folder lies.
        split: by default ``test`` where it has captions, else ``val``.
        beams: the widths, in the order of the reports.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE too.
        progress: whether to show bars with time left.

    Raises:
        ValueError: as :func:`evaluate`.
    """
    return [
        evaluate(
            experiment,
            work,
            runs_folder,
            split,
            beam,
            tokenizer,
            spice,
            suffix="" if beam == experiment.decoding.beam else f"-beam-{beam}",
            progress=progress,
        )
        for beam in dict.fromkeys(beams)
    ]


def score_file(
    file: str | Path,
    experiment: Experiment,
    work: str | Path = "prepared",
    split: str | None = None,
    tokenizer: str = "auto",
    spice: bool = False,
) -> EvaluationReport:
    """Score captions made elsewhere; nothing is written.

    Args:
        file: of captions, in a form that :mod:`captions_file` reads, one for each
            captioned photo of the split.
        experiment: names the prepared data.
        work: folder of prepared data.
        split: by default ``test`` where it has captions, else ``val``.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE too.

    Raises:
        ResultsFileError: the file cannot be read, or its photos are not the split's.
        ManifestError: the manifest is absent or damaged, or the split is empty.
        MetricsError: the captions cannot be scored.
    """
    path = folder_of(experiment, work) / "manifest.jsonl"
    everything = manifest.read_manifest(path)
    split = split or default_split(everything)
    photos = [p for p in everything if p.split == split and p.captions]
    if not photos:
        raise ManifestError(
            f"{path}: split {split!r} has no photo with captions; choose another split"
        )
    captions = captions_file.read(file, [photo.id for photo in photos])
    made = {"captions": str(file)}
    return make_report("captions", captions, photos, tokenizer, spice, made)


def default_split(photos: Iterable[Photo]) -> str:
    """Return ``test`` where a photo of it has a caption, else ``val``."""
    has_test = any(photo.split == "test" and photo.captions for photo in photos)
    return "test" if has_test else "val"


def _write(
    model: Captioner,
    reader: FeatureReader,
    data: Split,
    decoding: DecodingSettings,
    progress: bool,
) -> Written:
    """Write all captions; attention is compared with boxes at once, never kept."""
    started = time.monotonic()
    regions, notes = _regions(data, model.encoder_identity)
    sentences, log_probs, found = [], [], []
    title, count = f"{data.name}, beam {decoding.beam}", len(data.photos)
    with progress_bar(count, "photo", title, shown=progress) as bar:
        for part in write_captions(model, reader, data.rows, decoding):
            words = best_words(model, part)
            photos = data.photos[len(sentences) : len(sentences) + len(words)]
            alpha = part.alpha[:, 0]  # (B, W, T, L) -> (B, T, L)
            for photo, said, a in zip(photos, words, alpha, strict=True):
                if photo.id in regions:
                    region = regions[photo.id]
                    found += pointings(said, a, model.grid, photo.objects, region)
            sentences += words
            log_probs += part.log_probs[:, 0].tolist()
            bar.update(len(words))
    ids = [photo.id for photo in data.photos]
    captions = dict(zip(ids, map(" ".join, sentences), strict=True))
    seconds = time.monotonic() - started
    return Written(captions, log_probs, found if regions else None, notes, seconds)


def _regions(data: Split, identity: dict) -> tuple[dict[str, Box], tuple[str, ...]]:
    """Return what the network saw of each photo whose objects are known, and notes."""
    try:
        return {
            photo.id: seen_region(
                load_photo(photo.path).size, identity["image_size"], identity["resize"]
            )
            for photo in data.photos
            if photo.objects
        }, ()
    except PhotoError as error:
        return {}, (f"no pointing: {error}",)


def _save_captions(path: Path, written: Written) -> None:
    entries = [
        {"image_id": photo, "caption": caption, "log_prob": round(log_prob, _DIGITS)}
        for (photo, caption), log_prob in zip(
            written.captions.items(), written.log_probs, strict=True
        )
    ]
    runs.write_json(path, entries)


def _left_out(photos: Iterable[Photo], data: Split) -> tuple[str, ...]:
    """Say which photos of the split could not be evaluated."""
    kept = {photo.id for photo in data.photos}
    missing = [p.id for p in photos if p.split == data.name and p.id not in kept]
    if not missing:
        return ()
    return (
        f"{len(missing)} photos of {data.name} without features or captions were left "
        f"out: {missing[0]} ...",
    )


def _complete(
    report: EvaluationReport, written: Written, left_out: tuple[str, ...]
) -> EvaluationReport:
    """Add what only the writing knows: the pointing score and notes."""
    scores, notes = dict(report.scores), written.notes
    if "exact_match" in scores:
        scores["pointing"] = pointing_score(written.pointings or ())
        if written.pointings == []:
            notes += ("no pointing: no caption names an object of its photo",)
    return dataclasses.replace(
        report, scores=scores, notes=left_out + notes + report.notes
    )
