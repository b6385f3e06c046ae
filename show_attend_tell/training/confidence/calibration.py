"""Calibrate the confidence of a trained model's captions.

The validation split is in distribution. The out-of-distribution sets are unlike the
training photos: photos turned upside down, close-ups, and pictures that the caller
gives. Each photo and each set has the same total weight as others of its side, and both
sides weigh the same.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from show_attend_tell.config.settings import DecodingSettings, Experiment
from show_attend_tell.data.splits import Split, folder_of, load_splits, open_features
from show_attend_tell.evaluation.metrics import CiderReward
from show_attend_tell.evaluation.validation import best_words, generate_captions
from show_attend_tell.inference.confidence import (
    FAMILIARITY,
    QUALITY,
    Calibration,
    PhotoSpace,
    describe_photos,
    probability,
    save_calibration,
    select,
    statistics,
)
from show_attend_tell.inference.engine import matching_encoder
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import CalibrationError, PhotoError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.training.confidence.fitting import (
    describe_split,
    fit_logistic,
    fit_photo_space,
    rank_auc,
    reliability,
)

RIDGE = 0.03  # penalty of both regressions
LEAST = 8  # validation photos, and pictures of a set
_CLOSE_UP = (0.12, 0.25)  # side as a share of the photo's shorter side
_BATCH = 16


@dataclass(frozen=True)
class CalibrationReport:
    """The calibration file and what was measured; see :func:`calibrate`.

    Attributes:
        path: the file.
        measured: ``photos``; by set, ``auc`` of the confidence and
            ``auc_of_familiarity``, of models fitted without that set;
            ``auc_quality`` of the confidence between captions above and below the
            median CIDEr; ``reliability``, (mean confidence, share of better captions
            of photos like the training photos, count) by tenths, where half of the
            weight is in the out-of-distribution sets.
    """

    path: Path
    measured: dict

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        known, quality = self.measured["photos"], self.measured["auc_quality"]
        rows = [f"AUC of the confidence, {known} validation photos and"]
        for name, auc in self.measured["auc"].items():
            alone = self.measured["auc_of_familiarity"][name]
            rows.append(f"  {name:14} {auc:.3f}  (photo alone {alone:.3f})")
        rows.append(f"captions above and below the median CIDEr: {quality:.3f}")
        rows.append("confidence  share of known photos with better captions  captions")
        for mean, share, count in self.measured["reliability"]:
            rows.append(f"  {mean:8.2f}  {share:41.2f}  {count:8}")
        return [*rows, f"{self.path}"]


def calibrate(
    experiment: Experiment,
    work: str | Path,
    model: str | Path,
    others: Mapping[str, Iterable[Image.Image]],
    encoder_weights: str | Path | None = None,
    count: int = 200,
    seed: int = 0,
    shown: bool = True,
) -> CalibrationReport:
    """Calibrate a model on its prepared data and write the file beside it.

    Args:
        experiment: the experiment of the prepared data.
        work: folder of prepared data, with photos and features.
        model: path of the model; a reranker beside it ranks the captions.
        others: pictures of out-of-distribution sets by their names, at least 8 of each.
        encoder_weights: as in
            :func:`~show_attend_tell.inference.engine.matching_encoder`.
        count: validation photos to turn upside down and to crop close-ups from.
        seed: seed of the choice of photos and close-ups, and of the halves.
        shown: whether to show progress bars.

    Raises:
        CalibrationError: the data have too few photos, or a photo cannot be read.
        ModelFileError, FeatureError, ManifestError, CaptionError: the model, its
            encoder or the prepared data are absent, or do not fit each other.
    """
    captioner = load_generator([model])
    encoder = matching_encoder(captioner, Path(model), encoder_weights, Encoder)
    rng = np.random.default_rng(seed)
    with open_features(experiment, work, identity=encoder.identity()) as reader:
        train, val = load_splits(experiment, work, ["train", "val"], reader)
        if len(val.photos) < 2 * LEAST:
            raise CalibrationError(
                f"the validation split must have at least {2 * LEAST} photos. "
                f"Received: {len(val.photos)}; prepare more"
            )
        rows = rng.permutation(len(val.photos))[:count]
        folder = folder_of(experiment, work)
        files = [folder / val.photos[row].path for row in rows]
        pictures = {
            "upside down": _upside_down(encoder, files),
            "close-ups": _close_ups(encoder, files, rng),
            **others,
        }
        squares = {name: _squares(encoder, name, x) for name, x in pictures.items()}
        g = describe_split(reader, train, captioner.grid, shown)
        space = fit_photo_space(g, train.captions, captioner.vocabulary, captioner.grid)
        known, scores = _known(captioner, reader, val, space, shown)
    ood_sets = {
        name: _statistics(captioner, encoder, space, name, pictures, shown)
        for name, pictures in squares.items()
    }
    sources = dict.fromkeys(("upside down", "close-ups"), rows)
    good = (scores > np.median(scores)).astype(np.float64)
    if good.sum() < LEAST // 2:
        raise CalibrationError(
            "the validation captions must differ in CIDEr. Received: "
            f"{int(good.sum())} of {len(good)} above the median; train the model longer"
        )
    half = _halves(good, rows, rng)
    measured = measure(space, known, good, ood_sets, sources, half)
    calibration = fit_calibration(space, known, good, list(ood_sets.values()))
    path = save_calibration(calibration, captioner, model, measured)
    return CalibrationReport(path, measured)


def _halves(good: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the first half of the photos, (N,) bool.

    Both halves have equally many good captions and equally many of `rows`, or one more.
    """
    chosen = np.isin(np.arange(len(good)), rows)
    order = np.lexsort((rng.random(len(good)), chosen, good))
    half = np.zeros(len(good), bool)
    half[order[::2]] = True
    return half


