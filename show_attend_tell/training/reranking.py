"""Fit a reranker to the training photos: kernel ridge regression in closed form.

Y (N, G) has the mean vector of each training photo's captions, see
:mod:`reference.reranker`. A photo counts w_n times: as often as an epoch shows it
(``data.also``), times c_n, its number of captions divided by the mean of its data set,
for one caption is a noisy mean. So do document frequencies; Q (G, r) of the truncated
singular value decomposition U S Q^T of the rows sqrt(w_n) Y_n; mean and deviation of
the descriptors x_n; and the draw of M landmarks among them.

Each data set s describes photos in a style of its own, which a photo hardly tells. So
each has coefficients of its own. With K = k(x, x_j) (N, M), K_M the M rows of the
landmarks they minimise ::

    sum_(n in s) c_n |(K C_s - Y Q)_n|^2 + lambda tr(C_s^T K_M C_s)

(with all photos as landmarks, kernel ridge regression; with some, its Nystrom
approximation, Williams and Seeger 2001). The reranker expects the styles in proportion
to their weights::

    C = sum_s (sum_(n in s) w_n / sum_n w_n) C_s
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.features import Features, feature_path
from show_attend_tell.data.splits import (
    Split,
    folder_of,
    load_splits,
    load_vocabulary,
    open_features,
    vocabulary_path,
)
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference.model_file import read_config
from show_attend_tell.reference.reranker import (
    NgramVectors,
    Reranker,
    descriptors,
    kernel,
    normalised,
)
from show_attend_tell.runtime.errors import DataError, ModelFileError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.quantisation import dequantise, quantise

GAMMA = 0.5  # of the kernel
LAMBDA = 0.05  # weight of the penalty
RANK = 192  # of the basis
MIN_PHOTOS = 5  # with an n-gram, counted by weight
MAX_LANDMARKS = 8192
_JITTER = 1e-6  # on the diagonal, for photos that are in a data set twice
_BATCH = 64  # photos read together
_BLOCK = 4096  # rows of K in memory


def reranker_path(experiment: Experiment, work: str | Path) -> Path:
    """Return the path of an experiment's reranker: beside its features, named alike.

    The name also has what determines the words, ``-keep``, and the further data sets
    with their weights other than 1, such as ``+everyday=0.25``.
    """
    folder = folder_of(experiment, work)
    name = feature_path(folder, experiment.encoder).stem.replace("features", "reranker")
    # No name of a data set contains "+" or "=".
    words = vocabulary_path(experiment, work).stem.removeprefix("vocabulary")
    name += words.partition("+")[0]
    for further, weight in sorted(experiment.data.also.items()):
        name += f"+{further}" if weight == 1 else f"+{further}={weight}"
    return folder / f"{name}.safetensors"


def fit_reranker(
    experiment: Experiment,
    work: str | Path = "prepared",
    model: str | Path | None = None,
) -> Reranker:
    """Fit a reranker to the training photos of an experiment.

    Args:
        experiment: the experiment of the prepared data.
        work: the folder of prepared data.
        model: the file of a captioner, whose words the reranker then counts; by default
            those of the prepared data. A training that starts from a model keeps the
            words of the model, so that the two may differ.

    Raises:
        DataError: prepared data are absent or damaged, or too few.
        ModelFileError: the model is absent or damaged, or reads the annotations of
            another encoder.
    """
    vocabulary = load_vocabulary(experiment, work)
    with open_features(experiment, work) as reader:
        if model is not None:
            vocabulary = _words_of(Path(model), reader)
        (data,) = load_splits(experiment, work, ["train"], reader)
        photos = describe_split(reader, data, descriptors)
        identity = reader.attributes["identity"]
    captions = [list(map(vocabulary.encode, photo)) for photo in data.captions]
    words = vocabulary.words
    return fit(photos, captions, words, identity, data.weights, data.sets)


def _words_of(model: Path, reader: Features) -> Vocabulary:
    """Return the words of a captioner that reads the annotations of a feature set.

    Raises:
        ModelFileError: it is damaged, or reads those of another encoder.
    """
    config, identity = read_config(model)
    difference = identity_difference(
        reader.attributes["identity"], identity, either=True
    )
    if reader.shape[-1] != config.annotation_width:
        difference = difference or "annotations of another width"
    if difference:
        raise ModelFileError(
            f"{model}: must read the features of the experiment. Received: another "
            f"encoder ({difference}); name the experiment that the model was trained on"
        )
    return Vocabulary(config.vocabulary)


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
    shown: np.ndarray | None = None,
    sets: np.ndarray | None = None,
    max_landmarks: int = MAX_LANDMARKS,
) -> Reranker:
    """Fit a reranker to descriptors (N, D) and the ids of each photo's captions.

    Args:
        photos: from :func:`reference.reranker.descriptors`.
        captions: ids of the words of each photo's captions, at least one.
        words: the vocabulary.
        identity: of the encoder.
        shown: (N,), times that an epoch shows each photo; by default once.
        sets: (N,), the number of each photo's data set; by default all are of one.
        max_landmarks: maximum number of photos that represent the data set.

    Raises:
        DataError: the captions have too few n-grams in common.
    """
    if shown is None:
        shown = np.ones(len(photos))
    if sets is None:
        sets = np.zeros(len(photos), int)
    # Weights of photos and vectors of captions
    c = _relative_counts(captions, sets)  # (N,)
    w = shown * c
    vectors = NgramVectors.of_photos(captions, min(MIN_PHOTOS, len(photos)), w)
    Y = _mean_vectors(vectors, captions)  # (N, G)
    # `svds` needs a rank below both sides of the matrix.
    rank = min(RANK, min(Y.shape) - 1)
    if rank < 1 or not Y.count_nonzero():
        raise DataError(
            f"the training captions must have several n-grams in {MIN_PHOTOS} photos "
            f"each, and not in all. Received: {Y.shape[1]} n-grams, {len(photos)} "
            "photos; prepare more photos"
        )
    # The basis Q
    start = np.ones(min(Y.shape))  # of the iteration, which is random otherwise
    weighted = scipy.sparse.diags_array(np.sqrt(w)) @ Y
    basis = scipy.sparse.linalg.svds(weighted, k=rank, v0=start)[2].T  # (G, r)
    # Descriptors and landmarks x
    mean = np.average(photos, axis=0, weights=w)
    deviation = np.sqrt(np.average((photos - mean) ** 2, axis=0, weights=w))
    deviation = np.where(deviation > 0, deviation, 1.0)
    x = normalised((photos - mean) / deviation).astype(np.float64)
    rng = np.random.default_rng(0)
    count = min(max_landmarks, len(x))
    chosen = np.sort(rng.choice(len(x), count, replace=False, p=w / w.sum()))
    # Rounded as they will be stored, so that C is that of the stored landmarks. Rounded
    # after the fit they would change predictions by 6 %.
    landmarks = dequantise(*quantise(x[chosen].astype(np.float32)))
    # C, the sum over data sets
    coefficients = np.zeros((len(landmarks), rank))
    for number in np.unique(sets):
        own = np.flatnonzero(sets == number)
        C = _regress(x[own], Y[own] @ basis, c[own], landmarks)
        coefficients += w[own].sum() / w.sum() * C
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


def _relative_counts(captions: Sequence[Sequence], sets: np.ndarray) -> np.ndarray:
    """Return each photo's number of captions, divided by the mean in its set, (N,)."""
    counts = np.array(list(map(len, captions)), float)
    means = np.bincount(sets, counts) / np.maximum(np.bincount(sets), 1)
    relative: np.ndarray = counts / means[sets]
    return relative


