"""Calibrate the confidence of a trained model's captions and tags.

The validation split is in distribution. The out-of-distribution sets look nothing like
the training photos: photos turned upside down, close-ups, and the caller's pictures.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.nouns import nouns_of_all
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.data.splits import Split, load_splits, open_features
from show_attend_tell.evaluation.metrics.reward import CiderReward
from show_attend_tell.evaluation.validation import best_words, generate_captions
from show_attend_tell.inference.confidence import (
    PhotoSpace,
    describe_photos,
    find_calibration,
    nouns_of_photos,
    save_calibration,
    statistics,
)
from show_attend_tell.inference.engine import matching_encoder
from show_attend_tell.inference.tags import TagCalibration
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_generator
from show_attend_tell.reference.model_file import (
    CAPTIONER,
    CONFIDENCE,
    part_of,
    replace_part,
)
from show_attend_tell.reference.tensor_file import open_tensors
from show_attend_tell.runtime.errors import ModelFileError, PhotoError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.training.confidence import (
    fit_calibration,
    fit_photo_space,
    fit_tag_calibration,
    measure,
    probability_right,
    rank_auc,
)
from show_attend_tell.training.reranking import describe_split

MIN_PHOTOS = 8  # validation photos, and pictures of a set
_BATCH = 16  # pictures whose captions are generated together
Nouns = tuple[list[str], np.ndarray]  # of a photo, see nouns_of_photos
_CLOSE_UP = (0.12, 0.25)  # side as a share of the photo's shorter side


class TagReport(NamedTuple):
    """The model with calibrated tags and what was measured."""

    path: Path
    # ``photos``, ``nouns`` and ``named``, their numbers, the last of nouns that a
    # person names; ``auc`` between these and others, absent if one is empty.
    measured: dict

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        photos = self.measured["photos"]
        nouns = self.measured["nouns"]
        named = self.measured["named"]
        end = "not calibrated"
        if "auc" in self.measured:
            end = f"AUC {self.measured['auc']:.3f}"
        return [
            f"tags: {nouns} nouns of {photos} validation photos, {named} in a caption "
            f"by a person; {end}",
            f"{self.path}",
        ]


class CalibrationReport(NamedTuple):
    """The calibrated model and what was measured; see :func:`calibrate`."""

    path: Path
    # ``photos``, their number; ``auc`` of the confidence by set, of models fitted
    # without that set; ``auc_quality`` of the confidence between captions above and
    # below the mean probability of being right; ``tags`` of :class:`TagReport`.
    measured: dict

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        known = self.measured["photos"]
        quality = self.measured["auc_quality"]
        rows = [f"AUC of the confidence, {known} validation photos and"]
        rows += [f"  {name:14} {auc:.3f}" for name, auc in self.measured["auc"].items()]
        rows.append(f"captions probably right and probably wrong: {quality:.3f}")
        return [*rows, *TagReport(self.path, self.measured["tags"]).lines()]


def calibrate(
    experiment: Experiment,
    work: str | Path,
    model: str | Path,
    others: Mapping[str, Iterable[Image.Image]],
    encoder_weights: str | Path | None = None,
    count: int = 200,
) -> CalibrationReport:
    """Calibrate a model on its prepared data; its file then has the calibration.

    Args:
        experiment: the experiment of the prepared data.
        work: folder of prepared data, with photos and features.
        model: path of the model; a reranker in its file ranks the captions.
        others: pictures of out-of-distribution sets by their names, at least 8 of each.
        encoder_weights: as in
            :func:`~show_attend_tell.inference.engine.matching_encoder`.
        count: validation photos to turn upside down and to crop close-ups from.

    Raises:
        ModelFileError, DataError, CaptionError: the model, its encoder or the prepared
            data are absent or do not fit each other, or photos are too few or cannot
            be read.
    """
    captioner = load_generator([model])
    encoder = matching_encoder(captioner, Path(model), encoder_weights, Encoder)
    rng = np.random.default_rng(0)  # of the photos, the close-ups and the halves
    with open_features(experiment, work, identity=encoder.identity()) as reader:
        train, val = load_splits(experiment, work, ["train", "val"], reader)
        if len(val.photos) < 2 * MIN_PHOTOS:
            raise ModelFileError(
                f"the validation split must have at least {2 * MIN_PHOTOS} photos. "
                f"Received: {len(val.photos)}; prepare more"
            )
        rows = rng.permutation(len(val.photos))[:count]
        files = [val.photos[row].path for row in rows]
        turn = Image.Transpose.ROTATE_180
        size = encoder.settings.image_size
        pictures = {
            "upside down": (x.transpose(turn) for x in _load(files)),
            "close-ups": (_close_up(x, size, rng) for x in _load(files)),
            **others,
        }
        # Draws the close-ups: before the halves are drawn from the same generator.
        squares = {name: _squares(encoder, name, x) for name, x in pictures.items()}
        describe = functools.partial(describe_photos, grid=captioner.grid)
        g = describe_split(reader, train, describe)
        space = fit_photo_space(g, train.captions, captioner.vocabulary, captioner.grid)
        known, cider, nouns = _validation_statistics(captioner, reader, val, space)
    ood_sets = {
        name: _statistics(captioner, encoder, space, name, pictures)
        for name, pictures in squares.items()
    }
    sources = dict.fromkeys(("upside down", "close-ups"), rows)
    good = probability_right(cider)
    better = cider > np.median(cider)
    if better.sum() < MIN_PHOTOS // 2:
        raise ModelFileError(
            "the validation captions must differ in CIDEr. Received: "
            f"{better.sum()} of {len(better)} above the median; train the model longer"
        )
    half = _halves(better, rows, rng)
    measured = measure(space, known, good, ood_sets, sources, half)
    calibration = fit_calibration(space, known, good, list(ood_sets.values()))
    tags, measured["tags"] = _fit_tags(nouns, val)
    calibration = dataclasses.replace(
        calibration, reranker=captioner.reranker, tags=tags
    )
    save_calibration(calibration, model, measured)
    return CalibrationReport(Path(model), measured)


def calibrate_tags(
    experiment: Experiment,
    work: str | Path,
    model: str | Path,
    encoder_weights: str | Path | None = None,
) -> TagReport:
    """Calibrate the tags of a model whose captions are calibrated.

    Reads the features of the validation photos alone, and leaves the confidence of
    captions as it is. The arguments are those of :func:`calibrate`.

    Raises:
        ModelFileError, DataError: the model, its calibration or the prepared data are
            absent or do not fit each other.
    """
    path = Path(model)
    captioner = load_generator([model])
    calibration = find_calibration(captioner, model)
    if calibration is None:
        raise ModelFileError(
            f"{path}: must have a calibration, to which that of the tags is added. "
            "Received: none for captions ranked so; run `show-attend-tell calibrate` "
            "without --tags, which calibrates both"
        )
    space = calibration.space
    encoder = matching_encoder(captioner, path, encoder_weights, Encoder)
    with open_features(experiment, work, identity=encoder.identity()) as reader:
        (val,) = load_splits(experiment, work, ["val"], reader)
        nouns: list[Nouns] = []
        decoding = _decoding(captioner)
        with progress_bar(len(val.rows), "photo", "captions") as bar:
            for part in generate_captions(captioner, reader, val.rows, decoding):
                rows = val.rows[len(nouns) : len(nouns) + len(part.tokens)]
                a = reader.read(rows)
                nouns += nouns_of_photos(space, a, part, captioner.vocabulary)
                bar.update(len(rows))
    tags, measured = _fit_tags(nouns, val)
    if tags is None:
        raise ModelFileError(
            "people must name some nouns of the model's captions of validation photos, "
            f"and not others. Received: {measured['named']} of {measured['nouns']} "
            "named; train the model longer"
        )
    with open_tensors(path, CAPTIONER) as file:
        part = part_of(file, CONFIDENCE)
    part.about["tags"] = tags.to_dict()
    part.about["measured"] = part.about["measured"] | {"tags": measured}
    replace_part(path, CONFIDENCE, part)
    return TagReport(path, measured)


def _fit_tags(
    nouns: list[Nouns], val: Split
) -> tuple[TagCalibration | None, dict[str, Any]]:
    """Return the calibration of the nouns of validation photos, and a report.

    There is no calibration if people name all of these nouns, or none.
    """
    named = []
    for (names, _), captions in zip(nouns, val.captions, strict=True):
        by_people = nouns_of_all(captions)
        named += [noun in by_people for noun in names]
    x = np.concatenate([statistics for _, statistics in nouns])  # (nouns, 4)
    y = np.array(named, bool)
    measured: dict[str, Any] = {"photos": len(nouns), "nouns": len(y)}
    measured["named"] = int(y.sum())
    if not 0 < measured["named"] < len(y):
        return None, measured
    calibration = fit_tag_calibration(x, y)
    p = calibration(x)
    measured["auc"] = round(rank_auc(p[y], p[~y]), 4)
    return calibration, measured


def _halves(
    better: np.ndarray, rows: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the first half of the photos, (N,) bool.

    The halves differ by at most one in better captions and in photos of `rows`.
    """
    chosen = np.isin(np.arange(len(better)), rows)
    order = np.lexsort((rng.random(len(better)), chosen, better))
    half = np.zeros(len(better), bool)
    half[order[::2]] = True
    return half


