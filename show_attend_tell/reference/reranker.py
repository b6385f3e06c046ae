"""Predict the CIDEr of captions from a photo, and rank hypotheses by it.

Consensus reranking (Devlin et al., arXiv:1505.04467, Sec. 2.3) prefers the hypothesis
that is most like the captions of the nearest training photos. Here all training photos
take part: kernel ridge regression predicts from a photo the mean y of its captions'
vectors g, so that g(c) . y estimates the mean cosine of a caption c with the photo's
captions, about 0 to 1, which is CIDEr without its factor of 10. With annotations a_i,
training photos x_j (landmarks) and a basis Q of the vectors (their truncated singular
value decomposition)::

    x = normalised((sqrt(mean_i a_i) - mean) / deviation)
    k(x, x_j) = exp(-gamma |x - x_j|^2)
    y = Q sum_j k(x, x_j) C_j

A hypothesis is ranked by log p(c) / length^p + w g(c) . y, see ``DecodingSettings``.

CIDEr (Vedantam et al., arXiv:1411.5726, Eqs. 1 and 2) compares two captions by the
cosines of their TF-IDF vectors of n-grams, one for each n of 1 to 4, and takes the
mean. Here one vector g holds the four vectors of a caption, each of length 1/2.

The file of ``model.keras`` is ``model.reranker.npz`` in the same folder. The basis and
the landmarks have 8 bits per number. The coefficients have 16: a prediction is the
difference of large sums of them, which 8 bits would lose.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.data.encoder_identity import Identity
from show_attend_tell.data.vocabulary import END, UNKNOWN
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.runtime.errors import ModelFileError, one_line
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.untrusted import (
    DAMAGED,
    SCALE,
    dequantise,
    quantise,
    read_arrays,
)

ORDERS = 4  # n of the n-grams, 1 to 4
Ngram = tuple[int, ...]  # ids of words

FORMAT = 2
NONE = "none"  # instead of a file: rank without a reranker
_REMEDY = "write it again by `show-attend-tell fit-reranker`"
_PLAIN = {
    "ngrams": np.int32,
    "idf": np.float32,
    "mean": np.float32,
    "deviation": np.float32,
    "coefficients": np.float16,
}
# Of 8 bits: each n-gram of the basis has a scale, and each column of the landmarks.
_SCALED = ("basis", "landmarks")
_ARRAYS = (
    _PLAIN
    | dict.fromkeys(_SCALED, np.int8)
    | {name + SCALE: np.float32 for name in _SCALED}
)


def ngrams_of(words: Sequence[int]) -> Counter[Ngram]:
    """Count the n-grams of a caption that contain no unknown word, n from 1 to 4."""
    ngrams = (
        tuple(words[k : k + n])
        for n in range(1, ORDERS + 1)
        for k in range(len(words) - n + 1)
    )
    return Counter(ngram for ngram in ngrams if UNKNOWN not in ngram)


class NgramVectors:
    """The n-grams that are counted, and their weights.

    Attributes:
        ngrams: G n-grams.
        idf: (G,), log(N / number of the N training photos with the n-gram).
    """

    def __init__(self, ngrams: Sequence[Ngram], idf: np.ndarray | Sequence[float]):
        self.ngrams = tuple(ngrams)
        self.idf = np.asarray(idf, np.float32)
        self._columns = {ngram: k for k, ngram in enumerate(self.ngrams)}

    @classmethod
    def of_photos(
        cls, photos: Iterable[Iterable[Sequence[int]]], least: int
    ) -> "NgramVectors":
        """Return the n-grams, as ids of words, that at least `least` photos have."""
        count = 0
        photos_with: Counter[Ngram] = Counter()
        for captions in photos:
            count += 1
            photos_with.update({g for words in captions for g in ngrams_of(words)})
        kept = sorted(ngram for ngram, df in photos_with.items() if df >= least)
        return cls(kept, [math.log(count / photos_with[ngram]) for ngram in kept])

    def vector(self, words: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and the values of a caption that are not 0."""
        counted = [
            (self._columns[ngram], times, len(ngram) - 1)
            for ngram, times in ngrams_of(words).items()
            if ngram in self._columns
        ]
        if not counted:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        columns, times, orders = np.array(counted, np.int64).T
        values = times * self.idf[columns]
        squares = np.bincount(orders, values**2, ORDERS)  # (4,)
        lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
        values = values / lengths[orders] / math.sqrt(ORDERS)
        return columns, values.astype(np.float32)


