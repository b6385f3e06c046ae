"""Compute the confidence of captions from their photos' features and words' log p.

With a (L, D) the annotations of a photo and g(a) (3 D,) the square roots of their means
over the top, middle and bottom rows, scaled to length 1, the statistics are

    distance    -log mean_k y_k^2 / lambda_k,      y = V^T (g(a) - mu)
    residual    -log |g(a) - mu - V y|^2
    layout      cosine of g_top(a) - g_bottom(a) with its mean over training photos
    grounding   mean over content words w of log(p_w / f_w),  p_w = f_w + u_w^T z
    log_prob    log p(caption) / number of words
    certainty   log p of the most probable candidate of the beam
    nouns       mean over the nouns of the caption of log p_n / (1 - p_n), p_n the
                probability that a person names it (inference.tags); 0 without nouns

mu, V and lambda are the mean, the principal directions and the variances of g over the
training photos; f_w is the share of training photos with word w in a caption, and u_w
its ridge regression on z_k = y_k / sqrt(lambda_k). All statistics but the last two are
low for a photo that looks nothing like the training photos. The confidence is the
product of two logistic regressions:

    confidence = P(photo like the training photos) P(caption right or a slip | like)

A caption is a slip if one detail is wrong; experiments/labels/README.md has the rule.
The first regression assumes that a tenth of the photos look nothing like the training
photos. The second is fitted to captions that were judged, or to
those that are probably right by their CIDEr (training.confidence).
"""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from show_attend_tell.data.nouns import nouns_of, singular
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.inference.tags import (
    Tag,
    TagCalibration,
    noun_scores,
    noun_statistics,
    tag_calibration_of,
    tags_of,
)
from show_attend_tell.reference.generator import Generator
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.reference.model_file import (
    CAPTIONER,
    CONFIDENCE,
    Part,
    part_of,
    replace_part,
)
from show_attend_tell.reference.reranker import Reranker, load_reranker
from show_attend_tell.reference.tensor_file import (
    TensorFile,
    faults_described,
    open_tensors,
    type_name,
)
from show_attend_tell.runtime.errors import ModelFileError

_LOGGER = logging.getLogger(__name__)
FAMILIARITY = ("residual", "distance", "layout", "grounding", "log_prob")
QUALITY = ("certainty", "nouns")
STATISTICS = (*FAMILIARITY, *QUALITY)
_EARLIER = (*FAMILIARITY, "weakest", "expected")  # in files of earlier versions

_LIMIT = 4.0  # standard deviations: a statistic beyond them changes nothing more
_SMALLEST = 1e-12
_LEAST_P = 1e-3  # of a word, where its regression gives less

_REMEDY = "run `show-attend-tell calibrate` for this model"
# The arrays and their axes: G = 3 D, k directions, V content words, S statistics, and
# the coefficients F of familiarity and Q of quality.
_AXES = {
    "mean": "G",
    "components": "Gk",
    "variances": "k",
    "layout": "D",
    "words": "V",
    "shares": "V",
    "word_weights": "kV",
    "centre": "S",
    "scale": "S",
    "familiarity": "F",
    "quality": "Q",
}
# float16 for the two large matrices; in memory all arrays are float64.
_STORED = {"words": np.int32, "components": np.float16, "word_weights": np.float16}
_TYPES = {name: type_name(_STORED.get(name, np.float32)) for name in _AXES}


@dataclass(frozen=True, eq=False)
class PhotoSpace:
    """The distribution of the training photos; k directions, G = 3 D.

    Attributes:
        grid: (rows, columns) of the annotations.
        mean: mu, (G,).
        components: V, (G, k), orthonormal columns.
        variances: lambda, (k,), descending.
        layout: mean of g_top - g_bottom, (D,).
        words: ids of the content words, (V,) ascending.
        shares: f_w, (V,), positive.
        word_weights: u_w, (k, V).
    """

    grid: tuple[int, int]
    mean: np.ndarray
    components: np.ndarray
    variances: np.ndarray
    layout: np.ndarray
    words: np.ndarray
    shares: np.ndarray
    word_weights: np.ndarray


