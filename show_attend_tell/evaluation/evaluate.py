"""Evaluate an experiment: generate captions of a split, save them, then score them."""

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.config.settings import Experiment, experiment_to_dict
from show_attend_tell.data.features import Features
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import Box
from show_attend_tell.data.region import smooth
from show_attend_tell.data.splits import (
    Split,
    ViewsReader,
    folder_of,
    load_splits,
    open_features,
    open_mirror,
    read_photos,
)
from show_attend_tell.evaluation.coco_results import read_captions
from show_attend_tell.evaluation.metrics.scoring import TokenizerName
from show_attend_tell.evaluation.pointing import find_targets, point, read_boxes
from show_attend_tell.evaluation.probes import hide_places, layer_note, measure_regions
from show_attend_tell.evaluation.report import (
    EvaluationReport,
    decoding_label,
    decoding_record,
    location_parts,
    make_report,
)
from show_attend_tell.evaluation.validation import (
    attention_statistics,
    best_words,
    generate_captions,
)
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.pretrained import model_path, reranker_file
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import DataError, EvaluationError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import parse_json

_DIGITS = 6  # decimals of log-probabilities in files


@dataclasses.dataclass
class _Generated:
    """Captions of a split, and what was measured while they were generated.

    Args:
        captions: photo id -> caption.
        log_probs: their log p in nats.
        pointing: photo id -> scores of mentions, see :func:`make_report`; None where no
            boxes are known.
        regions: the result of :func:`probes.measure_regions`, empty if no photo has
            objects.
        notes: lines about the captions.
        attention_entropy: the mean normalised entropy of attention over all words; None
            of a model without attention.
    """

    captions: dict[str, str]
    log_probs: list[float]
    pointing: dict[str, np.ndarray] | None
    regions: dict
    notes: tuple[str, ...]
    attention_entropy: float | None


