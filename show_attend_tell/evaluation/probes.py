"""Run a model again where objects have boxes: layers, hidden places and regions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.features import Features
from show_attend_tell.data.region import cell_shares, smooth
from show_attend_tell.data.splits import Split, ViewsReader
from show_attend_tell.data.vocabulary import PAD, START
from show_attend_tell.evaluation import pointing
from show_attend_tell.evaluation.pointing import SCORES, Target, point
from show_attend_tell.evaluation.validation import best_words
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator

_BATCH = 64  # photos whose layers are read together


def layer_note(
    model: Captioner,
    reader: Features | ViewsReader,
    data: Split,
    captions: Mapping[str, str],
    targets: Mapping[str, Target],
) -> tuple[str, ...]:
    """Return the pointing scores of each layer and head, to choose which one is alpha.

    The model reads the captions that it has generated.

    Returns:
        A line with the share of hits of each layer, the mean over its heads, and of
        each head, and a line with the mass of each; nothing if the decoder has no heads
        or no caption names an object.
    """
    rows = [(photo.id, row) for photo, row in zip(data.photos, data.rows, strict=True)]
    rows = [(photo, row) for photo, row in rows if photo in targets]
    scores = []
    for start in range(0, len(rows), _BATCH):
        ids, batch = zip(*rows[start : start + _BATCH], strict=True)
        words = [captions[photo].split() for photo in ids]
        heads = model.attention_heads(reader.read(batch), caption_inputs(model, words))
        if heads is None:
            return ()
        heads = np.asarray(heads)  # (B, N, H, T, L)
        # The mean over the heads goes first: (B, N, H, T, L) -> (B, N, 1 + H, T, L).
        maps = np.concatenate([heads.mean(axis=2, keepdims=True), heads], axis=2)
        for photo, caption, alpha in zip(ids, words, maps, strict=True):
            drawn = smooth(alpha, model.grid)
            # (N, 1 + H, M, 4)
            scores.append(point(caption, drawn, model.grid, targets[photo]))
    if not any(each.shape[2] for each in scores):
        return ()
    means = np.concatenate(scores, axis=2).mean(axis=2)  # (N, 1 + H, 4)
    return tuple(
        f"{name} by layer of the decoder: {_by_layer(means[..., k])}"
        for k, name in enumerate(SCORES[:2])
    )


def _by_layer(shares: np.ndarray) -> str:
    """Write the share of each layer and of its heads, (N, 1 + H)."""
    return ", ".join(
        f"{k}: {mean:.3f} (heads {', '.join(f'{head:.3f}' for head in heads)})"
        for k, (mean, *heads) in enumerate(shares, start=1)
    )


def caption_inputs(model: Captioner, captions: list[list[str]]) -> np.ndarray:
    """Return y_0 .. y_{T-1}: <start> and all words but the last, padded; (B, T)."""
    longest = max(1, *(len(words) for words in captions))
    # A column more, for <start> before the longest caption; the last word of it is no
    # input and is cut off again.
    inputs = np.full((len(captions), longest + 1), PAD, np.int32)
    for row, words in zip(inputs, captions, strict=True):
        row[0] = START
        row[1 : len(words) + 1] = model.vocabulary.encode(words)
    return inputs[:, :longest]


class _Probe(NamedTuple):
    """A mention of an object, and the locations that are in its boxes."""

    photo: str  # its id
    row: int  # of its features
    words: list[str]  # of the caption
    step: int  # of the name's last word
    inside: np.ndarray  # (L,) bool


def hide_places(
    model: Captioner,
    reader: Features | ViewsReader,
    data: Split,
    captions: Mapping[str, str],
    targets: Mapping[str, Target],
) -> dict[str, np.ndarray]:
    """Measure by how much log p of a named object falls when locations are hidden.

    The model reads the captions that it has generated. The annotations of hidden
    locations are replaced by the mean of the photo's others.

    Returns:
        Photo id -> :data:`pointing.HIDDEN` of each mention, (M, 3) in nats.
    """
    rng = np.random.default_rng(0)
    falls = {photo: [] for photo in targets}
    probes = []
    for photo, row in zip(data.photos, data.rows, strict=True):
        if target := targets.get(photo.id):
            words = captions[photo.id].split()
            centres = pointing.cell_centres(model.grid, target.region)
            for _, step, boxes in pointing.find_mentions(words, target):
                inside = pointing.is_inside(boxes, centres)
                probes.append(_Probe(photo.id, row, words, step, inside))
    for start in range(0, len(probes), _BATCH):
        batch = probes[start : start + _BATCH]
        words = [probe.words for probe in batch]
        steps = [probe.step for probe in batch]
        inside = np.stack([probe.inside for probe in batch])  # (B, L)
        annotations = reader.read([probe.row for probe in batch])  # (B, L, D)
        log_p, alpha = read_words(model, annotations, words, steps)  # (B,), (B, L)
        after = []
        # The locations to hide first have the largest values, see pointing.HIDDEN.
        for order in (inside, smooth(alpha, model.grid), rng.random(inside.shape)):
            changed = hide(annotations, order, inside.sum(axis=1))
            after.append(read_words(model, changed, words, steps)[0])
        # three of (B,) -> (B, 3)
        for probe, fall in zip(batch, (log_p - after).T, strict=True):
            falls[probe.photo].append(fall)
    return {photo: np.reshape(each, (-1, 3)) for photo, each in falls.items()}


def hide(annotations: np.ndarray, order: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Replace the annotations of locations by the mean of the photo's others.

    Args:
        annotations: (B, L, D).
        order: (B, L), largest for the locations to hide first.
        counts: how many to hide, (B,).
    """
    # The rank of each location, from 0: the order of an order.
    ranks = (-1.0 * order).argsort(axis=1, kind="stable").argsort(axis=1)
    seen = (ranks >= counts[:, None])[..., None]  # (B, L, 1)
    # Features are float16, whose sums overflow at 65,504 and lose digits before.
    sums = (annotations * seen).sum(axis=1, keepdims=True, dtype=np.float32)
    means = sums / np.maximum(seen.sum(axis=1, keepdims=True), 1)  # (B, 1, D)
    return np.where(seen, annotations, means.astype(annotations.dtype))


