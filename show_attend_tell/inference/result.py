"""Define the results of captioning: a caption with its details, or a failure."""

import dataclasses
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.data.preprocessing import Box
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.inference.photos import Failure, OpenedPhoto
from show_attend_tell.inference.tags import Tag
from show_attend_tell.reference.hypotheses import Hypotheses

_DIGITS = 6  # decimals in JSON; float32 has no more
# The words for a confidence, from the highest: at least this value.
CONFIDENCE_WORDS = {"likely": 0.72, "unsure": 0.2, "probably wrong": 0.0}
DOUBTFUL = CONFIDENCE_WORDS["unsure"]  # lower captions are not written into metadata
_TEXT = ("text", "sentence", "log_prob", "score")  # of an alternative in JSON
# Fields that are not in JSON, or only in that of some captions.
_NOT_ALWAYS = ("square", "view", "locations", "region", "region_words", "tags")
# Tokenizers separate the end of a word and punctuation: "a man 's hat , a dog ."
_SEPARATED = re.compile(r" +(?=(?:'(?:s|re|ve|ll|d|m)|n't|[,;:!?.])(?:\s|$))")


def as_sentence(caption: str) -> str:
    """Return a caption with a capital at the start and a full stop at the end.

    Spaces before punctuation and before endings such as "'s" are removed, and so are
    full stops that tokenizers leave at the end.
    """
    text = _SEPARATED.sub("", " ".join(caption.split())).rstrip(" .")
    if not text:
        return ""
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1] in '!?' else '.'}"


def is_below(confidence: float | None, minimum: float | None) -> bool:
    """Return whether a confidence is too low; it is not if one of the two is None."""
    if confidence is None or minimum is None:
        return False
    return confidence < minimum


def confidence_word(confidence: float | None) -> str | None:
    """Return the word of :data:`CONFIDENCE_WORDS` for a confidence, None for None."""
    if confidence is None:
        return None
    words = CONFIDENCE_WORDS.items()
    return next(word for word, limit in words if confidence >= limit)


def confidence_figures(confidence: float | None, minimum: float = 0.0) -> str:
    """Return a confidence as people see it, empty for None.

    It has two decimals, or as many as tell it from the limits of the words and from
    `minimum`: 0.718 is unsure, and 0.72 would be likely.
    """
    if confidence is None:
        return ""
    limits = (*CONFIDENCE_WORDS.values(), minimum)
    for decimals in range(2, 17):
        text = f"{confidence:.{decimals}f}"
        if all((float(text) < x) == (confidence < x) for x in limits):
            return text
    return repr(confidence)


