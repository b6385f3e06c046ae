"""Calibrate the confidence of a trained model's captions and tags.

The validation split is in distribution. The out-of-distribution sets look nothing like
the training photos: photos turned upside down, close-ups, and the caller's pictures.
Which captions are right is told by labels, where there are any, and else by the CIDEr
of the validation captions.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
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
    Calibration,
    Evidence,
    Nouns,
    PhotoSpace,
    describe_photos,
    find_calibration,
    gather_evidence,
    save_calibration,
    statistics,
)
from show_attend_tell.inference.engine import matching_encoder
from show_attend_tell.inference.result import CONFIDENCE_WORDS
from show_attend_tell.inference.tags import TagCalibration
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_generator
from show_attend_tell.reference.model_file import CAPTIONER, CONFIDENCE
from show_attend_tell.reference.tensor_file import open_tensors
from show_attend_tell.runtime.errors import (
    DataError,
    ModelFileError,
    PhotoError,
    plural,
    quote,
)
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.training.confidence import (
    fit_calibration,
    fit_photo_space,
    fit_quality,
    fit_tag_calibration,
    is_probably_right,
    measure_familiarity,
    measure_quality,
    rank_auc,
)
from show_attend_tell.training.labels import GRADES, Label, key_of
from show_attend_tell.training.reranking import describe_split

MIN_PHOTOS = 8  # validation photos, pictures of a set, labels that fit or measure
_BATCH = 16  # pictures whose captions are generated together
_CLOSE_UP = (0.12, 0.25)  # side as a share of the photo's shorter side
_OF_VALIDATION = ("upside down", "close-ups")  # sets made of validation photos


class CalibrationReport(NamedTuple):
    """The calibrated model and what was measured; see :func:`calibrate`."""

    path: Path
    # ``photos``, their number; ``auc`` of the confidence by set, of models fitted
    # without that set; ``tags``, see _fit_tags; and ``labels``, see _measure_labels, or
    # ``auc_quality`` of the confidence between captions that are probably right by
    # their CIDEr and others.
    measured: dict
    left_out: str | None = None  # the labels that are not used

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        rows = ["AUC of the confidence, validation photos and"]
        rows += [f"  {name:14} {auc:.3f}" for name, auc in self.measured["auc"].items()]
        if labels := self.measured.get("labels"):
            areas = [f"{labels['auc_right_or_slip']:.3f} of right or a slip"]
            if "auc_right" in labels:
                areas.insert(0, f"{labels['auc_right']:.3f} of right")
            rows.append(
                f"{labels['fitted']} judged captions fit the confidence; of the other "
                f"{labels['tested']} {labels['likely']:.1%} are likely, and of these "
                f"{labels['right']:.1%} right, {labels['right_or_slip']:.1%} right or "
                f"a slip; AUC {', '.join(areas)}"
            )
        else:
            quality = self.measured["auc_quality"]
            rows.append(f"captions probably right and probably wrong: {quality:.3f}")
        if self.left_out:
            rows.append(self.left_out)
        tags = self.measured["tags"]
        end = f"AUC {tags['auc']:.3f}" if "auc" in tags else "not calibrated"
        rows.append(
            f"tags: {tags['nouns']} nouns of {tags['photos']} validation photos, "
            f"{tags['named']} in a caption by a person; {end}"
        )
        return [*rows, f"{self.path}"]


class _Validation(NamedTuple):
    """The captions of the validation split and what is known of them."""

    evidence: Evidence
    captions: list[str]
    cider: np.ndarray  # (N,)


class _Judged(NamedTuple):
    """The labels of M validation captions."""

    rows: np.ndarray  # (M,) of the validation split
    grades: np.ndarray  # (M,)
    is_fitted: np.ndarray  # (M,) bool
    left_out: str | None


def calibrate(
    experiment: Experiment,
    work: str | Path,
    model: str | Path,
    others: Mapping[str, Iterable[Image.Image]],
    encoder_weights: str | Path | None = None,
    count: int = 200,
    labels: Sequence[Label] | None = None,
) -> CalibrationReport:
    """Calibrate a model on its prepared data; its file then has the calibration.

    Args:
        experiment: the experiment of the prepared data.
        work: folder of prepared data, with photos and features.
        model: path of the model; a reranker in its file ranks the captions.
        others: pictures of out-of-distribution sets by their names, at least 8 of each;
            no name is "upside down" or "close-ups".
        encoder_weights: as in
            :func:`~show_attend_tell.inference.engine.matching_encoder`.
        count: validation photos to turn upside down and to crop close-ups from.
        labels: of the model's captions of validation photos. Half of them fit the
            confidence, in place of the captions by people, and the others measure it.

    Raises:
        ModelFileError, DataError, CaptionError: the model, its encoder, the prepared
            data or the labels are absent or do not fit each other, or photos or labels
            are too few or cannot be read.
    """
    for name in _OF_VALIDATION:
        if name in others:
            raise DataError(
                f"{name}: must not be the name of a set of pictures, because a set of "
                "validation photos has it; rename the folder"
            )
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
        # Generators, so that one photo at a time is in memory.
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
        found = _caption_validation(captioner, reader, val, space)
    judged = None if labels is None else _match(labels, val, found.captions)
    tags, tags_measured = _fit_tags(found.evidence.nouns, val)
    # The tags come first, because one statistic needs their probabilities.
    known = statistics(found.evidence, tags)
    ood_sets = {
        name: _statistics(captioner, encoder, space, tags, name, pictures)
        for name, pictures in squares.items()
    }
    # The AUCs are of models that saw a part. The stored model is fitted to everything.
    sources = dict.fromkeys(_OF_VALIDATION, rows)
    by_cider = _require_both(is_probably_right(found.cider))
    half = _halves(by_cider, rows, rng)
    auc = measure_familiarity(space, known, by_cider, ood_sets, sources, half)
    good = by_cider if judged is None else _right_or_slip(judged, len(known))
    fitted = fit_calibration(space, known, good, list(ood_sets.values()))
    measured = {"photos": len(known), "auc": auc, "tags": tags_measured}
    calibration = dataclasses.replace(fitted, tags=tags)
    if judged is None:
        quality = measure_quality(calibration, known, by_cider, half)
        measured["auc_quality"] = quality
    else:
        measured["labels"] = _measure_labels(calibration, known, judged)
    return _write(calibration, captioner, model, measured, judged)


def recalibrate(
    experiment: Experiment,
    work: str | Path,
    model: str | Path,
    encoder_weights: str | Path | None = None,
    labels: Sequence[Label] | None = None,
) -> CalibrationReport:
    """Calibrate again what validation photos alone tell: tags, and right captions.

    The distribution of the training photos and the familiarity of photos remain as
    they are in the model's file. The arguments are those of :func:`calibrate`.

    Raises:
        ModelFileError, DataError: as :func:`calibrate`, or the model has no
            calibration.
    """
    path = Path(model)
    captioner = load_generator([model])
    kept = find_calibration(captioner, model)
    if kept is None:
        raise ModelFileError(
            f"{path}: must have a calibration, of which a part is kept. Received: none "
            "for captions ranked so; run `show-attend-tell calibrate` without "
            "--keep-familiarity, which calibrates all"
        )
    with open_tensors(path, CAPTIONER) as file:
        before = file.about[CONFIDENCE]["measured"]
    encoder = matching_encoder(captioner, path, encoder_weights, Encoder)
    with open_features(experiment, work, identity=encoder.identity()) as reader:
        (val,) = load_splits(experiment, work, ["val"], reader)
        found = _caption_validation(captioner, reader, val, kept.space)
    judged = None if labels is None else _match(labels, val, found.captions)
    tags, tags_measured = _fit_tags(found.evidence.nouns, val)
    known = statistics(found.evidence, tags)
    kept = dataclasses.replace(kept, tags=tags)
    measured = {"photos": len(known), "auc": before["auc"], "tags": tags_measured}
    if judged is None:
        good = _require_both(is_probably_right(found.cider))
        half = _halves(good, np.zeros(0, int), np.random.default_rng(0))
        calibration = fit_quality(kept, known, good)
        measured["auc_quality"] = measure_quality(calibration, known, good, half)
    else:  # with labels it does not matter which captions are right by their CIDEr
        good = _right_or_slip(judged, len(known))
        calibration = fit_quality(kept, known, good)
        measured["labels"] = _measure_labels(calibration, known, judged)
    return _write(calibration, captioner, model, measured, judged)


def _write(
    calibration: Calibration,
    captioner: Generator,
    model: str | Path,
    measured: dict[str, Any],
    judged: _Judged | None,
) -> CalibrationReport:
    """Write the calibration into the model's file."""
    save_calibration(calibration, model, captioner.reranker is not None, measured)
    left_out = None if judged is None else judged.left_out
    return CalibrationReport(Path(model), measured, left_out)