def evaluate(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    beam: int | None = None,
    tokenizer: TokenizerName = "auto",
    spice: bool = False,
    model: str | Path | Sequence[str | Path] | None = None,
    progress: bool = True,
    mirror: bool = False,
    reranker: str | Path | None = None,
    boxes: str | Path | None = None,
) -> EvaluationReport:
    """Generate the captions of a split, save them, score them, save the scores.

    Two files are written to the run folder: ``captions-<split>.json``, a list of
    ``image_id``, ``caption`` and ``log_prob`` (nats), and then ``scores.json``. These
    names are for the run's own model with the experiment's decoding. Otherwise both
    contain the differences, in this order: ``-beam-<n>``, ``-model-<file or run>`` or
    ``-ensemble-<n>``, ``-mirror``, ``-reranked`` by the reranker in the model's file or
    ``-reranked-by-<file>``, and ``decoding.locations`` if it is not ``expected``:
    ``scores-likeliest.json``, ``scores-sampled-seed-3.json``.

    Args:
        experiment: the experiment; its decoding settings are used.
        work: folder of prepared data.
        runs_folder: folder of run folders.
        split: name of the split; by default ``test`` if it has captions, else ``val``.
        beam: hypotheses per photo, 1 is greedy; by default the experiment's.
        tokenizer: ``auto``, ``ptb`` or ``simple``, see :func:`metrics.scoring.score`.
        spice: whether to compute SPICE.
        model: a captioner, see :func:`models.pretrained.model_path`, or several, whose
            word probabilities are averaged; by default the model of the experiment's
            run.
        progress: whether to show a progress bar.
        mirror: whether to average over the photos and their mirror images.
        reranker: file of a reranker, which also ranks the hypotheses, ``shipped`` for
            that of the default model, or ``none``; by default the reranker in the file
            of a single model.
        boxes: file of the boxes of people, see :func:`pointing.read_boxes`, to measure
            where attention points at words such as "man".

    Raises:
        EvaluationError: `beam` is below 1, or has no effect with the experiment's
            ``decoding.method``; or the boxes cannot be read; or the files have the
            scores of another model or reranker of the same name; or the captions, which
            are already saved, cannot be scored.
        ModelFileError, DataError: the model or the prepared data are absent, or do not
            fit each other.
    """
    decoding = experiment.decoding
    if beam is not None:
        if beam < 1:
            raise EvaluationError(f"`beam` must be at least 1. Received: {beam}")
        if decoding.method != "beam":
            raise EvaluationError(
                f"`beam` has no effect with decoding.method = {decoding.method!r}. "
                f"Received: {beam}; leave it out, or set decoding.method = 'beam'"
            )
        decoding = dataclasses.replace(decoding, beam=beam)
    folder = Path(runs_folder) / experiment.name
    own_model = folder / runs.MODEL
    models = own_model if model is None else model
    models = [models] if isinstance(models, str | Path) else models
    files = [model_path(str(file), runs_folder) for file in models]
    split, photos = _photos_of_split(experiment, work, split)
    generator = load_generator(files, mirror, reranker_file(reranker))
    # Now, as a training may replace a file while captions are generated.
    digests = list(map(runs.model_digest, files))
    ranked_by = generator.reranker_file(decoding)
    # The names of the files.
    parts = _name_parts(experiment, decoding, files, own_model)
    if mirror:
        parts.append("mirror")
    if ranked_by is not None:
        given = "" if reranker is None else f"-by-{_file_name(Path(reranker))}"
        parts.append(f"reranked{given}")
    parts += location_parts(decoding)
    suffix = "".join(f"-{part}" for part in parts)
    scores = folder / f"scores{suffix}.json"
    if len(files) > 1:
        _require_same_ensemble(scores, files)
    elif files[0].resolve() != own_model.resolve():
        _require_same_file(scores, "model", files[0])
    if ranked_by is not None and reranker is not None:
        _require_same_file(scores, "reranker", ranked_by)
    # The captions.
    identity = generator.encoder_identity
    with contextlib.ExitStack() as stack:
        features = open_features(experiment, work, identity=identity)
        stack.enter_context(features)
        (data,) = load_splits(experiment, work, [split], features)
        reader: Features | ViewsReader = features
        if mirror:
            mirrored = open_mirror(experiment, work, features, data)
            stack.callback(mirrored.close)
            reader = ViewsReader(features, mirrored)
        people = None
        if boxes is not None:
            people = read_boxes(boxes, [photo.id for photo in data.photos])
        with runs.lock_results(folder):
            pass  # refused now rather than after all captions
        started = time.monotonic()
        generated = _generate(generator, reader, data, decoding, people, progress)
    seconds = round(time.monotonic() - started, 1)

    folder.mkdir(parents=True, exist_ok=True)
    captions = generated.captions
    log_probs = [round(log_prob, _DIGITS) for log_prob in generated.log_probs]
    # Saved before they are scored: scoring may fail, as when Java does, and generating
    # takes longer.
    entries = [
        {"image_id": photo, "caption": caption, "log_prob": log_prob}
        for (photo, caption), log_prob in zip(captions.items(), log_probs, strict=True)
    ]
    runs.write_json(folder / f"captions-{split}{suffix}.json", entries)

    # The scores and their origin.
    origin = _experiment_record(experiment, folder)
    origin["model"] = _names(files)
    origin["model_digest"] = ", ".join(digests)
    if mirror:
        origin["mirror"] = True
    if ranked_by is not None:
        origin["reranker"] = str(ranked_by)
        origin["rerank_weight"] = decoding.rerank_weight
    origin |= decoding_record(decoding)
    origin["seconds"] = seconds
    if generated.attention_entropy is not None:
        origin["attention_entropy"] = generated.attention_entropy
    notes = generated.notes
    if missing := [photo.id for photo in photos if photo.id not in captions]:
        absent = f"{len(missing)} photos of {split} without features or captions"
        notes = (f"{absent} were left out: {missing[0]} ...", *notes)
    report = make_report(
        decoding_label(decoding),
        captions,
        data.photos,
        tokenizer,
        spice,
        origin,
        pointing=generated.pointing,
        regions=generated.regions,
        notes=notes,
    )
    runs.write_json(scores, report.to_dict())
    return report


