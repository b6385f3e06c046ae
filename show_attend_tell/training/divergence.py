"""Detect training that has diverged, from losses, weights and validation captions."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from show_attend_tell.runtime.errors import TrainingError

logger = logging.getLogger(__name__)

EVERY = 20  # updates between two looks at the loss; each fetches it from the device
HIGH, LASTING = 10, 100  # a loss so many times the first one, for so many updates
EXTREME = 1000  # a loss so many times the first one, once


class LossMonitor:
    """Raise an error when the loss of training is not finite or stays far too large.

    The size is measured by ``word_loss``, the mean of -log p of a word: unlike the
    loss of REINFORCE and of self-critical training it is positive and has a scale. It
    is compared with that of the first update, or with that of uniform probabilities,
    log K, if this is larger.

    Args:
        words: number of words K of the vocabulary, or of other classes.
        warmup: updates in which a large loss is accepted.
        first: ``word_loss`` of the first update, None before it.
        key: name of the value that is measured, in place of ``word_loss``.
        noun: name of that value in an error.
        inputs: name of the inputs in an error.
    """

    def __init__(
        self,
        words: int,
        warmup: int,
        first: float | None = None,
        key: str = "word_loss",
        noun: str = "loss per word",
        inputs: str = "features",
    ):
        self.first, self._warmup, self._uniform = first, warmup, math.log(words)
        self._key, self._noun, self._inputs = key, noun, inputs
        self._high_since = None

    def is_due(self, step: int) -> bool:
        """Return whether the loss of an update is checked in any case."""
        return self.first is None or step % EVERY == 0

    def check(self, step: int, values: Mapping) -> None:
        """Check the metrics of update `step`, counted from 1.

        Raises:
            TrainingError: training has diverged.
        """
        loss, words = float(values["loss"]), float(values[self._key])
        if not (math.isfinite(loss) and math.isfinite(words)):
            cause = f"; the {self._inputs} may be damaged" if self.first is None else ""
            raise TrainingError(f"the loss of update {step} is {loss}{cause}")
        if self.first is None:
            self.first = words
        if words <= max(HIGH * self.first, self._uniform) or step <= self._warmup:
            self._high_since = None
            return
        if self._high_since is None:
            self._high_since = step
        extreme = words > EXTREME * max(self.first, self._uniform)
        if extreme or step - self._high_since >= LASTING:
            raise TrainingError(
                f"the {self._noun} is {words:.3g} at update {step}; that of the first "
                f"update was {self.first:.3g}"
            )


def require_finite(name: str, values: np.ndarray) -> None:
    """Raise TrainingError if an array has NaN or infinity.

    Args:
        name: name of the variable, for the message.
        values: numbers of any type.
    """
    if not np.isfinite(values).all():
        raise TrainingError(f"{name} has values that are not finite")


class CaptionMonitor:
    """Log a warning the first time that all captions of a validation are equal."""

    def __init__(self):
        self._warned = False

    def __call__(self, step: int, captions: Iterable[Sequence[str]]) -> None:
        """Check the words of each caption, generated after update `step`."""
        texts = [" ".join(words) for words in captions]
        if self._warned or not texts or any(text != texts[0] for text in texts):
            return
        if texts[0] and len(texts) == 1:
            return
        self._warned = True
        which = f"equal, {texts[0]!r}" if texts[0] else "empty"
        logger.warning(
            "all %d captions of the validation at update %d are %s; if later ones are, "
            "lower training.learning_rate",
            len(texts),
            step,
            which,
        )