class Nouns(NamedTuple):
    """The n nouns of a photo's candidates.

    Attributes:
        names: the nouns, in the singular.
        statistics: (n, 4), see :mod:`inference.tags`.
        is_said: (n,) bool, whether the best caption has the noun.
    """

    names: list[str]
    statistics: np.ndarray
    is_said: np.ndarray


class Evidence(NamedTuple):
    """The numbers from which confidence and tags of N photos are computed.

    Attributes:
        values: all of :data:`STATISTICS` except the last, ``nouns``, (N, 6).
        nouns: of each photo.
    """

    values: np.ndarray
    nouns: list[Nouns]


class Judgement(NamedTuple):
    """The confidence of a caption and the tags of its photo.

    Attributes:
        confidence: 0 to 1, rounded to six decimals.
        tags: all nouns of the candidates, the most probable first.
    """

    confidence: float
    tags: tuple[Tag, ...]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Convert features and hypotheses to a confidence.

    Attributes:
        space: the distribution of the training photos.
        centre: mean of each statistic over validation photos, (7,).
        scale: standard deviation of each statistic over validation photos, (7,).
        familiarity: coefficients of :data:`FAMILIARITY`, then the constant, (6,).
        quality: coefficients of :data:`QUALITY`, then the constant, (3,).
        tags: gives nouns their probability; None if the model names nothing.
    """

    space: PhotoSpace
    centre: np.ndarray
    scale: np.ndarray
    familiarity: np.ndarray
    quality: np.ndarray
    tags: TagCalibration | None = None

    def judge(
        self, features: np.ndarray, hypotheses: Hypotheses, vocabulary: Vocabulary
    ) -> list[Judgement]:
        """Return the confidence and the tags of photos.

        Args:
            features: annotations as the encoder returns them, (N, L, D).
            hypotheses: of N photos.
            vocabulary: the captioner's.
        """
        evidence = gather_evidence(self.space, features, hypotheses, vocabulary)
        values = statistics(evidence, self.tags)
        confidence = np.round(self.of_statistics(values), 6).tolist()
        familiar = self.familiarity_of(values)
        judgements = []
        for k, nouns in enumerate(evidence.nouns):
            tags: tuple[Tag, ...] = ()
            if self.tags is not None:
                # A noun is as doubtful as the photo: see the equation in
                # inference.tags.
                tags = tags_of(nouns.names, familiar[k] * self.tags(nouns.statistics))
            judgements.append(Judgement(confidence[k], tags))
        return judgements

    def of_statistics(self, values: np.ndarray) -> np.ndarray:
        """Return the confidence (N,) of statistics (N, 7)."""
        x = self.standardise(values)
        right: np.ndarray = self.familiarity_of(values) * probability(
            x, QUALITY, self.quality
        )
        return right

    def familiarity_of(self, values: np.ndarray) -> np.ndarray:
        """Return P(photo like the training photos), (N,), of statistics (N, 7)."""
        return probability(self.standardise(values), FAMILIARITY, self.familiarity)

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """Return statistics (N, 7) in standard deviations, limited to four."""
        deviations = (values - self.centre) / self.scale
        limited: np.ndarray = np.clip(deviations, -_LIMIT, _LIMIT)
        return limited


def select(x: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the columns of the named statistics, (N, 7) -> (N, F)."""
    return x[:, [STATISTICS.index(name) for name in names]]


def probability(
    x: np.ndarray, names: tuple[str, ...], coefficients: np.ndarray
) -> np.ndarray:
    """Compute a logistic regression.

    Args:
        x: standardised statistics, (N, 7).
        names: F of :data:`STATISTICS`.
        coefficients: (F + 1,), the constant last.
    """
    z = select(x, names) @ coefficients[:-1] + coefficients[-1]  # (N,)
    p: np.ndarray = 0.5 * (1 + np.tanh(0.5 * z))  # 1 / (1 + exp(-z)), no overflow
    return p


