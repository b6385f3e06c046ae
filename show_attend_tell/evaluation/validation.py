"""Generate captions for a split, score them without Java, and measure attention."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.features import Features
from show_attend_tell.data.splits import Split, ViewsReader
from show_attend_tell.evaluation.metrics.scoring import validation_scores
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference.hypotheses import Hypotheses


def generate_captions(
    model: Captioner | Generator,
    reader: Features | ViewsReader,
    rows: np.ndarray,
    decoding: DecodingSettings,
) -> Iterator[Hypotheses]:
    """Yield the hypotheses of photos, `decoding.batch_size` photos at a time.

    The samples of a photo depend on `decoding.seed` and on its position in `rows`.

    Args:
        model: the captioner.
        reader: reader of the feature file.
        rows: (N,) rows of the photos in the feature file.
        decoding: decoding settings.
    """
    size = decoding.batch_size
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        yield model.generate(
            reader.read(block),
            decoding,
            # By the place in `rows`: samples do not depend on the size of a batch.
            seeds=[(decoding.seed, start + k) for k in range(len(block))],
            photos=len(rows),
        )


def best_words(model: Captioner | Generator, hypotheses: Hypotheses) -> list[list[str]]:
    """Return the words of each photo's best hypothesis."""
    return [model.vocabulary.decode(row[0].tolist()) for row in hypotheses.tokens]


def validate(
    model: Captioner | Generator,
    reader: Features | ViewsReader,
    split: Split,
    decoding: DecodingSettings,
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Generate captions for a split and compute their validation scores.

    Returns:
        Scores, and photo id -> words. The scores are ``BLEU-4`` and ``CIDEr`` in
        percent, ``length`` in words, ``distinct``, the share of distinct captions, 0 to
        1, and the values of :func:`measure_attention`.
    """
    words = []
    alphas = []
    decoding = dataclasses.replace(decoding, beam=decoding.validation_beam)
    for part in generate_captions(model, reader, split.rows, decoding):
        words += best_words(model, part)
        # (B, W, ...) -> (B, ...)
        best = part.alpha[:, 0]
        lengths = part.lengths[:, 0]
        alphas += [alpha[:n] for alpha, n in zip(best, lengths, strict=True)]
    ids = [photo.id for photo in split.photos]
    captions = dict(zip(ids, words, strict=True))
    references = dict(zip(ids, split.captions, strict=True))
    scores = dict(validation_scores(captions, references))
    scores["length"] = float(np.mean([len(w) for w in words]))
    scores["distinct"] = len({tuple(w) for w in words}) / len(words)
    return {**scores, **measure_attention(alphas)}, captions


def measure_attention(alphas: Sequence[np.ndarray]) -> dict[str, float]:
    """Compute how much attention moves within captions, and its largest share.

    Args:
        alphas: (T, L) attention weights of each caption.

    Returns:
        ``attention_movement``: variance of alpha over the steps of a caption, summed
        over locations, relative to the sum of its mean squares (0: the same alpha at
        every step; towards 1: another location at every step); mean over the captions
        of two words or more, 1 if there is none. ``attention_peak``: the largest share
        of all attention that falls on one location.
    """
    # var = E[a^2] - E[a]^2 is at most the mean square E[a^2]: 0 <= movement <= 1.
    movements = [
        alpha.var(axis=0).sum() / np.square(alpha).mean(axis=0).sum()
        for alpha in alphas
        if len(alpha) > 1
    ]
    return {
        "attention_movement": float(np.mean(movements)) if movements else 1.0,
        # (all words, L) -> (L,) -> the largest
        "attention_peak": float(np.concatenate(alphas).mean(axis=0).max()),
    }


def attention_entropy(alpha: np.ndarray) -> np.ndarray:
    """Compute the normalised entropy of attention, -sum_i alpha_i log alpha_i / log L.

    Args:
        alpha: (..., L) weights, L above 1.

    Returns:
        (...), 0 where one location has all attention, 1 where attention is uniform.
    """
    alpha = np.asarray(alpha, np.float64)
    logs = np.log(np.maximum(alpha, 1e-30))  # 0 log 0 is 0
    return -(alpha * logs).sum(axis=-1) / np.log(alpha.shape[-1])  # (..., L) -> (...)


def attention_statistics(hypotheses: Hypotheses) -> dict[str, np.ndarray]:
    """Compute the values whose histograms show how attention spreads.

    Args:
        hypotheses: hypotheses of N photos; the best one of each photo is measured,
            with its end word.

    Returns:
        ``entropy`` and ``beta`` of every word, concatenated, and ``coverage``,
        (N * L,): sum_t alpha_ti, the attention of a location over the caption, times
        L / T, so that uniform coverage is 1; Eq. (14) pulls towards it.
    """
    alpha = np.asarray(hypotheses.alpha)[:, 0]  # (N, W, T, L) -> (N, T, L)
    N, T, L = alpha.shape
    lengths = np.asarray(hypotheses.lengths)[:, 0]  # (N, W) -> (N,)
    is_word = np.arange(T) < lengths[:, None]  # (N, T)
    coverage = alpha.sum(axis=1) * L / np.maximum(lengths, 1)[:, None]  # -> (N, L)
    return {
        "entropy": attention_entropy(alpha[is_word]),  # (words, L) -> (words,)
        "beta": np.asarray(hypotheses.beta)[:, 0][is_word],  # (N, W, T) -> (words,)
        "coverage": coverage.reshape(N * L),
    }