def _require_both(good: np.ndarray) -> np.ndarray:
    """Return `good`, (N,) of 0 and 1; raise an error unless it has both."""
    right = int(good.sum())
    if min(right, len(good) - right) < MIN_PHOTOS // 2:
        raise ModelFileError(
            "some validation captions must be right by their CIDEr, and others not. "
            f"Received: {right} of {len(good)}; train the model longer"
        )
    return good


def _match(labels: Sequence[Label], val: Split, captions: list[str]) -> _Judged:
    """Return the labels of captions of the validation split.

    Raises:
        DataError: there are too few, or a file name belongs to several photos.
    """
    rows_of: dict[str, list[int]] = {}
    for row, photo in enumerate(val.photos):
        rows_of.setdefault(key_of(photo.path.name), []).append(row)
    matched = []
    absent = []
    changed = []
    for label in labels:
        rows = rows_of.get(key_of(label.photo), [])
        if len(rows) > 1:
            raise DataError(
                f"the photo of a label must have a file name of its own. Received: "
                f"{quote(label.photo)}, {len(rows)} validation photos; rename one"
            )
        if not rows:
            absent.append(label)
        elif captions[rows[0]] != label.caption:
            changed.append(label)
        else:
            matched.append((rows[0], label))
    faults = []
    for noun, left in (("photo", absent), ("caption", changed)):
        if left:
            first = quote(left[0].photo)
            faults.append(f"{plural(len(left), noun)} not validated, such as {first}")
    kept = f"{len(matched)} of {plural(len(labels), 'label')} used"
    left_out = f"{kept}: {', '.join(faults)}" if faults else None
    grades = np.array([label.grade for _, label in matched], int)
    is_fitted = np.array([label.is_fitted for _, label in matched], bool)
    for half in (is_fitted, ~is_fitted):
        right = int((grades[half] > 0).sum())
        if half.sum() < MIN_PHOTOS or not 0 < right < half.sum():
            raise DataError(
                f"each half of the labels must have {MIN_PHOTOS} captions of this "
                f"model, some of them wrong. Received: {half.sum()}, {right} not wrong"
                f"{f'; {left_out}' if left_out else ''}; judge captions that the model "
                "generates for its validation photos"
            )
    return _Judged(np.array([r for r, _ in matched]), grades, is_fitted, left_out)


