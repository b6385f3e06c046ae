"""Evaluate an experiment: generate captions of a split, save them, then score them."""

import contextlib
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
from show_attend_tell.data.splits import (
    Split,
    ViewsReader,
    folder_of,
    load_split,
    open_features,
    open_mirror,
)
from show_attend_tell.evaluation.coco_results import read_coco_results
from show_attend_tell.evaluation.layer_pointing import layer_note, pointing_by_layer
from show_attend_tell.evaluation.pointing_game import (
    Mention,
    find_mentions,
    visible_regions,
)
from show_attend_tell.evaluation.region_control import (
    RegionControl,
    measure_region_control,
)
from show_attend_tell.evaluation.report import (
    EvaluationReport,
    decoding_label,
    decoding_record,
    location_parts,
    make_report,
)
from show_attend_tell.evaluation.validation import best_words, generate_captions
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.pretrained import model_path
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import EvaluationError, ManifestError
from show_attend_tell.runtime.progress import progress_bar

_DIGITS = 6  # decimals of log-probabilities in files


class GeneratedCaptions(NamedTuple):
    """The captions generated for a split, in the order of its photos.

    ``captions`` by photo id; ``log_probs`` in nats; ``mentions`` of objects, by the id
    of the photos that have objects and can be read; ``control`` by regions around
    objects, None if no photo has objects; ``notes``; ``seconds``.
    """

    captions: dict[str, str]
    log_probs: list[float]
    mentions: dict[str, list[Mention]]
    control: RegionControl | None
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
    model: str | Path | Sequence[str | Path] | None = None,
    progress: bool = True,
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> EvaluationReport:
    """Generate the captions of a split, save them, score them, save the scores.

    Two files are written to the run folder: ``captions-<split>.json``, a list of
    ``image_id``, ``caption`` and ``log_prob`` (nats), and then ``scores.json``. These
    names are for the run's own model with the experiment's decoding. Otherwise both
    contain what differs, in this order: ``-beam-<n>``, ``-model-<file or run>`` or
    ``-ensemble-<n>``, ``-mirror``, ``-reranked``, and ``decoding.locations`` if it is
    not ``expected``: ``scores-likeliest.json``, ``scores-sampled-seed-3.json``.

    Args:
        experiment: the experiment; its decoding settings are used.
        work: folder of prepared data.
        runs_folder: folder of run folders.
        split: name of the split; by default ``test`` if it has captions, else ``val``.
        beam: hypotheses per photo, 1 is greedy; by default the experiment's.
        tokenizer: ``auto``, ``ptb`` or ``simple``, see :func:`metrics.score`.
        spice: whether to compute SPICE.
        model: a captioner, see :func:`models.pretrained.model_path`, or several, whose
            word probabilities are averaged; by default the model of the experiment's
            run.
        progress: whether to show a progress bar.
        mirror: whether to average over the photos and their mirror images.
        reranker: file of a reranker, by which the hypotheses are ranked too, or
            ``none``; by default ``<model>.reranker.npz`` beside a single model.

    Raises:
        EvaluationError: `beam` is below 1.
        ModelFileError, FeatureError, ManifestError: the model or the prepared data are
            absent, or do not fit each other.
        MetricsError: the captions, which are already saved, cannot be scored.
    """
    decoding = experiment.decoding
    if beam is not None:
        if beam < 1:
            raise EvaluationError(f"`beam` must be at least 1. Received: {beam}")
        decoding = dataclasses.replace(decoding, beam=beam)
    folder = Path(runs_folder) / experiment.name
    files = _model_files(folder / runs.MODEL if model is None else model, runs_folder)
    chosen = _photos_of_split(experiment, work, split)
    generator = load_generator(files, mirror, reranker)
    reranker = generator.reranker_file(decoding)
    identity = generator.encoder_identity
    with contextlib.ExitStack() as stack:
        reader = open_features(experiment, work, identity=identity)
        stack.enter_context(reader)
        data = load_split(experiment, work, chosen.split, reader)
        if mirror:
            views = open_mirror(experiment, work, reader, data)
            stack.callback(views.close)
            reader = ViewsReader(reader, views)
        generated = _generate(generator, reader, data, decoding, progress)
    suffix = f"-beam-{decoding.beam}" if decoding != experiment.decoding else ""
    if len(files) > 1:
        suffix += f"-ensemble-{len(files)}"
    elif files[0].resolve() != (folder / runs.MODEL).resolve():
        named = files[0] if files[0].name != runs.MODEL else files[0].parent
        suffix += f"-model-{named.stem}"
    suffix += "-mirror" if mirror else ""
    suffix += "" if reranker is None else "-reranked"
    suffix += "".join(f"-{part}" for part in location_parts(decoding))
    folder.mkdir(parents=True, exist_ok=True)
    _save_captions(folder / f"captions-{chosen.split}{suffix}.json", generated)
    made = {"experiment": experiment.name, "model": ", ".join(map(str, files))}
    made |= {"mirror": True} if mirror else {}
    if reranker is not None:
        made |= {"reranker": str(reranker), "rerank_weight": decoding.rerank_weight}
    made |= decoding_record(decoding) | {"seconds": round(generated.seconds, 1)}
    report = make_report(
        decoding_label(decoding),
        generated.captions,
        data.photos,
        tokenizer,
        spice,
        made,
        generated.mentions,
    )
    report = _with_notes(report, generated, _left_out_note(chosen, data))
    runs.write_json(folder / f"scores{suffix}.json", report.to_dict())
    return report


