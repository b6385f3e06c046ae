"""Detect diverged or futile training from losses, captions and the metric."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from show_attend_tell.runtime.errors import plural

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 20  # updates; each check fetches the loss from the device
# Training has diverged if its loss is this multiple of the first for so many updates,
HIGH_LOSS = 10
HIGH_UPDATES = 100
EXTREME_LOSS = 1000  # or this multiple in one update
MIN_MOVEMENT = 1e-4  # attention_movement below which attention counts as unmoved
MAX_PEAK = 0.9  # attention_peak above which attention counts as collapsed
MAX_REPETITION = 0.5  # share of the photos above which one caption counts as a fault


@dataclass(frozen=True)
class MonitoredLoss:
    """The value by which a :class:`LossMonitor` judges a training.

    By default it is ``word_loss``, the mean of -log p of a word: unlike the loss of
    REINFORCE and of self-critical training it is positive and has a scale.

    Attributes:
        classes: number K of words of the vocabulary, or of other classes.
        key: its name among the values of an update.
        noun: its name in an error.
        inputs: the name of the training's inputs in an error.
    """

    classes: int
    key: str = "word_loss"
    noun: str = "loss per word"
    inputs: str = "features"


class LossMonitor:
    """Raise an error when the loss of training is not finite or stays far too large.

    The monitor compares the monitored loss with its value of the first update, or with
    log K, the value of uniform probabilities, if log K is larger.

    Args:
        monitored: the loss to measure.
        warmup: updates in which a large loss is accepted.
        first: the monitored loss of the first update, None before it.
        high_since: the update since which the loss has been too large, None if it is
            not.
    """

    def __init__(
        self,
        monitored: MonitoredLoss,
        warmup: int,
        first: float | None = None,
        high_since: int | None = None,
    ):
        self.first = first
        self.high_since = high_since
        self._monitored = monitored
        self._warmup = warmup
        self._uniform = math.log(monitored.classes)

    def is_due(self, step: int) -> bool:
        """Return whether to check the loss of an update."""
        return self.first is None or step % CHECK_INTERVAL == 0

    def check(self, step: int, values: Mapping) -> None:
        """Check the metrics of update `step`, counted from 1.

        Raises:
            FloatingPointError: training has diverged.
        """
        loss = float(values["loss"])
        measured = float(values[self._monitored.key])
        if not (math.isfinite(loss) and math.isfinite(measured)):
            cause = ""
            if self.first is None:
                cause = f"; the {self._monitored.inputs} may be damaged"
            raise FloatingPointError(f"the loss of update {step} is {loss}{cause}")
        if self.first is None:
            self.first = measured
        # Losses below log K are never high, even if the first was tiny, as with an
        # initial model.
        is_high = measured > max(HIGH_LOSS * self.first, self._uniform)
        if not is_high or step <= self._warmup:
            self.high_since = None
            return
        if self.high_since is None:
            self.high_since = step
        extreme = measured > EXTREME_LOSS * max(self.first, self._uniform)
        if extreme or step - self.high_since >= HIGH_UPDATES:
            raise FloatingPointError(
                f"the {self._monitored.noun} is {measured:.3g} at update {step}; at "
                f"the first update it was {self.first:.3g}"
            )


class CaptionMonitor:
    """Log a warning the first time that each fault of validation captions occurs.

    A checkpoint has nothing of it: in a resumed training a warning may occur again, and
    the faults of earlier validations are not known.

    One caption is written for most photos, or attention fails as in training with the
    authors' code: it is the same for every word, or has collapsed onto one location for
    all photos.

    Args:
        references: the words of each photo's captions by people, which may be mostly
            equal themselves.

    Attributes:
        repetitions: update -> the fault, of each validation whose captions are mostly
            the same.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[str]]] = ()):
        self._warned = set()
        self._usual = _share_of_commonest(references)
        self.repetitions: dict[int, str] = {}

    def __call__(
        self, step: int, captions: Iterable[Sequence[str]], attention: Mapping
    ) -> None:
        """Check the words of each caption, generated after update `step`.

        ``attention`` has the values of :func:`evaluation.validation.measure_attention`,
        or nothing.
        """
        faults = list(_faults_of_attention(attention))
        if fault := self._repetition(captions):
            self.repetitions[step] = fault
            where = f"validation at update {step}: {fault}"
            remedy = "if later ones have it too, lower training.learning_rate"
            faults.insert(0, ("repetition", where, remedy))
        for kind, fault, remedy in faults:
            if kind not in self._warned:
                self._warned.add(kind)
                logger.warning("%s; %s", fault, remedy)

    def _repetition(self, captions: Iterable[Sequence[str]]) -> str:
        """Describe the caption of most photos; empty if there is none."""
        texts = [" ".join(words) for words in captions]
        if not texts:
            return ""
        text, count = Counter(texts).most_common(1)[0]
        if not text and count == len(texts):
            return f"all {count} captions are empty"
        share = count / len(texts)
        # A single caption is no repetition, and people may repeat themselves too.
        if len(texts) < 2 or share <= MAX_REPETITION or share < 2 * self._usual:
            return ""
        return f"{count} of {len(texts)} captions are {text!r}"


def _share_of_commonest(references: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return the share of photos that have the commonest caption of people."""
    counts = Counter()
    for captions in references:
        # A set, because people may write the same caption twice for a photo.
        counts.update({" ".join(words) for words in captions})
    return max(counts.values(), default=0) / max(len(references), 1)


def _faults_of_attention(attention: Mapping) -> Iterator[tuple[str, str, str]]:
    """Yield the kind of each fault, its description and the remedy."""
    movement = attention.get("attention_movement", 1.0)
    if (peak := attention.get("attention_peak", 0.0)) > MAX_PEAK:
        fault = f"attention has collapsed: {peak:.0%} of it is on one location"
        remedy = "raise hard.entropy_weight, lower training.learning_rate or start from"
        yield "collapsed", fault, f"{remedy} a soft model by training.init_from"
    elif movement < MIN_MOVEMENT:
        fault = "attention has stopped moving: the variance of alpha over a caption's "
        fault += f"steps is {movement:.0e} of its mean square"
        yield "still", fault, "lower training.doubly_stochastic or hard.entropy_weight"


def fault_of_metric(metric: str, references: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return why a metric cannot select a model on these captions, or an empty text.

    Args:
        metric: the name of the score.
        references: the words of the captions of each validation photo.
    """
    photos = len(references)
    longest = [max(map(len, captions), default=0) for captions in references]
    short = sum(length < 4 for length in longest)
    if metric == "CIDEr" and photos == 1:
        other = "training.metric=BLEU-4" if not short else ""
        remedy = f"add validation photos{f', or pass --set {other}' if other else ''}"
        return (
            "CIDEr of a single validation photo is 0 by definition, so that no "
            f"training can improve the initial model; {remedy}"
        )
    if metric == "BLEU-4" and 2 * short > photos:
        remedy = "pass --set training.metric=CIDEr"
        if photos == 1:
            remedy = "add validation photos and pass --set training.metric=CIDEr"
        return (
            f"BLEU-4 counts sequences of four words, and {short} of "
            f"{plural(photos, 'validation photo')} have no caption of four words: "
            f"scores near 0 would choose the model; {remedy}"
        )
    return ""