def fit_calibration(
    space: PhotoSpace, known: np.ndarray, good: np.ndarray, ood_sets: list[np.ndarray]
) -> Calibration:
    """Fit both logistic regressions.

    Args:
        space: the distribution of the training photos.
        known: statistics of validation photos, (N, 6).
        good: (N,), 1 where the caption is better than half of them.
        ood_sets: statistics of the pictures of each out-of-distribution set, (M, 6).
    """
    centre, scale = known.mean(axis=0), np.maximum(known.std(axis=0), 1e-6)
    plain = Calibration(space, centre, scale, np.zeros(0), np.zeros(0))
    x = plain.standardise(np.concatenate([known, *ood_sets]))
    labels = (np.arange(len(x)) < len(known)).astype(np.float64)
    weights = [np.full(len(known), 1 / len(known))]
    weights += [np.full(len(x), 1 / len(x) / len(ood_sets)) for x in ood_sets]
    inside = plain.standardise(known)
    return Calibration(
        space,
        centre,
        scale,
        fit_logistic(select(x, FAMILIARITY), labels, np.concatenate(weights), RIDGE),
        fit_logistic(select(inside, QUALITY), good, np.ones(len(inside)), RIDGE),
    )


def _known(captioner, reader, val: Split, space: PhotoSpace, shown: bool):
    """Return statistics (N, 6) and CIDEr (N,) of the validation split."""
    reward, parts, scores = CiderReward(val.captions), [], []
    decoding = _decoding(captioner)
    with progress_bar(len(val.rows), "photo", "captions", shown=shown) as bar:
        for part in generate_captions(captioner, reader, val.rows, decoding):
            start = len(scores)
            words = best_words(captioner, part)
            rows = val.rows[start : start + len(words)]
            g = describe_photos(reader.read(rows), captioner.grid)
            parts.append(statistics(space, g, part))
            ends = part.finished[:, 0]
            for k, (caption, end) in enumerate(zip(words, ends, strict=True)):
                sentence = [*caption, CiderReward.END] if end else caption
                scores.append(reward(start + k, sentence))
            bar.update(len(words))
    return np.concatenate(parts), np.array(scores)


def _squares(encoder: Encoder, name: str, images: Iterable[Image.Image]) -> np.ndarray:
    """Return the pictures of a set as the encoder sees them, (M, S, S, 3) uint8."""
    squares = [encoder.preprocess(image) for image in images]
    if len(squares) < LEAST:
        raise CalibrationError(
            f"the out-of-distribution set {name!r} must have at least {LEAST} "
            f"pictures. Received: {len(squares)}; name a folder with more"
        )
    return np.stack(squares)


def _statistics(
    captioner: Generator,
    encoder: Encoder,
    space: PhotoSpace,
    name: str,
    squares: np.ndarray,
    shown: bool,
) -> np.ndarray:
    """Return the statistics of the pictures of a set, (M, 6)."""
    parts, decoding = [], _decoding(captioner)
    with progress_bar(len(squares), "photo", name, shown=shown) as bar:
        for start in range(0, len(squares), _BATCH):
            features = encoder.encode(squares[start : start + _BATCH])  # (B, L, D)
            hypotheses = captioner.generate(features, decoding)
            g = describe_photos(features, captioner.grid)
            parts.append(statistics(space, g, hypotheses))
            bar.update(len(features))
    return np.concatenate(parts)