def _validation_statistics(captioner, reader, val: Split, space: PhotoSpace):
    """Return statistics (N, 7), CIDEr (N,) and nouns of the validation split."""
    reward = CiderReward(val.captions)
    parts = []
    scores = []
    nouns: list[Nouns] = []
    decoding = _decoding(captioner)
    with progress_bar(len(val.rows), "photo", "captions") as bar:
        for part in generate_captions(captioner, reader, val.rows, decoding):
            start = len(scores)
            words = best_words(captioner, part)
            rows = val.rows[start : start + len(words)]
            a = reader.read(rows)
            parts.append(statistics(space, a, part, captioner.reranker))
            nouns += nouns_of_photos(space, a, part, captioner.vocabulary)
            ends = part.finished[:, 0]
            for k, (caption, end) in enumerate(zip(words, ends, strict=True)):
                sentence = [*caption, CiderReward.END] if end else caption
                scores.append(reward(start + k, sentence))
            bar.update(len(words))
    return np.concatenate(parts), np.array(scores), nouns


def _squares(encoder: Encoder, name: str, images: Iterable[Image.Image]) -> np.ndarray:
    """Return the pictures of a set as the encoder sees them, (M, S, S, 3) uint8."""
    squares = [encoder.preprocess(image) for image in images]
    if len(squares) < MIN_PHOTOS:
        raise ModelFileError(
            f"the out-of-distribution set {name!r} must have at least {MIN_PHOTOS} "
            f"pictures. Received: {len(squares)}; name a folder with more"
        )
    return np.stack(squares)