def compare_beams(
    experiment: Experiment,
    work: str | Path,
    runs_folder: str | Path,
    split: str | None,
    beams: Sequence[int],
    tokenizer: str = "auto",
    spice: bool = False,
    progress: bool = True,
    model: str | Path | Sequence[str | Path] | None = None,
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> list[EvaluationReport]:
    """Evaluate an experiment with several beam widths; return a report for each.

    Arguments and errors are those of :func:`evaluate`; `beams` are the beam widths,
    duplicates are ignored.
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
            model=model,
            progress=progress,
            mirror=mirror,
            reranker=reranker,
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
    """Score captions of another program; no file is written.

    Args:
        file: file of captions, see :func:`read_coco_results`, one caption for each
            photo of the split that has captions.
        experiment: the experiment that names the prepared data.
        work: folder of prepared data.
        split: name of the split; by default ``test`` if it has captions, else ``val``.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE.

    Raises:
        ResultsFileError: the file cannot be read, or its photos are not the split's.
        ManifestError: the manifest is absent or damaged, or the split is empty.
        MetricsError: the captions cannot be scored.
    """
    chosen = _photos_of_split(experiment, work, split)
    photos = [photo for photo in chosen.photos if photo.captions]
    if not photos:
        raise ManifestError(
            f"{chosen.path}: split {chosen.split!r} has no photo with captions; choose "
            "another split"
        )
    captions = read_coco_results(file, [photo.id for photo in photos])
    made = {"captions": str(file)}
    return make_report("captions", captions, photos, tokenizer, spice, made)


def _model_files(
    model: str | Path | Sequence[str | Path], runs_folder: str | Path
) -> list[Path]:
    """Return the paths of one or several models."""
    models = [model] if isinstance(model, str | Path) else model
    return [model_path(str(one), runs_folder) for one in models]


class _SplitPhotos(NamedTuple):
    """The manifest's path, the name of a split and its photos."""

    path: Path
    split: str
    photos: list[Photo]


def _photos_of_split(
    experiment: Experiment, work: str | Path, split: str | None
) -> _SplitPhotos:
    """Read the photos of a split, or of the default split, from the manifest."""
    path = folder_of(experiment, work) / "manifest.jsonl"
    photos = manifest.read_manifest(path)
    split = split or default_split(photos)
    return _SplitPhotos(path, split, [p for p in photos if p.split == split])


def default_split(photos: Iterable[Photo]) -> str:
    """Return ``test`` if a photo of it has a caption, else ``val``."""
    has_test = any(photo.split == "test" and photo.captions for photo in photos)
    return "test" if has_test else "val"


def _generate(
    model: Generator,
    reader: FeatureReader,
    data: Split,
    decoding: DecodingSettings,
    progress: bool,
) -> GeneratedCaptions:
    """Generate all captions; only the mentions of objects are kept of attention."""
    started = time.monotonic()
    regions, notes = visible_regions(data.photos, model.encoder_identity)
    sentences, log_probs, mentions = [], [], {}
    title, count = f"{data.name}, beam {decoding.beam}", len(data.photos)
    with progress_bar(count, "photo", title, shown=progress) as bar:
        for part in generate_captions(model, reader, data.rows, decoding):
            words = best_words(model, part)
            photos = data.photos[len(sentences) : len(sentences) + len(words)]
            alpha = part.alpha[:, 0]  # (B, W, T, L) -> (B, T, L)
            for photo, caption, a in zip(photos, words, alpha, strict=True):
                if photo.id in regions:
                    region = regions[photo.id]
                    mentions[photo.id] = find_mentions(
                        caption, a, model.grid, photo.objects, region
                    )
            sentences += words
            log_probs += part.log_probs[:, 0].tolist()
            bar.update(len(words))
    ids = [photo.id for photo in data.photos]
    captions = dict(zip(ids, map(" ".join, sentences), strict=True))
    seconds = time.monotonic() - started
    control = None
    if regions:
        control = measure_region_control(
            model, reader, data, captions, regions, decoding
        )
        if model.captioner is not None:
            given = model.captioner, reader, data, captions, regions
            notes += layer_note(pointing_by_layer(*given))
    return GeneratedCaptions(captions, log_probs, mentions, control, notes, seconds)


def _save_captions(path: Path, generated: GeneratedCaptions) -> None:
    entries = [
        {"image_id": photo, "caption": caption, "log_prob": round(log_prob, _DIGITS)}
        for (photo, caption), log_prob in zip(
            generated.captions.items(), generated.log_probs, strict=True
        )
    ]
    runs.write_json(path, entries)


def _left_out_note(chosen: _SplitPhotos, data: Split) -> tuple[str, ...]:
    """Return a note that counts the photos of the split that cannot be evaluated."""
    kept = {photo.id for photo in data.photos}
    missing = [photo.id for photo in chosen.photos if photo.id not in kept]
    if not missing:
        return ()
    return (
        f"{len(missing)} photos of {data.name} without features or captions were left "
        f"out: {missing[0]} ...",
    )


def _with_notes(
    report: EvaluationReport, generated: GeneratedCaptions, left_out: tuple[str, ...]
) -> EvaluationReport:
    """Return the report with the scores of regions, and all notes."""
    scores, notes = dict(report.scores), generated.notes
    if "exact_match" in scores:
        control = generated.control or RegionControl(None, None)
        scores["region_control"], scores["region_other"] = control
    if generated.mentions and not any(generated.mentions.values()):
        notes += ("no pointing: no caption names an object of its photo",)
    return dataclasses.replace(
        report, scores=scores, notes=left_out + notes + report.notes
    )
