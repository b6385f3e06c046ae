"""Train by reward: the model's own captions, weighted by their CIDEr and more.

Self-critical sequence training (Rennie et al., CVPR 2017) follows the gradient of the
expected reward r. For the W captions y_k generated for a photo a, and the weights
theta::

    dL/dtheta = -1/W sum_k (r(y_k) - b_k) d log p(y_k | a) / dtheta

where the baseline b_k is the mean reward of the photo's other W - 1 captions.

The captions are the hypotheses of a beam search, as in Cornia et al. (CVPR 2020, Sec.
3.3). No baseline is valid for them: they are not samples of p, each depends on the
others, and the sum estimates no gradient of the expected reward. It raises the
probability of the better hypotheses at the expense of the others.

Attention stays soft, and back-propagation passes through it as in the paper.

Notation: :mod:`models.lstm.attention`; P is the number of photos of an update.
"""

from collections.abc import Callable, Iterator

import numpy as np
from keras import ops

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.dataset import FeatureViews, shown_items
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import PAD, START, Vocabulary
from show_attend_tell.evaluation.metrics.reward import CiderReward, Reward
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.step import (
    captioner_step,
    require_divisible,
    to_device,
    total,
)
from show_attend_tell.training.workers import ALONE, Workers


class SelfCritical:
    """Train on captions that the model generates for every training photo.

    An update has ``batch_size / hypotheses`` photos, of which each worker has a share.
    The arguments are those of :class:`maximum_likelihood.Likelihood`.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: Captioner,
        data: Split,
        views: FeatureViews,
        workers: Workers = ALONE,
    ):
        settings = experiment.training
        self.model = model
        self.data = data
        self.views = views
        self.hypotheses = settings.hypotheses
        self.seed = settings.seed
        self.photos = settings.batch_size // settings.hypotheses
        require_divisible(self.photos, "batch_size / hypotheses")
        self.own = workers.share.rows(self.photos)
        self.max_words = experiment.decoding.max_words
        self.reward = Reward(
            data.captions, settings.reward_bleu, settings.people_penalty
        )
        self.settings = settings
        self._step: Callable | None = None

    graphs = 1  # all captions have one length, so that the first update compiles it

    @property
    def steps(self) -> int:
        """Number of updates in an epoch, which shows each photo weight times."""
        return -(-len(shown_items(self.data.weights, self.seed, 0)) // self.photos)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        shown = shown_items(self.data.weights, self.seed, epoch)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(shown))
        order = shown[order]
        for number in range(start, self.steps):
            chosen = order[number * self.photos : (number + 1) * self.photos]
            # The numbers of update 0 are the order's, see `CaptionBatches.batches`.
            rng = np.random.default_rng([self.seed, epoch, number])
            yield self._update(chosen, rng)

    def _update(self, chosen: np.ndarray, rng: np.random.Generator) -> dict:
        """Generate captions of photos, reward them, and apply the gradient."""
        # Captions of this worker's photos, and their rewards
        rows = self.data.rows[chosen]
        # (P, L, D); P is this worker's share
        features = self.views.read(rows, rng, self.photos, self.own)
        chosen = chosen[self.own]
        search = DecodingSettings(
            beam=self.hypotheses, max_words=self.max_words, batch_size=len(features)
        )
        # All photos of the training, so that the search is compiled as for many.
        photos = self.settings.epochs * len(self.data.rows)
        # Copied, as the search runs on one device and the step may divide `features`.
        written = self.model.generate(np.asarray(features), search, photos=photos)
        present = written.lengths > 0  # (P, W)
        present[len(chosen) :] = False  # padding of the last batch
        rewards = np.zeros(present.shape)
        for p, k in np.argwhere(present):
            tokens = written.tokens[p, k]
            finished = bool(written.finished[p, k])
            words = reward_words(self.model.vocabulary, tokens, finished)
            rewards[p, k] = self.reward(chosen[p], words)
        # The captions as a batch, weighted by their advantages
        inputs, targets = to_batch(written.tokens, present)  # (P, W, T) -> (P W, T)
        model = self.model
        if not model.decoder.shares_photos:
            features = ops.repeat(features, self.hypotheses, axis=0)  # (P W, L, D)
        x = {"annotations": features, "tokens": inputs}
        weight = advantages(rewards, present).astype("float32").reshape(-1)  # (P W,)
        if self._step is None:
            self._step = captioner_step(model, self.settings)
        values = self._step(*to_device((x, targets, weight)))
        reward = total(rewards) / max(total(present), 1)
        return {**values, "reward": reward}


def reward_words(
    vocabulary: Vocabulary, tokens: np.ndarray, finished: bool
) -> list[str]:
    """Return the words of a caption (T,), with ``<end>`` if it is finished.

    Scored as a word, the end removes the gain of stopping in the middle of a phrase.
    """
    return vocabulary.decode(tokens.tolist()) + [CiderReward.END] * finished


def to_batch(tokens: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return captions as a training batch.

    Args:
        tokens: (P, W, T) ids up to <end>, then padding.
        present: (P, W), False for ignored captions.

    Returns:
        Inputs from <start> on, and targets; (P W, T) int32.
    """
    targets = np.where(present[..., None], tokens, PAD).reshape(-1, tokens.shape[-1])
    # Targets one step later, behind <start>
    inputs = np.full_like(targets, START)
    inputs[:, 1:] = targets[:, :-1]
    # Without this the step after <end> would read <end> as a word.
    return np.where(targets == PAD, PAD, inputs), targets


def advantages(rewards: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return r_k - b_k, where b_k is the mean reward of the photo's other captions.

    Args:
        rewards: (P, W).
        present: (P, W), False for ignored captions.

    Returns:
        (P, W); 0 for ignored captions and for the only caption of a photo.
    """
    rewards = np.where(present, rewards, 0.0)
    others = present.sum(1, keepdims=True) - 1  # (P, 1)
    baseline = (rewards.sum(1, keepdims=True) - rewards) / np.maximum(others, 1)
    return np.where(present & (others > 0), rewards - baseline, 0.0)