def describe_photos(features: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Compute g(a): square roots of the means over three bands of rows.

    Top and bottom have the same number of rows. The signs of negative means are kept.

    Args:
        features: (N, L, D), any float type.
        grid: (rows, columns), L is their product.

    Returns:
        (N, 3 D) float32 of length 1: top, middle, bottom.
    """
    N, _, D = np.shape(features)
    rows, columns = grid
    a = np.asarray(features, np.float32).reshape(N, rows, columns, D)
    third = -(-rows // 3)  # 5 of 14 rows
    # Grids of one, two or four rows have no row between the bands.
    middle = a[:, third : rows - third] if rows > 2 * third else a
    bands = [a[:, :third], middle, a[:, rows - third :]]
    means = np.concatenate([band.mean(axis=(1, 2)) for band in bands], axis=1)
    g: np.ndarray = np.sign(means) * np.sqrt(np.abs(means))  # (N, 3 D)
    # A photo without any activation has g = 0.
    g /= np.maximum(np.linalg.norm(g, axis=1, keepdims=True), _SMALLEST)
    return g


def gather_evidence(
    space: PhotoSpace,
    features: np.ndarray,
    hypotheses: Hypotheses,
    vocabulary: Vocabulary,
) -> Evidence:
    """Compute what the confidence and the tags of photos rest on.

    Args:
        space: the distribution of the training photos.
        features: annotations, (N, L, D).
        hypotheses: of N photos.
        vocabulary: the captioner's.
    """
    g = describe_photos(features, space.grid)  # (N, L, D) -> (N, 3 D)
    centred = g.astype(np.float64) - space.mean
    y = centred @ space.components  # (N, G) -> (N, k)
    z = y / np.sqrt(space.variances)
    # |g - mu - V y|^2, as the columns of V are orthonormal.
    outside = ((centred - y @ space.components.T) ** 2).sum(axis=1)  # (N,)
    # g holds the top band first and the bottom band last.
    D = len(space.layout)
    direction = g[:, :D].astype(np.float64) - g[:, -D:]  # (N, D)
    norms = np.linalg.norm(direction, axis=1) * np.linalg.norm(space.layout)
    # A ridge regression may give a probability below 0 or above 1.
    p = np.clip(z @ space.word_weights + space.shares, _LEAST_P, 1)  # (N, V)
    # Words after the length have log p = 0, so that the sum needs no mask.
    log_p = np.asarray(hypotheses.word_log_probs[:, 0], np.float64).sum(axis=1)  # (N,)
    columns = {
        "residual": -np.log(np.maximum(outside, _SMALLEST)),
        "distance": -np.log(np.maximum((z**2).mean(axis=1), _SMALLEST)),
        "layout": direction @ space.layout / np.maximum(norms, _SMALLEST),
        "grounding": _grounding(space, p, hypotheses.tokens[:, 0]),
        "log_prob": log_p / np.maximum(hypotheses.lengths[:, 0], 1),
        "certainty": np.asarray(hypotheses.log_probs, np.float64).max(axis=1),
    }
    # The last statistic, nouns, needs the calibration of tags: `statistics` adds it.
    values = np.stack([columns[name] for name in STATISTICS[:-1]], axis=1)
    return Evidence(values, _nouns_of_photos(space, p, hypotheses, vocabulary))


def statistics(evidence: Evidence, tags: TagCalibration | None) -> np.ndarray:
    """Return the statistics of photos, (N, 7), in the order of :data:`STATISTICS`.

    Args:
        evidence: of N photos.
        tags: gives nouns their probability; without it ``nouns`` is 0.
    """
    of_nouns = np.zeros(len(evidence.nouns))
    for k, nouns in enumerate(evidence.nouns):
        if tags is not None and nouns.is_said.any():
            of_nouns[k] = tags.log_odds(nouns.statistics[nouns.is_said]).mean()
    return np.column_stack([evidence.values, of_nouns])


def _grounding(space: PhotoSpace, p: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the mean log ratio of each caption's content words, 0 without any.

    Args:
        space: the distribution of the training photos.
        p: probability of each content word, (N, V).
        tokens: (N, T) word ids.
    """
    ratios = np.log(p / space.shares)  # (N, V)
    # The place of each token among the ascending ids of content words. Other tokens get
    # the place of a neighbour, or one behind the end, and are masked below.
    index = np.searchsorted(space.words, tokens)  # (N, T)
    index = np.minimum(index, len(space.words) - 1)
    content = space.words[index] == tokens  # (N, T)
    of_words = np.take_along_axis(ratios, index, axis=1)  # (N, V) -> (N, T)
    counts = np.maximum(content.sum(axis=1), 1)
    means: np.ndarray = np.where(content, of_words, 0).sum(axis=1) / counts
    return means


def _nouns_of_photos(
    space: PhotoSpace, p: np.ndarray, hypotheses: Hypotheses, vocabulary: Vocabulary
) -> list[Nouns]:
    """Return the nouns of each photo's candidates; `p` is as in :func:`_grounding`."""
    forms: dict[str, list[int]] = {}  # places of "dog" and "dogs" in space.words
    for place, word in enumerate(space.words.tolist()):
        forms.setdefault(singular(vocabulary.words[word]), []).append(place)
    found = []
    for k in range(len(p)):
        photo = Hypotheses(*(field[k] for field in hypotheses))
        scores = noun_scores(photo, vocabulary)
        expected = {}
        # The probabilities of singular and plural are added; the sum may exceed 1.
        for noun in scores.keys() & forms.keys():
            places = forms[noun]
            share = min(1.0, float(space.shares[places].sum()))
            expected[noun] = min(1.0, float(p[k, places].sum())), share
        said = nouns_of(vocabulary.decode(photo.tokens[0].tolist()))
        is_said = np.array([noun in said for noun in scores], bool)
        found.append(Nouns(list(scores), noun_statistics(scores, expected), is_said))
    return found


def part_of_calibration(
    calibration: Calibration, reranked: bool, measured: dict[str, Any]
) -> Part:
    """Return a calibration as a part of a captioner's file.

    Args:
        calibration: the calibration.
        reranked: whether the reranker in the file ranks the captions.
        measured: values for JSON that are kept with it.
    """
    about = {
        "statistics": list(STATISTICS),
        "reranked": reranked,
        "measured": measured,
    }
    if calibration.tags is not None:
        about["tags"] = calibration.tags.to_dict()
    values = vars(calibration.space) | vars(calibration)
    arrays: dict[str, Any] = {
        name: np.asarray(values[name], _STORED.get(name, np.float32)) for name in _AXES
    }
    return Part(about, arrays)


def save_calibration(
    calibration: Calibration,
    model: str | Path,
    reranked: bool,
    measured: dict[str, Any],
) -> None:
    """Write the calibration of a model into its file, atomically.

    The arguments are those of :func:`part_of_calibration`, and the model's file.
    """
    part = part_of_calibration(calibration, reranked, measured)
    replace_part(model, CONFIDENCE, part)


def find_calibration(captioner: Generator, model: str | Path) -> Calibration | None:
    """Read the calibration of a model.

    Returns:
        None if the file has none, or one of an earlier version, which a warning names,
        or if its captions were ranked in another way: by another reranker, or only one
        of them by a reranker.

    Raises:
        ModelFileError: it is damaged.
    """
    path = Path(model)
    with (
        faults_described(path, ModelFileError, "a calibration", _REMEDY),
        open_tensors(path, CAPTIONER) as file,
    ):
        if CONFIDENCE not in file.about:
            return None
        about = file.about[CONFIDENCE]
        given = about.get("statistics") if isinstance(about, dict) else None
        # The captions do not change without it, so that a warning is enough.
        if given == list(_EARLIER):
            _LOGGER.warning(
                "%s: its confidence is of an earlier version; %s", path, _REMEDY
            )
            return None
        if given != list(STATISTICS):
            raise ValueError("its statistics are those of another version")
        # Names, shapes and types before any array is read.
        _require_shapes(file, captioner.annotation_width)
        arrays = part_of(file, CONFIDENCE).arrays
        _require_numbers(arrays, len(captioner.vocabulary))
        tags = tag_calibration_of(about["tags"]) if "tags" in about else None
    if not _is_ranked_alike(about.get("reranked"), captioner.reranker, path):
        return None
    # Computed in float64; the file has smaller types.
    for name, value in arrays.items():
        arrays[name] = value.astype(np.int64 if name == "words" else np.float64)
    # All arrays but those of PhotoSpace are fields of Calibration. The grid is the
    # model's.
    names = [field.name for field in dataclasses.fields(PhotoSpace)][1:]
    space = PhotoSpace(captioner.grid, *(arrays.pop(name) for name in names))
    return Calibration(space, **arrays, tags=tags)


def is_calibrated(model: Path) -> bool:
    """Return whether a model's file has a calibration of this version.

    Raises:
        ModelFileError: the file is absent or damaged.
    """
    with (
        faults_described(model, ModelFileError, "a calibration", _REMEDY),
        open_tensors(model, CAPTIONER) as file,
    ):
        about = file.about.get(CONFIDENCE)
        return isinstance(about, dict) and about.get("statistics") == list(STATISTICS)


def valid_calibration(
    captioner: Generator, calibration: Calibration | None, model: Path
) -> Part | None:
    """Return the calibration of a model's file, if it holds for a captioner now.

    Args:
        captioner: the generator of one model, read from the file.
        calibration: its calibration, if any.
        model: the file.

    Returns:
        None if there is none, or if the weights have changed since it was read.
    """
    if calibration is None:
        return None
    from show_attend_tell.models.saving import read_captioner  # it imports Keras

    # The confidence was fitted to the captions of the stored weights alone.
    stored = read_captioner(model).weights
    for ours, theirs in zip(captioner.weights, stored, strict=True):
        if not np.array_equal(np.asarray(ours), theirs):
            return None
    with open_tensors(model, CAPTIONER) as file:
        # The captioner may have been saved over its file, without the calibration.
        return part_of(file, CONFIDENCE) if CONFIDENCE in file.about else None


def _is_ranked_alike(reranked: object, reranker: Reranker | None, file: Path) -> bool:
    """Return whether captions are ranked as those of a file's calibration were."""
    if reranker is None or not reranked:
        return reranker is None and not reranked
    # Another file may hold the same reranker.
    return reranker.file == file or load_reranker(file).digest() == reranker.digest()


def _require_shapes(file: TensorFile, D: int) -> None:
    """Raise a ValueError unless the arrays have the documented names and shapes."""
    prefix = f"{CONFIDENCE}/"
    names = {name for name in file.names if name.startswith(prefix)}
    if surplus := names - {prefix + name for name in _AXES}:
        raise ValueError(f"it also holds {min(surplus)[:80]!r}")
    sizes = {"D": D, "G": 3 * D, "S": len(STATISTICS)}
    sizes |= {"F": len(FAMILIARITY) + 1, "Q": len(QUALITY) + 1}
    for axis, name in (("k", "variances"), ("V", "words")):
        shape = file.shape(prefix + name)
        if len(shape) != 1 or not shape[0]:
            raise ValueError(f"`{name}` must have one axis. Received: {shape}")
        sizes[axis] = shape[0]
    for name, axes in _AXES.items():
        shape = tuple(sizes[axis] for axis in axes)
        file.require(prefix + name, shape, _TYPES[name])


def _require_numbers(arrays: dict[str, np.ndarray], words: int) -> None:
    """Raise a ValueError if a number is not finite, or out of range."""
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"`{name}` must be finite")
    for name in ("variances", "shares", "scale"):
        if not (arrays[name] > 0).all():
            raise ValueError(f"`{name}` must be positive")
    # A difference of two int32 ids of a hostile file may overflow.
    ids = arrays["words"].astype(np.int64)
    if ids[0] < 0 or ids[-1] >= words or (np.diff(ids) <= 0).any():
        raise ValueError("`words` must be ascending ids of words")