def _decoding(captioner: Generator) -> DecodingSettings:
    """Return the model's settings; one graph serves all pictures."""
    return dataclasses.replace(captioner.decoding, batch_size=_BATCH)


def _load(encoder: Encoder, file: Path) -> Image.Image:
    try:
        return encoder.load_photo(file)
    except PhotoError as error:
        raise CalibrationError(
            f"{error}; the calibration needs the validation photos themselves"
        ) from None


def _upside_down(encoder: Encoder, files: list[Path]) -> Iterable[Image.Image]:
    """Yield photos turned by 180 degrees."""
    for file in files:
        yield _load(encoder, file).transpose(Image.Transpose.ROTATE_180)


def _close_ups(
    encoder: Encoder, files: list[Path], rng: np.random.Generator
) -> Iterable[Image.Image]:
    """Yield small parts of photos, which show texture and no objects."""
    for file in files:
        image = _load(encoder, file)
        side = max(1, round(min(image.size) * rng.uniform(*_CLOSE_UP)))
        x = int(rng.integers(0, image.width - side + 1))
        y = int(rng.integers(0, image.height - side + 1))
        shown = image.crop((x, y, x + side, y + side))
        large = encoder.settings.image_size
        yield shown.resize((large, large), Image.Resampling.BICUBIC)


def measure(
    space: PhotoSpace,
    known: np.ndarray,
    good: np.ndarray,
    ood_sets: Mapping[str, np.ndarray],
    sources: Mapping[str, np.ndarray],
    half: np.ndarray,
) -> dict:
    """Measure with models that saw neither the photos nor the set they judge.

    Each half of the validation photos is judged by models fitted on the other half,
    and each set by models fitted without it.

    Args:
        space: the distribution of the training photos.
        known: statistics of validation photos, (N, 6).
        good: (N,), 1 where the caption is better than half of them.
        ood_sets: statistics of at least two out-of-distribution sets, (M, 6) each.
        sources: for sets made of validation photos, the row of each photo, (M,).
        half: (N,) bool, the first half.

    Returns:
        The attribute ``measured`` of :class:`CalibrationReport`.
    """
    auc, alone = ({name: [] for name in ood_sets} for _ in range(2))
    quality, judged = [], []
    for fitted in (half, ~half):
        tested = ~fitted
        for name, outside in ood_sets.items():
            others = [other for key, other in ood_sets.items() if key != name]
            model = fit_calibration(space, known[fitted], good[fitted], others)
            if name in sources:
                outside = outside[tested[sources[name]]]
            judged_in, judged_out = (_judge(model, x) for x in (known[tested], outside))
            auc[name].append(rank_auc(judged_in.confidence, judged_out.confidence))
            alone[name].append(rank_auc(judged_in.familiarity, judged_out.familiarity))
            share = 1 / len(outside) / len(ood_sets)
            judged.append((judged_out.confidence, np.zeros(len(outside)), share))
        model = fit_calibration(
            space, known[fitted], good[fitted], list(ood_sets.values())
        )
        confidence, g = _judge(model, known[tested]).confidence, good[tested]
        quality.append(rank_auc(confidence[g == 1], confidence[g == 0]))
        judged.append((confidence, g, 1 / len(g)))
    table = reliability(
        np.concatenate([p for p, _, _ in judged]),
        np.concatenate([y for _, y, _ in judged]),
        np.concatenate([np.full(len(p), share) for p, _, share in judged]),
    )
    return {
        "photos": len(known),
        "auc": {name: round(float(np.mean(x)), 4) for name, x in auc.items()},
        "auc_of_familiarity": {
            name: round(float(np.mean(x)), 4) for name, x in alone.items()
        },
        "auc_quality": round(float(np.mean(quality)), 4),
        "reliability": [(round(p, 4), round(y, 4), n) for p, y, n in table],
    }


class _Judgement(NamedTuple):
    """The confidence and the familiarity of N pictures, (N,) each."""

    confidence: np.ndarray
    familiarity: np.ndarray


def _judge(model: Calibration, values: np.ndarray) -> _Judgement:
    """Apply a calibration to statistics (N, 6)."""
    x = model.standardise(values)
    known = probability(x, FAMILIARITY, model.familiarity)
    return _Judgement(known * probability(x, QUALITY, model.quality), known)