def _name_parts(
    experiment: Experiment,
    decoding: DecodingSettings,
    files: Sequence[Path],
    own_model: Path,
) -> list[str]:
    """Return the parts of file names that tell a beam and models from the run's own."""
    parts = []
    if decoding != experiment.decoding:
        parts.append(f"beam-{decoding.beam}")
    if len(files) > 1:
        parts.append(f"ensemble-{len(files)}")
    elif files[0].resolve() != own_model.resolve():
        # All runs give their model the same name, so the folder tells them apart.
        named = files[0] if files[0].name != runs.MODEL else files[0].parent
        parts.append(f"model-{_file_name(named)}")
    return parts


def _file_name(path: Path) -> str:
    """Return the name of a model or a run folder; a run's name may contain a dot."""
    return path.name.removesuffix(".safetensors")


def _require_same_ensemble(scores: Path, files: Sequence[Path]) -> None:
    """Raise an EvaluationError if `scores` has those of another ensemble.

    All ensembles of as many models have the same file of scores.
    """
    before = _recorded(scores, "model")
    if before not in (None, _names(files)):
        raise EvaluationError(
            f"{scores}: has the scores of {before}, not of {_names(files)}; rename the "
            "file, or remove it"
        )


def _require_same_file(scores: Path, key: str, file: Path) -> None:
    """Raise an EvaluationError if `scores` has those of another file.

    Files of one name in different folders have the same file of scores.

    Args:
        scores: the file of scores.
        key: its key that names the file: ``model``, ``captions`` or ``reranker``.
        file: the file.
    """
    before = _recorded(scores, key)
    # Scores of a file that is gone may be replaced.
    if (
        before is None
        or not Path(before).is_file()
        or Path(before).resolve() == file.resolve()
    ):
        return
    raise EvaluationError(
        f"{scores}: has the scores of {before}, a file of the same name as {file}; "
        "rename one of the two files, or remove the scores"
    )


def _recorded(scores: Path, key: str) -> str | None:
    """Return a text that `scores` records; None if the file is absent or damaged."""
    try:
        saved = parse_json(scores.read_bytes())
    except (OSError, ValueError):
        return None
    value = saved.get(key) if isinstance(saved, dict) else None
    return value if isinstance(value, str) else None


def _names(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def score_file(
    file: str | Path,
    experiment: Experiment,
    work: str | Path = "prepared",
    split: str | None = None,
    tokenizer: TokenizerName = "auto",
    spice: bool = False,
    runs_folder: str | Path | None = None,
) -> EvaluationReport:
    """Score captions by another program.

    ``file`` has one caption for each photo of the split that has captions, see
    :func:`read_captions`; the other arguments are those of :func:`evaluate`.

    With `runs_folder` the captions and the scores are saved in the run folder, as
    :func:`evaluate` does, so that :mod:`evaluation.comparison` reads them. Their names
    contain ``-captions-<name of the file>``.

    Raises:
        EvaluationError: the file cannot be read, or its photos are not the split's; or
            the run folder has the scores of another file of the same name; or the
            captions cannot be scored.
        DataError: the manifest is absent or damaged, or the split is empty.
    """
    split, photos = _photos_of_split(experiment, work, split)
    photos = [photo for photo in photos if photo.captions]
    if not photos:
        path = folder_of(experiment, work) / "manifest.jsonl"
        raise DataError(
            f"{path}: split {split!r} has no photo with captions; choose another split"
        )
    captions = read_captions(file, [photo.id for photo in photos])
    origin: dict[str, object] = {"captions": str(file)}
    if runs_folder is None:
        return make_report("captions", captions, photos, tokenizer, spice, origin)
    folder = Path(runs_folder) / experiment.name
    suffix = f"-captions-{Path(file).stem}"
    scores = folder / f"scores{suffix}.json"
    _require_same_file(scores, "captions", Path(file))
    origin = _experiment_record(experiment, folder) | origin
    report = make_report("captions", captions, photos, tokenizer, spice, origin)
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{"image_id": photo, "caption": text} for photo, text in captions.items()]
    runs.write_json(folder / f"captions-{split}{suffix}.json", entries)
    runs.write_json(scores, report.to_dict())
    return dataclasses.replace(report, file=scores)