def _regress(
    x: np.ndarray, targets: np.ndarray, weights: np.ndarray, landmarks: np.ndarray
) -> np.ndarray:
    """Return the coefficients of the landmarks, (M, r).

    Args:
        x: descriptors of photos, (n, D).
        targets: (n, r).
        weights: of the photos, (n,).
        landmarks: (M, D).
    """
    # The normal equations, with c the weights: (K^T c K + lambda K_M) C = K^T c Y Q.
    # They are summed up over blocks of rows, because the whole K of the 45,090 photos
    # of `everyday` has 3 GB.
    A = LAMBDA * kernel(landmarks, landmarks, GAMMA).astype(np.float64)  # (M, M)
    # In proportion to K^T c K, which grows with the number of photos.
    A[np.diag_indices_from(A)] += _JITTER * weights.sum()
    B = np.zeros((len(landmarks), targets.shape[1]))
    for start in range(0, len(x), _BLOCK):
        part = slice(start, start + _BLOCK)
        K = kernel(x[part], landmarks, GAMMA)  # (block, M)
        weighted = K * weights[part, None]
        A += weighted.T @ K
        B += weighted.T @ targets[part]
    # Cholesky: A is symmetric and, with the jitter, positive definite.
    coefficients: np.ndarray = scipy.linalg.solve(A, B, assume_a="pos")
    return coefficients


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
    # It adds values at the same place: n-grams of several captions of a photo.
    return scipy.sparse.csr_matrix((np.concatenate(values), places), shape, np.float64)
