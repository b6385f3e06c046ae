"""The caption of a photo with all its details, or why there is none."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from show_attend_tell.inference import attention_page as page

_DIGITS = 6  # of numbers in JSON; float32 holds no more


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another caption of the same photo; fields as in :class:`Caption`."""

    text: str
    words: tuple[str, ...]
    log_prob: float
    score: float
    word_log_probs: np.ndarray = field(repr=False)
    attention: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    locations: np.ndarray | None = None

    def to_dict(self) -> dict:
        """Return plain values for JSON: what is said, without the attention."""
        return {"text": self.text, "log_prob": self.log_prob, "score": self.score}


@dataclass(frozen=True, eq=False)
class Caption:
    """What was written for a photo; T words, without the end word.

    Attributes:
        path: of the photo.
        text: the words with spaces between.
        words: T of them.
        log_prob: log p(caption), its end included, in nats; the sum of
            ``word_log_probs`` and ``end_log_prob``.
        score: ``log_prob`` normalised by length, by which alternatives are ranked.
        word_log_probs: (T,) log p of each word, in nats.
        end_log_prob: log p of the end, None where the caption was cut.
        attention: (T, rows, columns) weights alpha over the part of the photo that
            the network saw; each word's sum to 1.
        beta: (T,) gates.
        alternatives: the other captions of the beam, best first.
        square: (S, S, 3) uint8, what the network saw; not part of the JSON.
        view: (H, W, 3) uint8, the same part of the photo in its own proportions, to
            be looked at; None where the square must do. Not part of the JSON.
        locations: (T,) int in [0, rows * columns), chosen by hard attention for each
            word, -1 where it chose none; None for soft attention.
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
    alternatives: tuple[Alternative, ...] = field(repr=False)
    square: np.ndarray = field(repr=False)
    view: np.ndarray | None = field(default=None, repr=False)
    locations: np.ndarray | None = None

    @property
    def picture(self) -> np.ndarray:
        """What figures are drawn on: the view, or else the square."""
        return self.square if self.view is None else self.view

    def _repr_html_(self) -> str:
        """Return the interactive figure, which Jupyter shows."""
        return page.frame(self)

    def to_dict(self) -> dict:
        """Return plain values for JSON; attention and beta to six decimals."""
        values = {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if one.name not in ("square", "view", "locations")
        }
        for name in ("word_log_probs", "attention", "beta"):
            values[name] = np.round(values[name].astype(np.float64), _DIGITS).tolist()
        values["path"] = str(self.path)
        values["words"] = list(self.words)
        values["alternatives"] = [a.to_dict() for a in self.alternatives]
        if self.locations is not None:
            values["locations"] = self.locations.tolist()
        return values


@dataclass(frozen=True)
class Failure:
    """A path without a caption, and why, in one line that names it."""

    path: Path
    reason: str

    def to_dict(self) -> dict:
        """Return plain values for JSON."""
        return {"path": str(self.path), "error": self.reason}