def descriptors(
    annotations: np.ndarray, shares: np.ndarray | None = None
) -> np.ndarray:
    """Return sqrt(max(0, mean_i a_i)) of photos, (N, D).

    Args:
        annotations: (N, L, D).
        shares: (N, L), weights of the mean; by default all locations are equal.
    """
    annotations = np.asarray(annotations, np.float32)
    if shares is None:
        mean = annotations.mean(axis=1)  # (N, L, D) -> (N, D)
    else:
        weights = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-6)
        mean = np.einsum("nl,nld->nd", weights, annotations)
    roots: np.ndarray = np.sqrt(np.maximum(mean, 0.0))
    return roots


@dataclass(frozen=True)
class Reranker:
    """A fitted prediction of CIDEr.

    Attributes:
        vectors: the n-grams and their weights.
        basis: Q, (G, r).
        mean, deviation: of the descriptors of the training photos, (D,) each.
        landmarks: x_j, (M, D).
        coefficients: C, (M, r).
        gamma: of the kernel.
        vocabulary: words of the ids of the n-grams.
        encoder_identity: the encoder of the annotations.
        file: the file that it was read from, or None.
    """

    vectors: NgramVectors
    basis: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    landmarks: np.ndarray
    coefficients: np.ndarray
    gamma: float
    vocabulary: tuple[str, ...]
    encoder_identity: Identity
    file: Path | None = None

    def digest(self) -> str:
        """Return the SHA-256 of its numbers, in hexadecimal."""
        numbers = self.vectors.idf, self.basis, self.landmarks, self.coefficients
        digest = hashlib.sha256()
        for array in numbers:
            digest.update(np.ascontiguousarray(array, np.float32).data)
        return digest.hexdigest()

    def predict(self, descriptors: np.ndarray) -> np.ndarray:
        """Return Q^T y of photos from their descriptors, (N, D) -> (N, r)."""
        x = normalised((descriptors - self.mean) / self.deviation)
        predicted: np.ndarray = (
            kernel(x, self.landmarks, self.gamma) @ self.coefficients
        )
        return predicted

    def expected_cider(
        self, predicted: np.ndarray, captions: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Return g(c) . y of W captions of one photo, (W,).

        Args:
            predicted: (r,), from :meth:`predict`.
            captions: ids of the words of each caption.
        """
        vectors = map(self.vectors.vector, captions)
        return np.array(
            [values @ (self.basis[columns] @ predicted) for columns, values in vectors]
        )

    def expected_ciders(
        self,
        tokens: np.ndarray,
        annotations: np.ndarray,
        regions: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return g(c) . y of the captions of N photos, (N, W, T) -> (N, W)."""
        predicted = self.predict(descriptors(annotations, regions))
        return np.array(
            [
                self.expected_cider(of_photo, _captions(captions))
                for of_photo, captions in zip(predicted, tokens, strict=True)
            ]
        )

    def rank(
        self,
        hypotheses: Hypotheses,
        annotations: np.ndarray,
        weight: float,
        regions: np.ndarray | None = None,
    ) -> Hypotheses:
        """Order the hypotheses of photos by log p / length^p + w g(c) . y.

        Args:
            hypotheses: of N photos, NumPy arrays.
            annotations: (N, L, D).
            weight: w.
            regions: (N, L) in [0, 1], the part of each photo that predicts y; by
                default the whole photo.

        Returns:
            The hypotheses, best first; ``scores`` are the sums.
        """
        cider = self.expected_ciders(hypotheses.tokens, annotations, regions)
        scores = hypotheses.scores + weight * cider  # (N, W)
        order = np.argsort(-scores, axis=1, kind="stable")
        rows = np.arange(len(order))[:, None]
        hypotheses = hypotheses._replace(scores=scores.astype(np.float32))
        return Hypotheses(*(np.asarray(field)[rows, order] for field in hypotheses))


def normalised(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1; rows of 0 remain."""
    rows: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
    return rows


def kernel(x: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    """Return exp(-gamma |x - x_j|^2) of rows of length 1, (N, D), (M, D) -> (N, M)."""
    k: np.ndarray = np.exp(2 * gamma * (x @ landmarks.T - 1))
    return k


def _captions(tokens: np.ndarray) -> list[list[int]]:
    """Return the words of hypotheses (W, T), without the end word and padding."""
    return [[word for word in row if word > END] for row in tokens.tolist()]


def save_reranker(reranker: Reranker, path: str | Path) -> None:
    """Write a reranker atomically, as a ``.npz`` file."""
    ngrams = np.zeros((len(reranker.vectors.ngrams), ORDERS), np.int32)  # 0: padding
    for row, ngram in zip(ngrams, reranker.vectors.ngrams, strict=True):
        row[: len(ngram)] = ngram
    values = {"ngrams": ngrams, "idf": reranker.vectors.idf}
    arrays: dict[str, Any] = {
        name: np.asarray(values.get(name, getattr(reranker, name, None)), kind)
        for name, kind in _PLAIN.items()
    }
    for name in _SCALED:
        matrix = np.asarray(getattr(reranker, name), np.float32)
        q, scale = quantise(matrix.T if name == "basis" else matrix)
        arrays |= {name: q.T if name == "basis" else q, name + SCALE: scale}
    about = {
        "format": FORMAT,
        "gamma": reranker.gamma,
        "vocabulary": reranker.vocabulary,
        "encoder": reranker.encoder_identity,
    }
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, about=json.dumps(about), **arrays)


def load_reranker(path: str | Path) -> Reranker:
    """Read a reranker.

    Raises:
        ModelFileError: the file is absent, damaged, or no reranker.
    """
    path = Path(path)
    try:
        arrays, about = read_arrays(path, _ARRAYS, FORMAT)
        fault = _layout_fault(arrays, about)
        if fault is None:
            return _reranker(arrays, about, path)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such reranker; {_REMEDY}") from None
    except DAMAGED as error:
        fault = one_line(error)
    raise ModelFileError(
        f"{path}: not a reranker of this package ({fault}); {_REMEDY}"
    ) from None


def reranker_beside(model: str | Path) -> Path:
    """Return the path of a model's reranker."""
    return Path(model).with_suffix(".reranker.npz")


def find_reranker(
    file: str | Path | None, models: Sequence[str | Path]
) -> Reranker | None:
    """Read the reranker of a model, or return None if it has none.

    Args:
        file: a reranker's file, or :data:`NONE`; by default the file beside a single
            model, if it exists.
        models: the model files.

    Raises:
        ModelFileError: see :func:`load_reranker`.
    """
    if file is None and len(models) == 1 and reranker_beside(models[0]).exists():
        file = reranker_beside(models[0])
    if file is None or str(file) == NONE:
        return None
    return load_reranker(file)


def _layout_fault(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str | None:
    """Return a difference to the documented layout, or None."""
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != kind:
            return f"`{name}` has the type {arrays[name].dtype}"
    gamma, words = about.get("gamma"), about.get("vocabulary")
    if not isinstance(gamma, float) or not (math.isfinite(gamma) and gamma > 0):
        return "`gamma` must be a positive number"
    if not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
        return "`vocabulary` must be words"
    if not isinstance(about.get("encoder"), dict):
        return "`encoder` must be an object"
    ids = arrays["ngrams"]
    if not ((ids >= 0) & (ids < len(words))).all():
        return "`ngrams` must be ids of words"
    (G,), (D,) = arrays["idf"].shape, arrays["mean"].shape
    M, r = arrays["coefficients"].shape
    shapes = {
        "ngrams": (G, ORDERS),
        "basis": (G, r),
        "deviation": (D,),
        "landmarks": (M, D),
        "basis_scale": (G,),
        "landmarks_scale": (D,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            return f"`{name}` must be {shape}, and is {arrays[name].shape}"
    if not M * r:
        return "it has no coefficients"
    values = [*arrays.values()]
    for name in ("basis", "landmarks"):
        largest = np.full(1, 127, np.int8)
        values.append(dequantise(largest, arrays[f"{name}_scale"]))
    if any(not np.isfinite(value).all() for value in values):
        return "its numbers must be finite"
    if not (arrays["deviation"] > 0).all():
        return "deviations must be positive"
    return None


def _reranker(
    arrays: dict[str, np.ndarray], about: dict[str, Any], path: Path
) -> Reranker:
    ngrams = [tuple(w for w in row if w) for row in arrays["ngrams"].tolist()]
    basis = dequantise(arrays["basis"].T, arrays["basis_scale"]).T
    landmarks = dequantise(arrays["landmarks"], arrays["landmarks_scale"])
    coefficients = arrays["coefficients"].astype(np.float32)
    return Reranker(
        NgramVectors(ngrams, arrays["idf"]),
        *(basis, arrays["mean"], arrays["deviation"], landmarks, coefficients),
        about["gamma"],
        tuple(about["vocabulary"]),
        about["encoder"],
        path,
    )
