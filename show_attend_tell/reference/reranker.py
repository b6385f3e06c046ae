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

A reranker is a part of a captioner's file, or has a file of its own. The basis and the
landmarks have 8 bits per number. The coefficients have 16: a prediction is the
difference of large sums of them, which 8 bits would lose.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.data.encoder_identity import Identity, identity_difference
from show_attend_tell.data.vocabulary import END, UNKNOWN
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.reference.model_file import (
    CAPTIONER,
    CONFIDENCE,
    RERANKER,
    Part,
    part_of,
    read_config,
    replace_part,
)
from show_attend_tell.reference.tensor_file import (
    SCALE,
    TensorFile,
    class_of,
    faults_described,
    open_tensors,
    type_name,
    write_tensors,
)
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.quantisation import dequantise, quantise

ORDERS = 4  # n of the n-grams, 1 to 4
Ngram = tuple[int, ...]  # ids of words

CLASS = "Reranker"  # of a file that holds a reranker alone
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
        idf: (G,), log(N / number of the N training photos with the n-gram), both
            counted by weight.
    """

    def __init__(self, ngrams: Sequence[Ngram], idf: np.ndarray | Sequence[float]):
        self.ngrams = tuple(ngrams)
        self.idf = np.asarray(idf, np.float32)
        self._columns = {ngram: k for k, ngram in enumerate(self.ngrams)}

    @classmethod
    def of_photos(
        cls,
        photos: Sequence[Iterable[Sequence[int]]],
        min_photos: int,
        weights: Sequence[float] | np.ndarray | None = None,
    ) -> "NgramVectors":
        """Return the n-grams whose photos weigh at least `min_photos` together.

        Args:
            photos: the ids of the words of each photo's captions.
            min_photos: minimum sum of the weights of the photos with an n-gram; their
                minimum number by default.
            weights: (N,), how many photos a photo counts as; 1 by default.
        """
        counts = np.ones(len(photos)) if weights is None else np.asarray(weights)
        photos_with: defaultdict[Ngram, float] = defaultdict(float)
        count = 0.0
        for captions, weight in zip(photos, counts.tolist(), strict=True):
            # As the weights of an n-gram are added, and not by `sum`, which compensates
            # for rounding since Python 3.12: what all photos have gets an idf of 0.
            count += weight
            for ngram in {g for words in captions for g in ngrams_of(words)}:
                photos_with[ngram] += weight
        kept = sorted(ngram for ngram, df in photos_with.items() if df >= min_photos)
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
        # Counts, not shares of words as in CIDEr: a caption's length cancels in the
        # cosine.
        values = times * self.idf[columns]
        squares = np.bincount(orders, values**2, ORDERS)  # (4,)
        # An order without n-grams stays zero; 1 avoids a division by 0.
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
        # A region that covers nothing has the mean 0, and no division by 0.
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
        """Return the SHA-256 of idf, Q, x_j and C, in hexadecimal.

        It does not cover the n-grams, the mean and the deviation, gamma, the vocabulary
        and the encoder: a fit to other photos changes the numbers above too.
        """
        digest = hashlib.sha256()
        for array in (
            self.vectors.idf,
            self.basis,
            self.landmarks,
            self.coefficients,
        ):
            digest.update(np.ascontiguousarray(array, np.float32).data)
        return digest.hexdigest()

    def difference(
        self, words: Sequence[str], identity: Identity, width: int
    ) -> str | None:
        """Return why it cannot rank the captions of a captioner; None if it can.

        Args:
            words: the vocabulary of the captioner.
            identity: the encoder whose annotations the captioner reads.
            width: D of these annotations.
        """
        if self.vocabulary != tuple(words):
            return "another vocabulary"
        if difference := identity_difference(
            self.encoder_identity, identity, either=True
        ):
            return difference
        return None if self.mean.shape == (width,) else "other annotations"

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
            # Only the rows of the caption's own n-grams, not all G of Q.
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
        # Places without a hypothesis stay last: their scores are -inf.
        scores = hypotheses.scores + weight * cider  # (N, W)
        order = np.argsort(-scores, axis=1, kind="stable")
        hypotheses = hypotheses._replace(scores=scores.astype(np.float32))
        return hypotheses.reordered(order)


def normalised(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1; rows of 0 remain."""
    rows: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
    return rows