def _experiment_record(experiment: Experiment, folder: Path) -> dict[str, object]:
    """Return what scores record of their experiment.

    The settings are part of it if the run folder has none: nothing was trained in it.
    """
    record: dict[str, object] = {"experiment": experiment.name}
    if not (folder / runs.SETTINGS).exists():
        record["settings"] = experiment_to_dict(experiment)
    return record


def _photos_of_split(
    experiment: Experiment, work: str | Path, split: str | None
) -> tuple[str, list[Photo]]:
    """Return the name and the photos of a split.

    By default the split is ``test`` if a photo of it has a caption, else ``val``.
    """
    photos = read_photos(experiment, work)
    if split is None:
        has_test = any(photo.split == "test" and photo.captions for photo in photos)
        split = "test" if has_test else "val"
    return split, [photo for photo in photos if photo.split == split]


def _generate(
    model: Generator,
    reader: Features | ViewsReader,
    data: Split,
    decoding: DecodingSettings,
    people: dict[str, list[Box]] | None,
    progress: bool,
) -> _Generated:
    """Generate all captions; keep of their attention only the scores of mentions."""
    mapped = data.photos if model.attends else []  # of other models alpha is uniform
    targets, notes = find_targets(mapped, model.encoder_identity, people)
    if people is not None and not mapped:
        notes = ("no pointing: the model has no attention",)
    sentences = []
    log_probs = []
    entropies = []
    pointing = {}
    title = f"{data.name}, beam {decoding.beam}"
    count = len(data.photos)
    with progress_bar(count, "photo", title, shown=progress) as bar:
        for part in generate_captions(model, reader, data.rows, decoding):
            words = best_words(model, part)
            # `sentences` has not grown yet: its length is where this batch begins.
            photos = data.photos[len(sentences) : len(sentences) + len(words)]
            alpha = part.alpha[:, 0]  # (B, W, T, L) -> (B, T, L)
            for photo, caption, a in zip(photos, words, alpha, strict=True):
                if target := targets.get(photo.id):
                    drawn = smooth(a, model.grid)
                    pointing[photo.id] = point(caption, drawn, model.grid, target)
            sentences += words
            log_probs += part.log_probs[:, 0].tolist()
            # The entropy is divided by log L, which is 0 for a single location.
            if mapped and alpha.shape[-1] > 1:
                entropies.append(attention_statistics(part)["entropy"])
            bar.update(len(words))
    ids = [photo.id for photo in data.photos]
    captions = dict(zip(ids, map(" ".join, sentences), strict=True))
    has_objects = any(photo.objects for photo in mapped)
    regions = {}
    if has_objects:
        regions = measure_regions(model, reader, data, captions, targets, decoding)
    if targets:
        if model.captioner is not None:
            captioner = model.captioner
            notes += layer_note(captioner, reader, data, captions, targets)
            hidden = hide_places(captioner, reader, data, captions, targets)
            for photo, falls in hidden.items():
                # (M, 4), (M, 3) -> (M, 7)
                pointing[photo] = np.hstack([pointing[photo], falls])
        if not any(map(len, pointing.values())):
            notes += ("no pointing: no caption names an object of its photo",)
    if not has_objects and (people is None or not mapped):
        # With an empty dict the report would have rows of pointing without values.
        pointing = None
    entropy = float(np.concatenate(entropies).mean()) if entropies else None
    return _Generated(captions, log_probs, pointing, regions, notes, entropy)