def read_words(
    model: Captioner,
    annotations: np.ndarray,
    captions: list[list[str]],
    steps: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p of one word of each caption in nats, (B,), and its alpha, (B, L).

    Args:
        model: reads the captions, whose earlier words are given.
        annotations: of each caption's photo, (B, L, D).
        captions: the words of B captions.
        steps: the place of the word in each caption, from 0.
    """
    tokens = caption_inputs(model, captions)
    outputs = model({"annotations": annotations, "tokens": tokens})
    rows = np.arange(len(captions))
    logits = np.asarray(outputs["logits"])[rows, steps]  # (B, T, K) -> (B, K)
    alpha = np.asarray(outputs["alpha"])[rows, steps]  # (B, T, L) -> (B, L)
    ids = [model.vocabulary.encode(w)[t] for w, t in zip(captions, steps, strict=True)]
    # log softmax; unlike log(sum(exp)), logaddexp does not overflow.
    return logits[rows, ids] - np.logaddexp.reduce(logits, axis=1), alpha


class _Request(NamedTuple):
    """A region of a photo to caption."""

    row: int  # of the photo's features
    name: str  # of the object in the region
    first: str | None  # the name that the caption of the whole photo has first
    shares: np.ndarray  # (L,), see data.region.cell_shares


def measure_regions(
    model: Captioner | Generator,
    reader: Features | ViewsReader,
    data: Split,
    captions: Mapping[str, str],
    targets: Mapping[str, Target],
    decoding: DecodingSettings,
) -> dict[str, float | None]:
    """Measure whether a region around an object makes a caption name it first.

    A caption is generated for each object, with the object's box as its region.
    ``captions`` are those of the whole photos, by their ids. Photos without a target
    are ignored.

    Returns:
        ``region_control``, the share of regions whose object is named first, and
        ``region_other``, the same of objects that the caption of the whole photo does
        not name first; None without regions.
    """
    names = {item["name"] for photo in data.photos for item in photo.objects}
    requests = list(_requests(model.grid, data, captions, targets, names))
    hits: list[bool] = []
    for start in range(0, len(requests), decoding.batch_size):
        block = requests[start : start + decoding.batch_size]
        hypotheses = model.generate(
            reader.read([request.row for request in block]),
            decoding,
            seeds=[(decoding.seed, start + k) for k in range(len(block))],
            regions=np.stack([request.shares for request in block]),
        )
        for request, words in zip(block, best_words(model, hypotheses), strict=True):
            hits.append(first_name(words, names) == request.name)
    others = [
        hit
        for hit, request in zip(hits, requests, strict=True)
        if request.first not in (None, request.name)
    ]
    return {"region_control": _share(hits), "region_other": _share(others)}


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _requests(
    grid: tuple[int, int],
    data: Split,
    captions: Mapping[str, str],
    targets: Mapping[str, Target],
    names: Collection[str],
) -> Iterator[_Request]:
    """Yield a request for every object with a visible part."""
    for photo, row in zip(data.photos, data.rows, strict=True):
        if photo.id not in targets:
            continue
        x0, y0, x1, y1 = targets[photo.id].region
        corner = np.array([x0, y0] * 2)
        size = np.array([x1 - x0, y1 - y0] * 2)
        first = first_name(captions[photo.id].split(), names)
        for item in photo.objects:
            box = np.clip((np.array(item["box"]) - corner) / size, 0, 1).tolist()
            if box[0] < box[2] and box[1] < box[3]:
                shares = cell_shares(tuple(box), grid)
                yield _Request(int(row), item["name"], first, shares)


def first_name(words: Sequence[str], names: Collection[str]) -> str | None:
    """Return the name that occurs first in a caption, of two at one word the longer."""
    by_length = sorted((name.split() for name in names), key=len, reverse=True)
    for start in range(len(words)):
        for name in by_length:
            if list(words[start : start + len(name)]) == name:
                return " ".join(name)
    return None