def _right_or_slip(judged: _Judged, photos: int) -> np.ndarray:
    """Return 1 for captions that are right or a slip, 0 for wrong ones, (N,).

    It is NaN for captions without a label, or whose label measures.
    """
    # NaN, and not 0: `fit_quality` leaves such captions out.
    good = np.full(photos, np.nan)
    rows = judged.rows[judged.is_fitted]
    good[rows] = judged.grades[judged.is_fitted] >= GRADES["slip"]
    return good


def _measure_labels(
    calibration: Calibration, known: np.ndarray, judged: _Judged
) -> dict[str, Any]:
    """Compare the confidence with the labels that did not fit it.

    There is no ``auc_right`` if none of their captions is right.
    """
    tested = ~judged.is_fitted
    grades = judged.grades[tested]
    confidence = calibration.of_statistics(known[judged.rows[tested]])
    likely = confidence >= CONFIDENCE_WORDS["likely"]
    measured: dict[str, Any] = {
        "fitted": int(judged.is_fitted.sum()),
        "tested": len(grades),
        "likely": float(likely.mean()),
    }
    for name, grade in (("right", GRADES["right"]), ("right_or_slip", GRADES["slip"])):
        positive = grades >= grade
        # At least 1, because there may be no likely caption.
        count = max(int(likely.sum()), 1)
        measured[name] = float((positive & likely).sum() / count)
        if positive.any():  # some are wrong, see _match
            area = rank_auc(confidence[positive], confidence[~positive])
            measured[f"auc_{name}"] = area
    return {name: round(value, 4) for name, value in measured.items()}


