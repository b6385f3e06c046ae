"""Train the decoder's language on captions without photos, before it sees photos.

The objective is the likelihood of the captions of text files and of the training
photos under :func:`models.language_model.text_logits`. No attention is computed, so an
update costs a small part of one with photos. The result is the initial model of a
training with photos (``training.init_from``), which has the same vocabulary.

Words outside of that vocabulary are <unk> as inputs and are masked as targets: a
caption may contain any word, and the model does not learn to write <unk>.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from keras import ops

from show_attend_tell.config.settings import Experiment, TrainingSettings
from show_attend_tell.data.dataset import (
    Captions,
    encode_captions,
    epoch_order,
    pad_captions,
)
from show_attend_tell.data.splits import Split
from show_attend_tell.data.text_files import read_text_captions
from show_attend_tell.data.vocabulary import PAD, TOKENIZERS, UNKNOWN
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.language_model import context_weights, text_logits
from show_attend_tell.models.losses import token_losses
from show_attend_tell.runtime.errors import TrainingError

logger = logging.getLogger(__name__)


def text_experiment(experiment: Experiment, files: Sequence[str]) -> Experiment:
    """Return the experiment that trains on text files, without photos.

    An experiment of another objective is renamed ``<name>-text``, so that its own run
    keeps its folder.
    """
    training = dataclasses.replace(
        experiment.training, objective="text", text=tuple(files)
    )
    named = experiment.training.objective == "text"
    name = experiment.name if named else f"{experiment.name}-text"
    return dataclasses.replace(experiment, name=name, training=training)


class TextLikelihood:
    """Train on every caption of the text files and of the photos, once an epoch.

    Args:
        experiment: the settings; ``training.text`` names the files.
        model: a built model; the weights that text cannot train are frozen.
        data: the training photos, for their captions.
        validation: the validation photos, for their captions.
    """

    METRIC = "word_probability"

    def __init__(
        self, experiment: Experiment, model: Captioner, data: Split, validation: Split
    ):
        if model.convolutions is not None:
            raise TrainingError(
                "encoder.trainable_from must be empty with objective = 'text', which "
                f"has no photos. Received: {experiment.encoder.trainable_from!r}; pass "
                "--set encoder.trainable_from="
            )
        self.model, self.settings = model, experiment.training
        tokenizer = TOKENIZERS[experiment.data.punctuation]
        texts = [read_text_captions(path, tokenizer) for path in self.settings.text]
        encode = functools.partial(
            encode_captions,
            vocabulary=model.vocabulary,
            max_words=experiment.data.max_words,
        )
        self.captions = encode([*texts, *data.captions])
        self.validation = encode(validation.captions)
        known = np.mean(self.captions.ids != UNKNOWN)
        logger.info(
            "%d captions, %d of text files; the vocabulary covers %.2f %% of the words",
            len(self.captions.photos),
            np.sum(self.captions.photos < len(texts)),
            100 * known,
        )
        for weight in context_weights(model.decoder):
            weight.trainable = False
        self._step_functions, self._loss_functions = {}, {}

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return -(-len(self.captions.photos) // self.settings.batch_size)

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far; it rises during an update that compiles."""
        return len(self._step_functions)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        settings = self.settings
        order = epoch_order(
            self.captions.lengths, settings.batch_size, settings.seed, epoch
        )
        for chosen in order[start:]:
            batch = self._batch(self.captions, chosen)
            make = functools.partial(compiled_text_step, self.model, settings)
            yield _graph_of(batch, self._step_functions, make)(*batch)

    def _batch(self, captions: Captions, chosen: np.ndarray):
        """Return inputs and targets, (B, T) each, without unknown words as targets."""
        inputs, targets = pad_captions(captions, chosen, self.settings.batch_size)
        targets = np.where(targets == UNKNOWN, PAD, targets)
        return tf.constant(inputs), tf.constant(targets)

    def validate(self, model: Captioner) -> dict[str, float]:
        """Return the scores of a model on the captions of the validation photos.

        Args:
            model: the model, the same one in every call.

        Returns:
            ``nats_per_word``, the mean of -log p of a known word or <end>,
            ``perplexity``, its exponential, and ``word_probability``, 100 / perplexity,
            the geometric mean of p in percent, of which more is better.
        """
        make = functools.partial(compiled_losses, model)
        size, total, count = self.settings.batch_size, 0.0, 0
        order = np.argsort(self.validation.lengths, kind="stable")
        for first in range(0, len(order), size):
            batch = self._batch(self.validation, order[first : first + size])
            losses, known = _graph_of(batch, self._loss_functions, make)(*batch)
            total, count = total + float(losses), count + int(known)
        nats = total / max(count, 1)
        scores = {"nats_per_word": nats, "perplexity": math.exp(min(nats, 700))}
        return scores | {self.METRIC: 100 * math.exp(-nats)}


def _graph_of(batch: tuple, graphs: dict, make: Callable):
    """Return the graph of a batch's length, made by `make` if `graphs` lacks it."""
    length = batch[0].shape[1]
    if length not in graphs:
        graphs[length] = make().get_concrete_function(*batch)
    return graphs[length]


def compiled_losses(model: Captioner):
    """Return (inputs, targets) -> the sum of -log p and the number of known words."""

    @functools.partial(tf.function, autograph=False)
    def losses_of(inputs, targets):
        losses = token_losses(text_logits(model, inputs), targets)  # (B, T)
        mask = ops.cast(ops.not_equal(targets, PAD), losses.dtype)
        return ops.sum(losses * mask), ops.sum(mask)

    return losses_of


def compiled_text_step(model: Captioner, settings: TrainingSettings):
    """Return the compiled training step of one length, which returns a batch's values.

    The loss is the mean over captions of the sum over their known words, as in
    training with photos.
    """
    variables = model.trainable_variables

    def step(inputs, targets):
        with tf.GradientTape() as tape:
            logits = text_logits(
                model, inputs, training=True, precision=settings.precision
            )  # (B, T, K)
            mask = ops.cast(ops.not_equal(targets, PAD), logits.dtype)
            losses = token_losses(logits, targets, settings.label_smoothing) * mask
            captions = ops.sum(ops.cast(ops.any(mask > 0, axis=1), mask.dtype))
            loss = ops.sum(losses) / ops.maximum(captions, 1)
        model.optimizer.apply(tape.gradient(loss, [v.value for v in variables]))
        words = ops.sum(mask)
        return {"loss": loss, "word_loss": ops.sum(losses) / ops.maximum(words, 1)}

    return tf.function(step, autograph=False)
