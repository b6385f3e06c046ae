"""Fit a reranker to the training photos: kernel ridge regression in closed form.

Y (N, G) has the mean vector of each training photo's captions, see
:mod:`reference.reranker`; its truncated singular value decomposition is U S Q^T. With M
landmarks among the N descriptors x_n, K = k(x, x_j) (N, M) and K_M the M rows of the
landmarks, the coefficients minimise ::

    sum_n w_n |(K C - Y Q)_n|^2 + lambda tr(C^T K_M C)

(with all photos as landmarks, kernel ridge regression; with some, its Nystrom
approximation, Williams and Seeger 2001). The weight w_n of a photo is that of its data
set, ``data.also``. All that is fitted counts a photo w_n times: document frequencies,
the decomposition, which has the rows sqrt(w_n) Y_n, mean and deviation of x, and the
draw of the landmarks.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.features import Features, feature_path
from show_attend_tell.data.splits import (
    Split,
    folder_of,
    load_splits,
    open_features,
    vocabulary_path,
)
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference.reranker import (
    NgramVectors,
    Reranker,
    descriptors,
    kernel,
    normalised,
)
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.quantisation import dequantise, quantise

GAMMA = 0.5  # of the kernel
LAMBDA = 0.05  # weight of the penalty
RANK = 128  # of the basis
MIN_PHOTOS = 5  # with an n-gram
MAX_LANDMARKS = 8192
_JITTER = 1e-6  # on the diagonal, for photos that are in a data set twice
_BATCH = 64  # photos read together
_BLOCK = 4096  # rows of K in memory


def reranker_path(experiment: Experiment, work: str | Path) -> Path:
    """Return the path of an experiment's reranker: beside its features, named alike."""
    folder = folder_of(experiment, work)
    name = feature_path(folder, experiment.encoder).stem.replace("features", "reranker")
    words = vocabulary_path(experiment, work).stem.removeprefix("vocabulary")
    return folder / f"{name}{words}.safetensors"


def fit_reranker(experiment: Experiment, work: str | Path = "prepared") -> Reranker:
    """Fit a reranker to the training photos of an experiment.

    Raises:
        DataError: prepared data are absent or damaged, or too few.
    """
    vocabulary = Vocabulary.load(vocabulary_path(experiment, work))
    with open_features(experiment, work) as reader:
        (data,) = load_splits(experiment, work, ["train"], reader)
        photos = describe_split(reader, data, descriptors)
        identity = reader.attributes["identity"]
    captions = [list(map(vocabulary.encode, photo)) for photo in data.captions]
    return fit(photos, captions, vocabulary.words, identity, data.weights)


def describe_split(
    reader: Features,
    data: Split,
    describe: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Describe all photos of a split, (N, ...); features are read in batches."""
    parts = []
    with progress_bar(len(data.rows), "photo", data.name) as bar:
        for start in range(0, len(data.rows), _BATCH):
            rows = data.rows[start : start + _BATCH]
            parts.append(describe(reader.read(rows)))
            bar.update(len(rows))
    return np.concatenate(parts)


def fit(
    photos: np.ndarray,
    captions: Sequence[Sequence[Sequence[int]]],
    words: Sequence[str],
    identity: dict,
    weights: np.ndarray | None = None,
    max_landmarks: int = MAX_LANDMARKS,
) -> Reranker:
    """Fit a reranker to descriptors (N, D) and the ids of each photo's captions.

    Args:
        photos: from :func:`reference.reranker.descriptors`.
        captions: ids of the words of each photo's captions, at least one.
        words: the vocabulary.
        identity: of the encoder.
        weights: w, (N,), above 0; by default all are 1.
        max_landmarks: maximum number of photos that represent the data set.

    Raises:
        DataError: the captions have too few n-grams in common.
    """
    w = np.ones(len(photos)) if weights is None else weights  # (N,)
    vectors = NgramVectors.of_photos(captions, min(MIN_PHOTOS, len(photos)), w)
    Y = _mean_vectors(vectors, captions)  # (N, G)
    rank = min(RANK, min(Y.shape) - 1)
    if rank < 1 or not Y.count_nonzero():
        raise DataError(
            f"the training captions must have several n-grams in {MIN_PHOTOS} photos "
            f"each, and not in all. Received: {Y.shape[1]} n-grams, {len(photos)} "
            "photos; prepare more photos"
        )
    start = np.ones(min(Y.shape))  # of the iteration, which is random otherwise
    weighted = scipy.sparse.diags_array(np.sqrt(w)) @ Y
    basis = scipy.sparse.linalg.svds(weighted, k=rank, v0=start)[2].T  # (G, r)
    mean = np.average(photos, axis=0, weights=w)
    deviation = np.sqrt(np.average((photos - mean) ** 2, axis=0, weights=w))
    deviation = np.where(deviation > 0, deviation, 1.0)
    x = normalised((photos - mean) / deviation).astype(np.float64)
    rng = np.random.default_rng(0)
    count = min(max_landmarks, len(x))
    chosen = np.sort(rng.choice(len(x), count, replace=False, p=w / w.sum()))
    # Rounded as they will be stored, so that C is that of the stored landmarks.
    landmarks = dequantise(*quantise(x[chosen].astype(np.float32)))
    A = LAMBDA * kernel(landmarks, landmarks, GAMMA).astype(np.float64)  # (M, M)
    A[np.diag_indices_from(A)] += _JITTER * w.sum()
    B = np.zeros((len(chosen), rank))
    for start in range(0, len(x), _BLOCK):
        part = slice(start, start + _BLOCK)
        K = kernel(x[part], landmarks, GAMMA)  # (block, M)
        weighted_K = K * w[part, None]
        A += weighted_K.T @ K
        B += weighted_K.T @ (Y[part] @ basis)
    coefficients = scipy.linalg.solve(A, B, assume_a="pos")
    return Reranker(
        vectors=vectors,
        basis=basis,
        mean=mean,
        deviation=deviation,
        landmarks=landmarks,
        coefficients=coefficients,
        gamma=GAMMA,
        vocabulary=tuple(words),
        encoder_identity=identity,
    )


def _mean_vectors(vectors: NgramVectors, captions: Sequence[Sequence[Sequence[int]]]):
    """Return the mean vector of each photo's captions, a sparse matrix (N, G)."""
    rows = []
    columns = []
    values = []
    for row, of_photo in enumerate(captions):
        parts = list(map(vectors.vector, of_photo))
        for ngrams, numbers in parts:
            rows.append(np.full(len(ngrams), row))
            columns.append(ngrams)
            values.append(numbers / len(parts))
    places = (np.concatenate(rows), np.concatenate(columns))
    shape = (len(captions), len(vectors.ngrams))
    return scipy.sparse.csr_matrix((np.concatenate(values), places), shape, np.float64)