def _fit_tags(
    nouns: list[Nouns], val: Split
) -> tuple[TagCalibration | None, dict[str, Any]]:
    """Return the calibration of the nouns of validation photos, and a report.

    The report has ``photos``, ``nouns`` and ``named``, their numbers, the last of nouns
    that a person names, and ``auc`` between these and others. There is no calibration,
    and no ``auc``, if people name all of these nouns, or none.
    """
    named = []
    for of_photo, captions in zip(nouns, val.captions, strict=True):
        by_people = nouns_of_all(captions)
        named += [noun in by_people for noun in of_photo.names]
    x = np.concatenate([of_photo.statistics for of_photo in nouns])  # (nouns, 4)
    y = np.array(named, bool)
    measured: dict[str, Any] = {"photos": len(nouns), "nouns": len(y)}
    measured["named"] = int(y.sum())
    if not 0 < measured["named"] < len(y):
        return None, measured
    calibration = fit_tag_calibration(x, y)
    p = calibration(x)
    measured["auc"] = round(rank_auc(p[y], p[~y]), 4)
    return calibration, measured


def _halves(good: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the first half of the photos, (N,) bool.

    The halves differ by at most one in good captions, and by at most two in photos of
    `rows`: by one in those with a good caption, and by one in the others.
    """
    chosen = np.isin(np.arange(len(good)), rows)
    # Sorted by `good`, then by `chosen`, then at random: the last key sorts first.
    # Every second photo of that order is a stratified half.
    order = np.lexsort((rng.random(len(good)), chosen, good))
    half = np.zeros(len(good), bool)
    half[order[::2]] = True
    return half


def _caption_validation(
    captioner: Generator, reader, val: Split, space: PhotoSpace
) -> _Validation:
    """Return the captions of the validation split and what is known of them."""
    reward = CiderReward(val.captions)
    values = []
    nouns: list[Nouns] = []
    captions: list[str] = []
    cider = []
    decoding = _decoding(captioner)
    with progress_bar(len(val.rows), "photo", "captions") as bar:
        for part in generate_captions(captioner, reader, val.rows, decoding):
            start = len(cider)
            words = best_words(captioner, part)
            # (B, L, D) of the photos that were captioned
            a = reader.read(val.rows[start : start + len(words)])
            evidence = gather_evidence(space, a, part, captioner.vocabulary)
            values.append(evidence.values)
            nouns += evidence.nouns
            captions += [" ".join(caption) for caption in words]
            ends = part.finished[:, 0]
            for k, (caption, end) in enumerate(zip(words, ends, strict=True)):
                # A caption that `max_words` cut off lacks the end, and scores less.
                sentence = [*caption, CiderReward.END] if end else caption
                cider.append(reward(start + k, sentence))
            bar.update(len(words))
    evidence = Evidence(np.concatenate(values), nouns)
    return _Validation(evidence, captions, np.array(cider))


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
    tags: TagCalibration | None,
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
            evidence = gather_evidence(
                space, features, hypotheses, captioner.vocabulary
            )
            parts.append(statistics(evidence, tags))
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
