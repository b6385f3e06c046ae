"""Generate captions for a split and score them during training, without Java."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import Split
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.evaluation.attention_diagnostics import measure_attention
from show_attend_tell.evaluation.metrics import validation_scores
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generation import MANY_PHOTOS


def generate_captions(
    model: Captioner,
    reader: FeatureReader,
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
            seeds=[(decoding.seed, start + k) for k in range(len(block))],
            xla=len(rows) >= MANY_PHOTOS,
        )


def best_words(model: Captioner, hypotheses: Hypotheses) -> list[list[str]]:
    """Return the words of each photo's best hypothesis."""
    return [model.vocabulary.decode(row[0].tolist()) for row in hypotheses.tokens]


def validate(
    model: Captioner, reader: FeatureReader, split: Split, decoding: DecodingSettings
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Generate captions for a split and compute their validation scores.

    Returns:
        Scores and words. The scores are ``BLEU-4`` and ``CIDEr`` in percent,
        ``length`` in words, ``distinct``, the share of distinct captions, 0 to 1, and
        those of :func:`measure_attention`; the words are those of each photo id.
    """
    words, alphas = [], []
    decoding = dataclasses.replace(decoding, beam=decoding.validation_beam)
    for part in generate_captions(model, reader, split.rows, decoding):
        words += best_words(model, part)
        best, lengths = part.alpha[:, 0], part.lengths[:, 0]  # (B, W, ...) -> (B, ...)
        alphas += [alpha[:n] for alpha, n in zip(best, lengths, strict=True)]
    ids = [photo.id for photo in split.photos]
    captions = dict(zip(ids, words, strict=True))
    references = dict(zip(ids, split.captions, strict=True))
    scores = dict(validation_scores(captions, references))
    scores["length"] = float(np.mean([len(w) for w in words]))
    scores["distinct"] = len({tuple(w) for w in words}) / len(words)
    return {**scores, **measure_attention(alphas)}, captions
