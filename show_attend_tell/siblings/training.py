"""Train models of digits and words: the parts that their trainings share."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import keras
import numpy as np
import tensorflow as tf

from show_attend_tell.config import runs
from show_attend_tell.config.siblings import DigitExperiment, GenerationExperiment
from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.data.digits import Digits, make_pictures, read_digits
from show_attend_tell.training.divergence import LossMonitor
from show_attend_tell.training.loop import Summary, Trainer
from show_attend_tell.training.optimizer import make_plain_optimizer
from show_attend_tell.training.tensorboard_log import CurveLog

AnyExperiment = DigitExperiment | GenerationExperiment | ReadExperiment


class SiblingTask:
    """The shared half of the trainings, see :class:`training.loop.Trainer`.

    A subclass adds its ``objective``, its scores, and ``open``, which reads the
    prepared data.

    Attributes:
        build_model: returns the untrained model of an experiment.
        other: what the data are if their digest has changed.
        monitored: arguments of the :class:`LossMonitor` that checks its loss.

    Args:
        experiment: the settings.
        digest: digest of the training data.
    """

    build_model: Callable[[AnyExperiment], keras.Model]
    other: str
    monitored: Mapping[str, object]
    starts_trained = start_counts = False

    def __init__(self, experiment: AnyExperiment, digest: str):
        self.experiment, self.settings = experiment, experiment.training
        self.metric, self.digest = self.settings.metric, digest
        self.model = self.build_model(experiment)

    def compile(self, total_steps: int) -> None:
        """Compile the model with the optimiser of the settings."""
        optimizer = make_plain_optimizer(self.settings, total_steps)
        # An average of trained weights starts at these weights.
        optimizer.average_from_start = self.starts_trained
        self.model.compile(optimizer=optimizer, jit_compile=self.settings.jit_compile)
        optimizer.build(self.model.trainable_variables)

    def monitor_loss(self, first: float | None) -> LossMonitor:
        """Return the check of the loss, given the loss of the first update if known."""
        warmup = self.settings.warmup_steps
        return LossMonitor(warmup=warmup, first=first, **self.monitored)

    def copy_model(self) -> keras.Model:
        """Return another model of the same settings."""
        return self.build_model(self.experiment)

    def open_log(self, folder: Path) -> CurveLog:
        """Return the log of curves and scores."""
        return CurveLog(folder, self.experiment)


class DigitTask(SiblingTask):
    """The shared half of the trainings on digits.

    The arguments of a subclass are the experiment, the training and the validation
    digits.
    """

    other = "other digits"

    @classmethod
    def open(cls, experiment: AnyExperiment, folder: Path, runs_folder: Path) -> Self:
        """Read the training and the validation digits of a prepared folder."""
        return cls(
            experiment,
            read_digits(folder, "train", experiment.data.validation),
            read_digits(folder, "val", experiment.data.validation),
        )


def train_task(
    task_class: type[SiblingTask],
    experiment: AnyExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train the model of an experiment and write its run folder.

    Args:
        task_class: the class of the experiment's task.
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, which is made if absent.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with the time left.

    Raises:
        DigitsError: the prepared digits are absent or damaged.
        WordsError: the prepared words are absent or damaged.
        ModelFileError: the initial model is absent, damaged, or of other settings.
        RunError: there is nothing to resume, or an earlier run would be overwritten.
        TrainingError: training has diverged; the last good checkpoint and model are
            kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    folder = Path(work) / experiment.data.name
    trainer = Trainer(task_class.open(experiment, folder, Path(runs_folder)))
    # Last, as it may replace a run.
    with runs.lock_run(experiment, runs_folder):
        run = runs.open_run(experiment, runs_folder, resume, overwrite)
        return trainer.run(run, resume, progress)


class Updates:
    """The updates of a training that uses every example once an epoch.

    An epoch leaves out the examples after its last whole batch, different examples in
    every epoch, because a smaller batch would need a graph of its own.

    Args:
        settings: the table ``[training]``.
        count: number of examples.
    """

    def __init__(self, settings, count: int):
        self.settings, self.count = settings, count
        self.batch = min(settings.batch_size, count)

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.count // self.batch

    def rows_of(self, epoch: int, start: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each batch of an epoch, and the rows of its examples."""
        rng, B = np.random.default_rng([self.settings.seed, epoch]), self.batch
        order = rng.permutation(self.count)
        for number in range(start, self.steps):
            yield number, order[number * B : (number + 1) * B]


class PictureUpdates(Updates):
    """Train on every digit once an epoch, in pictures made anew.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        digits: the training digits.
        compile_step: called with the model and whether XLA compiles; returns a
            ``tf.function`` that applies an update and returns the values to log. Its
            arguments are the tensors of a batch.
    """

    def __init__(self, experiment, model, digits: Digits, compile_step: Callable):
        super().__init__(experiment.training, len(digits.labels))
        self.data, self.digits = experiment.data, digits
        self.model, self.compile_step = model, compile_step
        self._step = None

    @property
    def graphs(self) -> int:
        """Number of graphs compiled so far."""
        return int(self._step is not None)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        shape = (self.batch, self.data.canvas, self.data.canvas)
        signature = Digits(
            tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:1], tf.uint8)
        )
        for batch in prefetch(lambda: self.batches(epoch, start), signature):
            yield self.apply(*batch)

    def apply(self, *batch: tf.Tensor) -> dict:
        """Apply one update; the first update compiles the step."""
        if self._step is None:
            step = self.compile_step(self.model, self.settings.jit_compile)
            self._step = step.get_concrete_function(*batch)
        return self._step(*batch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Digits]:
        """Yield batches; each depends only on the seed, the epoch and its number."""
        images, labels = self.digits
        for number, chosen in self.rows_of(epoch, start):
            rng = np.random.default_rng([self.settings.seed, epoch, number])
            pictures = make_pictures(images[chosen], images, self.data, rng)
            yield Digits(pictures, labels[chosen])


def compile_step(
    model: keras.Model, values_of: Callable[..., dict], jit_compile: bool
) -> Callable[..., dict]:
    """Return a compiled function of a batch that applies the gradient of its loss.

    Args:
        model: the model, whose optimiser is built.
        values_of: returns ``loss`` and other values to log, from the batch's tensors.
        jit_compile: whether XLA compiles.
    """
    weights = [weight.value for weight in model.trainable_weights]

    def step(*batch):
        with tf.GradientTape() as tape:
            values = values_of(*batch)
        zero = tf.UnconnectedGradients.ZERO  # of weights that no term reaches
        gradients = tape.gradient(values["loss"], weights, unconnected_gradients=zero)
        model.optimizer.apply(gradients)
        return values

    return tf.function(step, autograph=False, jit_compile=jit_compile)


def prefetch(make_batches: Callable[[], Iterator], signature) -> tf.data.Dataset:
    """Return batches as tensors of a signature; a thread makes the next batches."""
    dataset = tf.data.Dataset.from_generator(make_batches, output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False  # it would delay the start of an epoch
    return dataset.prefetch(4).with_options(options)
