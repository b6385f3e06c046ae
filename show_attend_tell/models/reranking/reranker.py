"""Predict the CIDEr of captions from a photo, and rank hypotheses by it.

Consensus reranking (Devlin et al., arXiv:1505.04467, Sec. 2.3) prefers the hypothesis
that is most like the captions of the nearest training photos. Here all training photos
take part: kernel ridge regression predicts from a photo the vector y of
:mod:`models.reranking.ngrams` that its captions have on average, so that g(c) . y is
an estimate of the mean cosine of a caption c with the photo's captions, about 0 to 1,
which is CIDEr without its factor of 10. With annotations a_i, training photos x_j
(landmarks) and a basis Q of the vectors (their truncated singular value
decomposition)::

    x = normalised((sqrt(mean_i a_i) - mean) / deviation)
    k(x, x_j) = exp(-gamma |x - x_j|^2)
    y = Q sum_j k(x, x_j) C_j

A hypothesis is ranked by log p(c) / length^p + w g(c) . y, see ``DecodingSettings``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.vocabulary import END
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.ensemble import Ensemble
from show_attend_tell.models.reranking.ngrams import NgramVectors
from show_attend_tell.runtime.errors import ConfigError


def descriptors(annotations: np.ndarray, shares: np.ndarray | None = None):
    """Return sqrt(mean_i a_i) of photos, (N, D).

    Args:
        annotations: (N, L, D); what is negative counts as 0.
        shares: (N, L), weights of the mean; by default all locations are equal.
    """
    annotations = np.asarray(annotations, np.float32)
    if shares is None:
        mean = annotations.mean(axis=1)  # (N, L, D) -> (N, D)
    else:
        weights = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-6)
        mean = np.einsum("nl,nld->nd", weights, annotations)
    return np.sqrt(np.maximum(mean, 0.0))


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
    """

    vectors: NgramVectors
    basis: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    landmarks: np.ndarray
    coefficients: np.ndarray
    gamma: float
    vocabulary: tuple[str, ...]
    encoder_identity: dict

    def digest(self) -> str:
        """Return the SHA-256 of its numbers, in hexadecimal."""
        numbers = self.vectors.idf, self.basis, self.landmarks, self.coefficients
        digest = hashlib.sha256()
        for one in numbers:
            digest.update(np.ascontiguousarray(one, np.float32))
        return digest.hexdigest()

    def predict(self, descriptors: np.ndarray) -> np.ndarray:
        """Return Q^T y of photos from their descriptors, (N, D) -> (N, r)."""
        x = normalised((descriptors - self.mean) / self.deviation)
        return kernel(x, self.landmarks, self.gamma) @ self.coefficients

    def expected_cider(self, predicted: np.ndarray, captions: Sequence[Sequence[int]]):
        """Return g(c) . y of captions of one photo.

        Args:
            predicted: (r,), from :meth:`predict`.
            captions: ids of the words of W captions.

        Returns:
            An array (W,).
        """
        found = map(self.vectors.vector, captions)
        return np.array(
            [values @ (self.basis[columns] @ predicted) for columns, values in found]
        )


def normalised(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1; rows of 0 remain."""
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def kernel(x: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    """Return exp(-gamma |x - x_j|^2) of rows of length 1, (N, D), (M, D) -> (N, M)."""
    return np.exp(2 * gamma * (x @ landmarks.T - 1))


class Reranked:
    """A captioner, or an ensemble, whose hypotheses are ranked by a reranker too.

    It has the attributes of the captioner.

    Args:
        captioner: generates the hypotheses.
        reranker: of the captioner's vocabulary and encoder.
        file: of the reranker, if it has one.
        required: whether a search without several hypotheses is an error; otherwise
            it returns what the captioner generates.
    """

    def __init__(
        self,
        captioner: Captioner | Ensemble,
        reranker: Reranker,
        file: Path | None = None,
        required: bool = True,
    ):
        self.captioner, self.reranker = captioner, reranker
        self.reranker_file, self.required = file, required

    def __getattr__(self, name: str) -> Any:
        if name == "captioner":  # absent in a copy that is being made
            raise AttributeError(name)
        return getattr(self.captioner, name)

    def generate(self, annotations, decoding=None, seeds=None, xla=None, regions=None):
        """Generate captions of photos; see :meth:`models.captioner.Captioner.generate`.

        ``scores`` are those by which the hypotheses are ranked here. With regions the
        prediction is made from the region.

        Raises:
            ConfigError: a reranker is required, and `decoding` gives one hypothesis.
        """
        decoding = decoding or self.captioner.decoding
        given = annotations, decoding, seeds, xla, regions
        if not has_several(decoding):
            if not self.required:
                return self.captioner.generate(*given)
            raise ConfigError(
                "`reranker` needs a beam of several hypotheses. Received: method = "
                f"{decoding.method!r}, beam = {decoding.beam}; choose a wider beam, or "
                "no reranker"
            )
        found = self.captioner.generate(*given)
        # Of a photo and its mirror image, (N, 2, L, D), the photo.
        photos = annotations if np.ndim(annotations) == 3 else annotations[:, 0]
        predicted = self.reranker.predict(descriptors(photos, regions))
        cider = [
            self.reranker.expected_cider(one, _captions(tokens))
            for one, tokens in zip(predicted, found.tokens, strict=True)
        ]
        scores = found.scores + decoding.rerank_weight * np.array(cider)  # (N, W)
        order = np.argsort(-scores, axis=1, kind="stable")
        rows = np.arange(len(order))[:, None]
        found = found._replace(scores=np.float32(scores))
        return Hypotheses(*(np.asarray(field)[rows, order] for field in found))


def has_several(decoding: DecodingSettings) -> bool:
    """Return whether decoding gives several hypotheses, which can be ranked."""
    return decoding.method == "beam" and decoding.beam > 1


def reranker_of(
    generator: Captioner | Ensemble | Reranked, decoding: DecodingSettings
) -> Path | None:
    """Return the file of the reranker that ranks captions; None if none does."""
    ranks = isinstance(generator, Reranked) and has_several(decoding)
    return generator.reranker_file if ranks else None


def _captions(tokens: np.ndarray) -> list[list[int]]:
    """Return the words of hypotheses (W, T), without the end word and padding."""
    return [[word for word in row if word > END] for row in tokens.tolist()]
