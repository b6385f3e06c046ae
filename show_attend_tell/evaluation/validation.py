"""Captions written for a split, and their scores without Java."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import Split
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.evaluation.attention_health import measure
from show_attend_tell.evaluation.metrics import validation_scores
from show_attend_tell.models.captioner import Captioner


def write_captions(
    model: Captioner,
    reader: FeatureReader,
    rows: np.ndarray,
    decoding: DecodingSettings,
) -> Iterator[Hypotheses]:
    """Yield the hypotheses of photos, `decoding.batch_size` photos at a time.

    What is drawn for a photo depends on `decoding.seed` and its place among the rows.

    Args:
        model: the captioner.
        reader: of the photos' features.
        rows: theirs, (N,).
        decoding: how captions are generated.
    """
    size = decoding.batch_size
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        yield model.generate(
            reader.read(block),
            decoding,
            seeds=[(decoding.seed, start + k) for k in range(len(block))],
        )


def best_words(model: Captioner, hypotheses: Hypotheses) -> list[list[str]]:
    """Return the words of each photo's best hypothesis."""
    return [model.vocabulary.decode(row[0].tolist()) for row in hypotheses.tokens]


def validate(
    model: Captioner, reader: FeatureReader, split: Split, decoding: DecodingSettings
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Score the captions written for a split.

    Returns:
        ``BLEU-4`` and ``CIDEr`` in percent, ``length`` in words, ``distinct``, the
        share of captions that differ, and what
        :func:`evaluation.attention_health.measure` says; and the words written
        for each photo id.
    """
    words, looked = [], []
    decoding = dataclasses.replace(decoding, beam=decoding.validation_beam)
    for part in write_captions(model, reader, split.rows, decoding):
        words += best_words(model, part)
        looked += [
            a[:n] for a, n in zip(part.alpha[:, 0], part.lengths[:, 0], strict=True)
        ]
    ids = [photo.id for photo in split.photos]
    captions = dict(zip(ids, words, strict=True))
    references = dict(zip(ids, split.captions, strict=True))
    scores = dict(validation_scores(captions, references))
    scores["length"] = float(np.mean([len(w) for w in words]))
    scores["distinct"] = len({tuple(w) for w in words}) / len(words)
    return {**scores, **measure(looked)}, captions