@dataclass(frozen=True, eq=False)
class Caption:
    """A caption of T words, without the end word.

    Attributes:
        path: path of the photo.
        text: the words with spaces between.
        words: T words.
        log_prob: log p(caption), its end included, in nats; the sum of
            ``word_log_probs`` and ``end_log_prob``.
        score: ``log_prob`` normalised by length, by which alternatives are ranked;
            with a reranker its prediction is added.
        word_log_probs: (T,) log p of each word, in nats.
        end_log_prob: log p of the end word, None if the caption was cut at the
            maximum length.
        attention: (T, rows, columns) weights alpha over the part of the photo that
            the network sees; each word's sum to 1.
        beta: (T,) gates; 1 if the model has no gates, like the Transformer.
        square: (S, S, 3) uint8, the network's input; not part of the JSON.
        view: (H, W, 3) uint8, the same part of the photo in its own proportions, for
            display; not part of the JSON.
        alternatives: other captions of the photo, best first, without alternatives and
            confidence.
        locations: (T,) int in [0, rows * columns), the location that each word was
            generated from; None if a word was generated from the expected context.
        region: (x0, y0, x1, y1) as fractions of the width and height of ``view``, the
            part of it from which the caption was written; None for the whole photo.
        region_words: number of words that are written from the region; attention is
            free at later ones. None for the whole photo.
        confidence: probability, 0 to 1, that the caption is right or has one wrong
            detail, see :mod:`inference.confidence`; None for a region, and if the model
            has no calibration.
        tags: nouns that describe the photo, the most probable first, see
            :mod:`inference.tags`; None unless they were asked for.
    """

    path: Path
    text: str
    words: tuple[str, ...]
    log_prob: float
    score: float
    word_log_probs: np.ndarray = field(repr=False)
    end_log_prob: float | None
    attention: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    square: np.ndarray = field(repr=False)
    view: np.ndarray = field(repr=False)
    alternatives: tuple["Caption", ...] = field(default=(), repr=False)
    locations: np.ndarray | None = None
    region: Box | None = None
    region_words: int | None = None
    confidence: float | None = None
    tags: tuple[Tag, ...] | None = None

    @property
    def sentence(self) -> str:
        """The text with a capital at the start and a full stop at the end."""
        return as_sentence(self.text)

    @property
    def confidence_word(self) -> str | None:
        """``likely``, ``unsure`` or ``probably wrong``; None without a confidence."""
        return confidence_word(self.confidence)

    @property
    def confidence_figures(self) -> str:
        """The confidence as people see it, empty without one."""
        return confidence_figures(self.confidence)

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The names of the tags, none if nobody asked for them."""
        return tuple(tag.name for tag in self.tags or ())

    def _repr_html_(self) -> str:
        """Return the interactive page of the caption, for Jupyter."""
        from show_attend_tell.inference.visualization.pages import render_frame

        return render_frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON; attention and beta are rounded to six decimals."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _NOT_ALWAYS
        }
        for name in ("word_log_probs", "attention", "beta"):
            values[name] = np.round(values[name].astype(np.float64), _DIGITS).tolist()
        values["path"] = str(self.path)
        values["sentence"] = self.sentence
        values["confidence_word"] = self.confidence_word
        values["words"] = list(self.words)
        values["alternatives"] = [
            {name: getattr(other, name) for name in _TEXT}
            for other in self.alternatives
        ]
        if self.locations is not None:
            values["locations"] = self.locations.tolist()
        if self.region is not None:
            values["region"] = [round(x, _DIGITS) for x in self.region]
            values["region_words"] = self.region_words
        if self.tags is not None:
            values["tags"] = [dataclasses.asdict(tag) for tag in self.tags]
        return values


@dataclass(frozen=True)
class LowConfidence(Failure):
    """A photo whose caption is left out because its confidence is too low."""


def caption_from_hypotheses(
    hypotheses: Hypotheses,
    vocabulary: Vocabulary,
    grid: tuple[int, int],
    photo: OpenedPhoto,
    region: Box | None = None,
    region_words: int | None = None,
    confidence: float | None = None,
    tags: tuple[Tag, ...] | None = None,
) -> Caption:
    """Build the caption of one photo; the only place where alpha becomes a grid.

    Args:
        hypotheses: W hypotheses of the photo; every field is (W, ...). The first
            becomes the caption, the others its alternatives.
        vocabulary: the captioner's.
        grid: (rows, columns) of the annotations, L = rows * columns.
        photo: the photo.
        region: the part of the photo that the caption describes, None for all.
        region_words: number of words that are written from the region.
        confidence: confidence of the best hypothesis, None if unknown.
        tags: of the photo, None if nobody asked for them.
    """

    def caption(w: int) -> Caption:
        words = vocabulary.decode(hypotheses.tokens[w].tolist())
        T = len(words)
        # After the T words comes the end word, if the caption has one.
        log_probs = hypotheses.word_log_probs[w]
        locations = hypotheses.locations[w, :T]  # -1 for the expected context
        return Caption(
            path=photo.path,
            text=" ".join(words),
            words=tuple(words),
            log_prob=float(hypotheses.log_probs[w]),
            score=float(hypotheses.scores[w]),
            word_log_probs=log_probs[:T],
            end_log_prob=float(log_probs[T]) if hypotheses.finished[w] else None,
            # (W, T_max, L) -> (T, rows, columns)
            attention=hypotheses.alpha[w, :T].reshape(T, *grid),
            beta=hypotheses.beta[w, :T],
            square=photo.square,
            view=photo.view,
            locations=locations if T and (locations >= 0).all() else None,
            region=region,
            region_words=region_words,
        )

    best = caption(0)
    # A beam may find fewer than W.
    others = [caption(w) for w, length in enumerate(hypotheses.lengths) if w and length]
    return dataclasses.replace(
        best, alternatives=tuple(others), confidence=confidence, tags=tags
    )


def apply_min_confidence(
    caption: Caption, min_confidence: float | None
) -> Caption | Failure:
    """Return the caption, or a LowConfidence if its confidence is below the minimum."""
    if not is_below(caption.confidence, min_confidence):
        return caption
    figures = confidence_figures(caption.confidence, min_confidence or 0)
    reason = f"left out, its confidence {figures} is below {min_confidence:g}"
    return LowConfidence(caption.path, f"{caption.path}: {reason}")


def distinct_samples(samples: Hypotheses) -> Hypotheses:
    """Remove repeated captions; the first sample stays first, others by score.

    Args:
        samples: every field is (N, 1, ...), one hypothesis for each of N samples.

    Returns:
        Hypotheses of one photo, every field (W, ...) with W <= N.
    """
    samples = samples.map(lambda field: field[:, 0])  # (N, 1, ...) -> (N, ...)
    # The first sample stays: with one sample or with several, a seed gives the same
    # caption.
    others = 1 + np.argsort(-samples.scores[1:], kind="stable")
    kept: dict[bytes, int] = {}
    for row in (0, *others):
        # Padding is equal, so that equal captions have equal bytes.
        kept.setdefault(samples.tokens[row].tobytes(), int(row))
    rows = list(kept.values())
    return samples.map(lambda field: field[rows])


def photo_seeds(
    seed: int, square: np.ndarray, count: int = 1
) -> list[np.random.SeedSequence]:
    """Return independent seeds for samples of one photo, which depend on no other.

    Args:
        seed: seed of the decoding settings.
        square: (S, S, 3) uint8.
        count: number of seeds.
    """
    # Of the pixels, neither of the path nor of the place in the batch. The first seed
    # is the same whatever the count.
    first = np.random.SeedSequence((seed, zlib.crc32(square.tobytes())))
    return [first, *first.spawn(count - 1)]
