"""Measure where each layer of a Transformer looks, to choose ``alpha_layer``."""

from collections.abc import Mapping

import numpy as np

from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.preprocessing import Box
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import PAD, START
from show_attend_tell.evaluation.pointing_game import find_mentions
from show_attend_tell.models.captioner import Captioner

_BATCH = 64  # photos read together


def pointing_by_layer(
    model: Captioner,
    reader: FeatureReader,
    data: Split,
    captions: Mapping[str, str],
    visible: Mapping[str, Box],
) -> list[float]:
    """Return the pointing game's score of every layer, the mean over its heads.

    The model reads the captions that it has generated.

    Args:
        model: a captioner.
        reader: reader of the feature file.
        data: the split.
        captions: photo id -> caption.
        visible: photo id -> region that the encoder sees, in pixels of the photo;
            photos without an entry are ignored.

    Returns:
        The share of mentions that are hits, 0 to 1, for each layer; empty if the
        decoder has no heads or nothing is mentioned.
    """
    chosen = [
        (photo, row)
        for photo, row in zip(data.photos, data.rows, strict=True)
        if photo.id in visible
    ]
    hits: list[list[bool]] = []  # of each mention: of each layer
    for start in range(0, len(chosen), _BATCH):
        part = chosen[start : start + _BATCH]
        words = [captions[photo.id].split() for photo, _ in part]
        features = reader.read([row for _, row in part])
        weights = model.attention_heads(features, _inputs(model, words))
        if weights is None:
            return []
        layers = weights.mean(axis=2)  # (B, N, H, T, L) -> (B, N, T, L)
        for (photo, _), caption, alphas in zip(part, words, layers, strict=True):
            given = model.grid, photo.objects, visible[photo.id]
            found = [find_mentions(caption, alpha, *given) for alpha in alphas]
            hits += [[one.hit for one in same] for same in zip(*found, strict=True)]
    return np.mean(hits, axis=0).tolist() if hits else []


def _inputs(model: Captioner, captions: list[list[str]]) -> np.ndarray:
    """Return the words from <start> on, without the last, padded; (B, T)."""
    longest = max(1, *(len(words) for words in captions))
    inputs = np.full((len(captions), longest + 1), PAD, np.int32)
    for row, words in zip(inputs, captions, strict=True):
        row[0] = START
        row[1 : len(words) + 1] = model.vocabulary.encode(words)
    return inputs[:, :longest]


def layer_note(scores: list[float]) -> tuple[str, ...]:
    """Return the scores in one line, none without scores."""
    if not scores:
        return ()
    each = ", ".join(f"{k + 1}: {score:.3f}" for k, score in enumerate(scores))
    return (f"pointing by layer of the decoder: {each}",)
