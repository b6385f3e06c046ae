"""Train a classifier of digits, by glimpses or of whole pictures."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.data.digits import (
    CLASSES,
    Digits,
    held_out_pictures,
    make_pictures,
    read_digits,
)
from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.ram.classifier import PictureClassifier
from show_attend_tell.siblings.ram.figures import glimpse_figure
from show_attend_tell.siblings.ram.model import FAR, RecurrentAttention
from show_attend_tell.siblings.ram.prediction import Prediction, Predictor
from show_attend_tell.training.divergence import LossMonitor
from show_attend_tell.training.loop import Trainer
from show_attend_tell.training.optimizer import make_plain_optimizer
from show_attend_tell.training.position import Summary
from show_attend_tell.training.tensorboard_log import CurveLog

logger = logging.getLogger(__name__)

SHOWN = 4  # validation pictures whose glimpses are shown in TensorBoard
DPI = 60  # resolution of that figure, so that a run stays small
MOST_FAR = 0.9  # share of the policy's means at the border that is reported


def train(
    experiment: DigitExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train an experiment on digits and write its run folder.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, which is made if absent.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with the time left.

    Raises:
        DigitsError: the prepared digits are absent or damaged.
        RunError: there is nothing to resume, or an earlier run would be overwritten.
        TrainingError: training has diverged; the last good checkpoint and model are
            kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    folder = Path(work) / experiment.data.name
    digits, held_out = (
        read_digits(folder, split, experiment.data.validation)
        for split in ("train", "val")
    )
    trainer = Trainer(ClassificationTask(experiment, digits, held_out))
    # Last, as it may replace a run.
    with runs.lock_run(experiment, runs_folder):
        run = runs.open_run(experiment, runs_folder, resume, overwrite)
        return trainer.run(run, resume, progress)


def build_model(
    experiment: DigitExperiment,
) -> RecurrentAttention | PictureClassifier | WindowClassifier:
    """Return the untrained model of an experiment."""
    canvas, seed = experiment.data.canvas, experiment.training.seed
    if experiment.glimpse:
        return RecurrentAttention(experiment.glimpse, canvas, CLASSES, seed)
    if experiment.draw:
        return WindowClassifier(experiment.draw, canvas, CLASSES, seed)
    return PictureClassifier(experiment.classifier, canvas, CLASSES, seed)


class ClassificationTask:
    """The training of a classifier of digits, see :class:`training.loop.Task`.

    Args:
        experiment: the settings.
        digits: the training digits.
        validation: the validation digits.
    """

    other = "other digits"
    starts_trained = start_counts = False

    def __init__(self, experiment: DigitExperiment, digits: Digits, validation: Digits):
        self.experiment, self.settings = experiment, experiment.training
        self.metric, self.digest = self.settings.metric, digits.digest()
        self.pictures = held_out_pictures(validation, experiment.data, "val")
        self.model = build_model(experiment)
        self.objective = PictureUpdates(experiment, self.model, digits)
        self._predictor, self._shown, self._warned = None, None, False

    def compile(self, total_steps: int) -> None:
        """Compile the model with the optimiser of the settings."""
        optimizer = make_plain_optimizer(self.settings, total_steps)
        self.model.compile(optimizer=optimizer, jit_compile=self.settings.jit_compile)
        optimizer.build(self.model.trainable_variables)

    def copy_model(self) -> RecurrentAttention | PictureClassifier | WindowClassifier:
        """Return another model of the same settings."""
        return build_model(self.experiment)

    def monitor_loss(self, first: float | None) -> LossMonitor:
        """Return the check of the cross entropy."""
        key = "cross_entropy"
        named = {"key": key, "noun": "cross entropy", "inputs": "digits"}
        return LossMonitor(CLASSES, self.settings.warmup_steps, first, **named)

    def open_log(self, folder: Path) -> CurveLog:
        """Return the log of curves and scores."""
        return CurveLog(folder, self.experiment)

    def validate(self, model, step: int) -> dict[str, float]:
        """Return accuracy and error in percent on the validation pictures.

        Args:
            model: the model, the same one in every call.
            step: the number of updates before.
        """
        self._predictor = self._predictor or Predictor(model)
        images, labels = self.pictures
        glimpse = self.experiment.glimpse
        look = glimpse.locations if glimpse else None
        shown = self._predictor(images, "random" if look == "random" else "mean")
        self._shown, error = shown, shown.errors(labels)
        scores = {"accuracy": 100 - error, "error": error}
        if look == "learned":
            scores["error_sampled"] = self._predictor(images, "sampled").errors(labels)
            self._warn_of_border(shown, step)
        return scores

    def _warn_of_border(self, shown: Prediction, step: int) -> None:
        """Log a warning the first time that the policy only looks at the border."""
        if self._warned or shown.means is None:
            return
        far = np.mean(np.abs(shown.means) > FAR)
        if far > MOST_FAR:
            self._warned = True
            logger.warning(
                "%.0f %% of the policy's coordinates at update %d are at the border of "
                "the picture; if later ones are, lower glimpse.reinforce_weight",
                100 * far,
                step,
            )

    def show(self, log: CurveLog, model, step: int) -> None:
        """Log the glimpses at the first validation pictures."""
        if self._shown.locations is None:
            return
        figure = glimpse_figure(
            self.pictures.images[:SHOWN],
            self._shown.locations[:SHOWN],
            model,
            self._shown.probabilities[:SHOWN].argmax(-1),
        )
        with log.writer.as_default(step=step):
            tf.summary.image("glimpses", figure_to_array(figure, DPI)[None])

    def show_best(self, log: CurveLog, model) -> None:
        """Log nothing more of the best model."""


class PictureUpdates:
    """Train on every training digit once an epoch, in pictures made anew.

    The digits after the last whole batch of an epoch, other ones in every epoch, are
    left out, as a smaller batch would need a graph of its own.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        digits: the training digits.
    """

    def __init__(self, experiment: DigitExperiment, model, digits: Digits):
        self.settings, self.data = experiment.training, experiment.data
        self.model, self.digits = model, digits
        self.batch = min(self.settings.batch_size, len(digits.labels))
        self._step = None

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return len(self.digits.labels) // self.batch

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far."""
        return int(self._step is not None)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for batch in self._prefetched(epoch, start):
            if self._step is None:
                step = compiled_step(self.model, self.settings.jit_compile)
                self._step = step.get_concrete_function(*batch)
            yield self._step(*batch)

    def _prefetched(self, epoch: int, start: int) -> tf.data.Dataset:
        """Return the batches as tensors; a thread makes the next ones."""
        shape = (self.batch, self.data.canvas, self.data.canvas)
        signature = Digits(
            tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:1], tf.uint8)
        )
        dataset = tf.data.Dataset.from_generator(
            lambda: self.batches(epoch, start), output_signature=signature
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # it would delay the start of an epoch
        return dataset.prefetch(4).with_options(options)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Digits]:
        """Yield batches; each depends on the seed, the epoch and its number alone."""
        seed, (images, labels) = self.settings.seed, self.digits
        order = np.random.default_rng([seed, epoch]).permutation(len(labels))
        for number in range(start, self.steps):
            chosen = order[number * self.batch : (number + 1) * self.batch]
            rng = np.random.default_rng([seed, epoch, number])
            pictures = make_pictures(images[chosen], images, self.data, rng)
            yield Digits(pictures, labels[chosen])