def _statistics(
    captioner: Generator,
    encoder: Encoder,
    space: PhotoSpace,
    name: str,
    squares: np.ndarray,
) -> np.ndarray:
    """Return the statistics of the pictures of a set, (M, 7)."""
    parts = []
    decoding = _decoding(captioner)
    with progress_bar(len(squares), "photo", name) as bar:
        for start in range(0, len(squares), _BATCH):
            features = encoder.encode(squares[start : start + _BATCH])  # (B, L, D)
            hypotheses = captioner.generate(features, decoding)
            values = statistics(space, features, hypotheses, captioner.reranker)
            parts.append(values)
            bar.update(len(features))
    return np.concatenate(parts)


def _decoding(captioner: Generator) -> DecodingSettings:
    """Return the model's settings; one graph serves all pictures."""
    return dataclasses.replace(captioner.decoding, batch_size=_BATCH)


def _load(files: list[Path]) -> Iterable[Image.Image]:
    """Yield the photos of files."""
    for file in files:
        try:
            yield load_photo(file)
        except PhotoError as error:
            raise ModelFileError(
                f"{error}; the calibration needs the validation photos themselves"
            ) from None


def _close_up(image: Image.Image, size: int, rng: np.random.Generator) -> Image.Image:
    """Return a small part of a photo, which shows texture and no objects."""
    side = max(1, round(min(image.size) * rng.uniform(*_CLOSE_UP)))
    x = int(rng.integers(0, image.width - side + 1))
    y = int(rng.integers(0, image.height - side + 1))
    part = image.crop((x, y, x + side, y + side))
    return part.resize((size, size), Image.Resampling.BICUBIC)