def kernel(x: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    """Return exp(-gamma |x - x_j|^2) of rows of length 1, (N, D), (M, D) -> (N, M)."""
    # |x - x_j|^2 = 2 - 2 x . x_j, which is one matrix product.
    k: np.ndarray = np.exp(2 * gamma * (x @ landmarks.T - 1))
    return k


def _captions(tokens: np.ndarray) -> list[list[int]]:
    """Return the words of hypotheses (W, T), without the end word and padding."""
    return [[word for word in row if word > END] for row in tokens.tolist()]


def part_of_reranker(reranker: Reranker) -> Part:
    """Return a reranker as a part of a captioner's file."""
    ngrams = np.zeros((len(reranker.vectors.ngrams), ORDERS), np.int32)  # 0: padding
    for row, ngram in zip(ngrams, reranker.vectors.ngrams, strict=True):
        row[: len(ngram)] = ngram
    # Transposed, as `quantise` has a scale per column and each n-gram shall have one.
    basis, basis_scale = quantise(np.asarray(reranker.basis, np.float32).T)
    landmarks, scale = quantise(np.asarray(reranker.landmarks, np.float32))
    arrays: dict[str, np.ndarray] = {
        "ngrams": ngrams,
        "idf": reranker.vectors.idf,
        "mean": np.asarray(reranker.mean, np.float32),
        "deviation": np.asarray(reranker.deviation, np.float32),
        "coefficients": np.asarray(reranker.coefficients, np.float16),
        "basis": basis.T,
        "basis" + SCALE: basis_scale,
        "landmarks": landmarks,
        "landmarks" + SCALE: scale,
    }
    about = {
        "gamma": reranker.gamma,
        "vocabulary": list(reranker.vocabulary),
        "encoder": reranker.encoder_identity,
    }
    return Part(about, arrays)


def save_reranker(reranker: Reranker, path: str | Path) -> None:
    """Write a reranker atomically; into a captioner's file as a part of it.

    The confidence of a captioner holds for the earlier ranking, and is left out.

    Raises:
        ModelFileError: the captioner has another vocabulary or encoder, so that no
            program could load it with this reranker.
    """
    part = part_of_reranker(reranker)
    if class_of(path) == CAPTIONER:
        config, identity = read_config(path)
        if difference := reranker.difference(
            config.vocabulary, identity, config.annotation_width
        ):
            raise ModelFileError(
                f"{path}: its reranker must be fitted to its words and its encoder. "
                f"Received: {difference}; run `show-attend-tell fit-reranker --out "
                f"{path}` with the model's experiment"
            )
        replace_part(path, RERANKER, part, CONFIDENCE)
        return
    arrays = {f"{RERANKER}/{name}": values for name, values in part.arrays.items()}
    write_tensors(path, {"class": CLASS, RERANKER: part.about}, arrays)


def require_writable(path: str | Path) -> None:
    """Raise an error unless a reranker may be written to a path.

    It may take the place of another reranker, become a part of a captioner, or be a
    new file.

    Raises:
        ModelFileError: there is something else at the path.
    """
    path = Path(path)
    if path.exists() and class_of(path) not in (CLASS, CAPTIONER):
        raise ModelFileError(
            f"{path}: must be the file of a reranker or of a model, or a new file. "
            "Received: another file, or a damaged one; name another file, or delete "
            "this one first"
        )


def load_reranker(path: str | Path) -> Reranker:
    """Read the reranker of a file, or of a captioner's file.

    Raises:
        ModelFileError: the file is absent or damaged, or has no reranker.
    """
    path = Path(path)
    with (
        faults_described(path, ModelFileError, "a reranker", _REMEDY),
        open_tensors(path, CLASS, CAPTIONER) as file,
    ):
        # A captioner's file has weights too, which its own reader verifies.
        if file.about["class"] == CLASS:
            file.require_no_more({f"{RERANKER}/{name}" for name in _ARRAYS})
        reranker = _reranker_of(file)
        if reranker is None:
            raise ValueError("it has none")
        return reranker


def stored_reranker(reranker: Reranker) -> Part:
    """Return a reranker as its file has it, or rounded if it has none.

    Raises:
        OSError, ValueError: the file was changed since.
    """
    if reranker.file is None:
        return part_of_reranker(reranker)
    with open_tensors(reranker.file, CLASS, CAPTIONER) as file:
        return part_of(file, RERANKER)


def find_reranker(
    file: str | Path | None, models: Sequence[str | Path]
) -> Reranker | None:
    """Read the reranker of a model, or return None if it has none.

    Args:
        file: a reranker's file, or :data:`NONE`; by default the reranker in the file
            of a single model, if it has one.
        models: the model files.

    Raises:
        ModelFileError: see :func:`load_reranker`.
    """
    if file is not None:
        return None if str(file) == NONE else load_reranker(file)
    if len(models) != 1:
        return None
    path = Path(models[0])
    with (
        faults_described(path, ModelFileError, "a reranker", _REMEDY),
        open_tensors(path, CAPTIONER) as tensors,
    ):
        return _reranker_of(tensors)


def _reranker_of(file: TensorFile) -> Reranker | None:
    """Return the reranker of an open file, None if it has none.

    Raises:
        ValueError: it differs from the documented layout, or is damaged.
    """
    if RERANKER not in file.about:
        return None
    about = file.about[RERANKER]
    _require_values(about)
    # Shapes before arrays: nothing is read that does not fit.
    _require_shapes(file)
    arrays = part_of(file, RERANKER).arrays
    _require_numbers(arrays, len(about["vocabulary"]))
    return _from_arrays(arrays, about, file.path)


def _require_values(about: Any) -> None:
    """Raise a ValueError unless the values of a header have the documented types."""
    if not isinstance(about, dict):
        raise ValueError(f"`{RERANKER}` must be an object")
    gamma = about.get("gamma")
    words = about.get("vocabulary")
    if not isinstance(gamma, float) or not (math.isfinite(gamma) and gamma > 0):
        raise ValueError("`gamma` must be a positive number")
    if not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
        raise ValueError("`vocabulary` must be words")
    if not isinstance(about.get("encoder"), dict):
        raise ValueError("`encoder` must be an object")


def _require_shapes(file: TensorFile) -> None:
    """Raise a ValueError unless the arrays have the documented names and shapes."""
    names = {name for name in file.names if name.startswith(f"{RERANKER}/")}
    if surplus := names - {f"{RERANKER}/{name}" for name in _ARRAYS}:
        raise ValueError(f"it also holds {min(surplus)[:80]!r}")
    (G,) = _sizes(file, "idf", 1)
    (D,) = _sizes(file, "mean", 1)
    M, r = _sizes(file, "coefficients", 2)
    shapes = {
        "ngrams": (G, ORDERS),
        "idf": (G,),
        "mean": (D,),
        "deviation": (D,),
        "coefficients": (M, r),
        "basis": (G, r),
        "basis" + SCALE: (G,),
        "landmarks": (M, D),
        "landmarks" + SCALE: (D,),
    }
    for name, shape in shapes.items():
        file.require(f"{RERANKER}/{name}", shape, type_name(_ARRAYS[name]))
    if not M * r:
        raise ValueError("it has no coefficients")


def _sizes(file: TensorFile, name: str, rank: int) -> tuple[int, ...]:
    shape = file.shape(f"{RERANKER}/{name}")
    if len(shape) != rank:
        raise ValueError(f"`{name}` must have {rank} axes. Received: {shape}")
    return shape


def _require_numbers(arrays: dict[str, np.ndarray], words: int) -> None:
    """Raise a ValueError if a number is not finite, or out of range."""
    ids = arrays["ngrams"]
    if not ((ids >= 0) & (ids < words)).all():
        raise ValueError("`ngrams` must be ids of words")
    for name, values in arrays.items():
        if name.endswith(SCALE):
            # -128 is the largest magnitude of int8, though `quantise` ends at 127.
            values = dequantise(np.full(values.shape, -128), values)  # the largest
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"`{name}` must be finite")
    if not (arrays["deviation"] > 0).all():
        raise ValueError("deviations must be positive")


def _from_arrays(
    arrays: dict[str, np.ndarray], about: dict[str, Any], path: Path
) -> Reranker:
    # 0, the id of padding, fills the rows of short n-grams.
    ngrams = [tuple(w for w in row if w) for row in arrays["ngrams"].tolist()]
    return Reranker(
        vectors=NgramVectors(ngrams, arrays["idf"]),
        basis=dequantise(arrays["basis"].T, arrays["basis" + SCALE]).T,
        mean=arrays["mean"],
        deviation=arrays["deviation"],
        landmarks=dequantise(arrays["landmarks"], arrays["landmarks" + SCALE]),
        coefficients=arrays["coefficients"].astype(np.float32),
        gamma=about["gamma"],
        vocabulary=tuple(about["vocabulary"]),
        encoder_identity=about["encoder"],
        file=path,
    )