def compiled_step(model, jit_compile: bool):
    """Return the compiled training step of images (B, H, H) uint8 and labels (B,).

    It returns the values of ``losses_of`` and the gradient's norm in each part of a
    model of glimpses: each part is reached by one term of the loss, unless the policy
    reaches the core.
    """
    weights = model.trainable_weights
    parts = {}
    if isinstance(model, RecurrentAttention):
        policy = {weight.path for weight in model.policy}
        baseline = {weight.path for weight in model.expect.weights}
        for name, paths in (("location", policy), ("baseline", baseline)):
            parts[name] = [k for k, w in enumerate(weights) if w.path in paths]
        rest = set(range(len(weights))) - set(parts["location"] + parts["baseline"])
        parts["classifier"] = sorted(rest)

    def step(images, labels):
        with tf.GradientTape() as tape:
            pictures = tf.cast(images, "float32") / 255
            values = model.losses_of(labels, model(pictures, training=True))
        gradients = tape.gradient(
            values["loss"],
            [weight.value for weight in weights],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        model.optimizer.apply(gradients)
        norms = {
            f"gradient_norm_{name}": tf.linalg.global_norm([gradients[k] for k in part])
            for name, part in parts.items()
        }
        return {**values, **norms}

    return tf.function(step, autograph=False, jit_compile=jit_compile)
