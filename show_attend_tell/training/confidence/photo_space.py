"""Fit the distribution of the training photos, for the confidence of captions."""

import numpy as np

from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.confidence import PhotoSpace, describe_photos
from show_attend_tell.runtime.errors import CalibrationError
from show_attend_tell.runtime.progress import progress_bar

DIRECTIONS = 128  # k
RIDGE = 0.05  # of the regressions of words on z, whose variance is 1
_LEAST_SHARE, _MOST_SHARE = 1 / 300, 0.3  # of photos with a content word
_BATCH = 64


def describe_split(
    reader: FeatureReader, data: Split, grid: tuple[int, int], shown: bool = True
) -> np.ndarray:
    """Return g of all photos of a split, (N, 3 D); features are read in batches."""
    parts = []
    with progress_bar(len(data.rows), "photo", data.name, shown=shown) as bar:
        for start in range(0, len(data.rows), _BATCH):
            rows = data.rows[start : start + _BATCH]
            parts.append(describe_photos(reader.read(rows), grid))
            bar.update(len(rows))
    return np.concatenate(parts)


def fit_photo_space(
    g: np.ndarray, captions: list, vocabulary: Vocabulary, grid: tuple[int, int]
) -> PhotoSpace:
    """Fit the distribution of the training photos.

    Args:
        g: from :func:`describe_split`, (N, G).
        captions: tokenized captions of each photo.
        vocabulary: the captioner's.
        grid: (rows, columns) of the annotations.

    Raises:
        CalibrationError: there are too few photos, or no content word.
    """
    N, G = g.shape
    centred = g - g.mean(axis=0)
    # (G, N) (N, G) -> (G, G); ascending order
    variances, directions = np.linalg.eigh(centred.T @ centred / N)
    k = int(min(DIRECTIONS, N // 4, (variances > 1e-6 * variances[-1]).sum()))
    words, present = _content_words(captions, vocabulary)
    if not k or not len(words):
        raise CalibrationError(
            "the training split must have at least 4 different photos and a word in "
            f"less than {_MOST_SHARE:.0%} of them. Received: {N} photos, {len(words)} "
            "such words; prepare more photos"
        )
    components = directions[:, ::-1][:, :k].astype(np.float64)  # (G, k)
    variances = variances[::-1][:k].astype(np.float64)
    z = centred @ components / np.sqrt(variances)  # (N, k)
    shares = present.mean(axis=0)  # (V,)
    # z has variance 1 and no correlations: the normal equations are diagonal.
    weights = z.T @ (present - shares) / (N * (1 + RIDGE))  # (k, V)
    D = G // 3
    layout = (g[:, :D] - g[:, -D:]).mean(axis=0)
    return PhotoSpace(
        grid, g.mean(axis=0), components, variances, layout, words, shares, weights
    )


def _content_words(
    captions: list, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (V,) of content words, and their presence (N, V) of 0 and 1."""
    index = {word: k for k, word in enumerate(vocabulary.words)}
    present = np.zeros((len(captions), len(index)), np.float32)
    for row, of_photo in enumerate(captions):
        for word in set().union(*of_photo):
            if word in index:
                present[row, index[word]] = 1
    present[:, : len(SPECIAL)] = 0
    shares = present.mean(axis=0)
    words = np.flatnonzero((shares >= _LEAST_SHARE) & (shares <= _MOST_SHARE))
    return words, present[:, words].astype(np.float64)
