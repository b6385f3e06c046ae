"""Run a training: updates, checkpoints, validation, early stopping and logs.

The loop knows neither captions nor photos. A task provides the model, the updates of an
epoch and the scores of a validation.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_toml, read_experiment_file
from show_attend_tell.runtime.backend import is_out_of_memory
from show_attend_tell.runtime.errors import ConfigError, TrainingError, plural
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.progress import ProgressBar, progress_bar
from show_attend_tell.training.checkpoint import (
    Position,
    restore_checkpoint,
    save_checkpoint,
)
from show_attend_tell.training.divergence import LossMonitor, MonitoredLoss
from show_attend_tell.training.event_log import cut_events
from show_attend_tell.training.optimizer import bounded, make_optimizer
from show_attend_tell.training.step import describe_devices, device_count
from show_attend_tell.training.tensorboard_log import CurveLog
from show_attend_tell.training.workers import ALONE, Workers

logger = logging.getLogger(__name__)


class Summary(NamedTuple):
    """The result of a training."""

    folder: Path  # the run folder
    model: Path  # the best model's file
    best: float  # best validation score
    metric: str  # name of the score
    best_step: int = 1  # the update that reached it
    steps: int = 1  # number of updates
    seconds: float = 0.0  # duration of this call
    stopped: str = "all epochs done"  # the reason why training ended


class Task:
    """What a training trains; a subclass adds its model, objective and scores.

    The model is a Keras model whose ``save`` writes a ``.safetensors`` file. The task
    also has ``validate(model, step)``, which returns scores and is called with the
    same model every time, and ``show(log, model, step)``.

    Attributes:
        settings: the table ``[training]``.
        metric: name of the score that selects the model; higher is better.
        objective: has the number of ``steps`` in an epoch, the number of ``graphs``
            compiled so far, and ``updates(epoch, start)``, which applies the updates of
            an epoch from number `start` on and yields the values to log.
        monitored: the loss by which a training that diverges is stopped.
        starts_trained: whether to validate the initial model.
        start_counts: whether the initial model may be the best.
        digest: digest of what must not change before the training is resumed.
        other: what has changed if the digest has, such as ``another vocabulary``.
        data_digests: further names, such as ``captions``, and digests of what must not
            change.
        sources: the models that training reads: a setting and the file that it names.

    Args:
        experiment: the settings.
    """

    other: str
    model: keras.Model
    monitored: MonitoredLoss
    objective: Any
    digest: str
    starts_trained = False
    start_counts = False

    def __init__(self, experiment):
        self.experiment = experiment
        self.settings = experiment.training
        self.data_digests: dict[str, str] = {}
        self.sources: list[tuple[str, Path]] = []
        self.metric = self.settings.metric

    def require_kept(self, replaced: Iterable[Path]) -> None:
        """Raise a ConfigError if training reads a model of a run that is replaced.

        Args:
            replaced: the folders of these runs.
        """
        folders = [folder.resolve() for folder in replaced]
        for setting, file in self.sources:
            # A link in a folder is lost with it, and so is a link's target.
            inside = {file.parent.resolve(), *file.resolve().parents}
            if inside.intersection(folders):
                raise ConfigError(
                    f"`{setting}` must be a model outside of the runs that the "
                    f"training replaces. Received: {file}; copy the model to another "
                    "folder and name the copy, or train another run with --name"
                )

    def compile(self, total_steps: int) -> None:
        """Compile the model with the optimiser of the settings."""
        self.settings = bounded(self.settings, total_steps)
        optimizer = make_optimizer(self.settings, total_steps)
        self.model.compile(optimizer=optimizer, jit_compile=self.settings.jit_compile)
        # Now, and not in the first update, so that a checkpoint can set its variables
        # and an `initial_share` keeps the weights of the start.
        optimizer.build(self.model.trainable_variables)

    def open_log(self, folder: Path) -> CurveLog:
        """Return the log of curves and scores."""
        return CurveLog(folder, self.experiment)

    def check_result(self, best_step: int, steps: int) -> None:
        """Log a warning if the saved model is useless; nothing is known of most tasks.

        A resumed training knows only the models that it has validated itself.

        Args:
            best_step: the update that gave the saved model.
            steps: number of updates.
        """


class Trainer:
    """A training: a task and its position.

    Args:
        task: the :class:`Task`; its model is compiled.
        workers: the workers that train together.
    """

    def __init__(self, task, workers: Workers = ALONE):
        self.task = task
        self.workers = workers
        self.model = task.model
        self.objective = task.objective
        # Before `compile`, which bounds warm-up and average by this number.
        self.total_steps = task.settings.epochs * self.objective.steps
        task.compile(self.total_steps)
        self.settings = task.settings  # after `compile`, which bounds them
        self.position = Position(
            vocabulary=task.digest,
            start_counts=task.start_counts,
            data=task.data_digests,
            epochs=self.settings.epochs,
        )
        self._latest_step = 0  # the update whose values are the latest, 0 for none
        self._latest_values: Mapping = {}
        self._written: int | None = None  # the update of the last checkpoint

    @functools.cached_property
    def saved(self) -> keras.Model:
        """The model that is validated and saved, a copy with the averaged weights."""
        # One copy serves all validations, so that its search is compiled once.
        return type(self.model).from_config(self.model.get_config())

    def run(self, folder: Path, resume: bool, progress: bool) -> Summary:
        """Train until the end in a run folder.

        Args:
            folder: the run folder.
            resume: continue from its checkpoint.
            progress: whether to show a bar with the time left.

        Raises:
            TrainingError: the checkpoint is damaged or another training's; or training
                has diverged; the last good checkpoint and model are kept.
            KeyboardInterrupt: after the checkpoint was written, or in the first update.
        """
        started = time.monotonic()
        self.folder = folder
        if resume:
            self._restore()
        position = self.position
        chief = self.workers.is_chief
        if chief:
            logger.info("%s: trains on %s", folder, describe_devices())
        warmup = self.settings.warmup_steps
        self.losses = LossMonitor(
            self.task.monitored, warmup, position.first_loss, position.high_since
        )
        bar = progress_bar(
            self.total_steps, "step", done=position.step, shown=progress and chief
        )
        # The other workers get None for a log.
        log = self.task.open_log(folder) if chief else contextlib.nullcontext()
        with bar, log as log:
            try:
                self._train(log, bar, validate=resume or self.task.starts_trained)
            except FloatingPointError as error:
                raise TrainingError(
                    f"{folder}: training has diverged: {error}; {self._kept()}; train "
                    "again with --overwrite and a training.learning_rate below "
                    f"{self.settings.learning_rate:g}"
                ) from None
            # Broad, because each backend has its own class for a full device.
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise TrainingError(self._out_of_memory()) from None
        if chief:
            self.task.check_result(position.best_step, position.step)
        return Summary(
            folder=folder,
            model=folder / runs.MODEL,
            best=math.nan if position.best is None else position.best,
            best_step=position.best_step,
            steps=position.step,
            seconds=time.monotonic() - started,
            stopped=position.stopped or "all epochs done",
            metric=self.task.metric,
        )

    def _restore(self) -> None:
        """Set the model, its optimiser and the position to the run's checkpoint."""
        path = self.folder / runs.CHECKPOINT
        digest = self.task.digest
        position = restore_checkpoint(path, self.model)
        remedy = "prepare the data as they were, or replace the run with --overwrite"
        if position.vocabulary != digest:
            raise TrainingError(
                f"{path}: the run was started with {self.task.other}; {remedy}"
            )
        now = self.task.data_digests
        changed = [name for name in now if position.data.get(name) != now[name]]
        if changed:
            raise TrainingError(
                f"{path}: the run was started with other training data: "
                f"{' and '.join(changed)} have changed since; {remedy}"
            )
        position.data = now
        steps = self.objective.steps
        within = position.step_in_epoch
        if within > steps or position.step != position.epoch * steps + within:
            raise TrainingError(
                f"{path}: the run was started with other training data: update "
                f"{position.step} must be number {within} of epoch {position.epoch}. "
                f"Received: {steps} updates per epoch; {remedy}"
            )
        self.position = position
        self._written = position.step
        if self.workers.is_chief:
            # The events after the checkpoint are written again by the repeated updates.
            validated = position.validated == position.step
            cut_events(self.folder, position.step, validated)
            self._extend()
        self._share_position()

    def _extend(self) -> None:
        """Let a run that was finished with fewer epochs go on; store its settings.

        The settings are stored after the checkpoint: an interruption in between is
        repeated.
        """
        before = self.position.epochs
        epochs = self.settings.epochs
        self.position.epochs = epochs
        # A run that has stopped early also goes on, with its patience renewed.
        if before < epochs:
            self.position.stopped = ""
            self.position.without_gain = 0
            save_checkpoint(self.folder / runs.CHECKPOINT, self.model, self.position)
            logger.info(
                "%s: extended from %d to %d epochs; a schedule counts all of them",
                self.folder,
                before,
                epochs,
            )
        file = self.folder / runs.SETTINGS
        if file.is_file() and read_experiment_file(file).training.epochs < epochs:
            atomic_write(file, experiment_to_toml(self.task.experiment))

    def _share_position(self) -> None:
        """Let the other workers take the chief's position."""
        state = dataclasses.asdict(self.position)
        vars(self.position).update(self.workers.broadcast(state))

    def _train(self, log, bar: ProgressBar, validate: bool) -> None:
        """Train until the end; write a checkpoint if interrupted.

        Args:
            log: the log.
            bar: the progress bar.
            validate: whether to validate first: the initial model, or to finish what
                was interrupted.
        """
        position = self.position
        try:
            # A checkpoint is written before the validation and before the end of its
            # epoch. A resumed run must do both first: the epoch has no further update.
            if validate:
                self._after_update(log, bar)
            while position.epoch < self.settings.epochs and not position.stopped:
                self._epoch(log, bar)
        except KeyboardInterrupt:
            # The interrupt can arrive after an update was applied, before it was
            # counted.
            position.step = int(self.model.optimizer.iterations)
            is_unmeasured = self.losses.first is None and not self._latest_step
            if position.step <= 1 and is_unmeasured:
                raise  # the first update is repeated, as its loss is not known
            # Derived and not counted, because the interrupt may also arrive between the
            # two writes at the end of an epoch.
            done = position.epoch * self.objective.steps
            position.step_in_epoch = position.step - done
            self._checkpoint()
            raise

    def _kept(self) -> str:
        """Describe what a training that has diverged leaves in its folder."""
        checkpoint = model = "none"
        if self._written is not None:
            checkpoint = f"that of update {self._written}"
        if (self.folder / runs.MODEL).exists():
            model = f"that of update {self.position.best_step}"
        return f"the last good checkpoint is {checkpoint}, the best model {model}"

    def _out_of_memory(self) -> str:
        """Describe the end of a training whose update the device cannot hold."""
        size = self.settings.batch_size
        remedy = "train a smaller model, or on a device with more memory"
        if smaller := self._smaller_batch():
            remedy = (
                f"train again with --overwrite and --set training.batch_size={smaller}"
            )
        return (
            f"{self.folder}: the device has too little memory for an update of "
            f"{plural(size, 'example')}; {self._kept()}; {remedy}"
        )

    def _smaller_batch(self) -> int:
        """Return about half of the batch size; 0 if there is no smaller batch."""
        settings = self.settings
        half = settings.batch_size // 2
        unit = device_count()
        if getattr(settings, "objective", "") == "cider":  # all captions of a photo
            unit *= settings.hypotheses
        return half - half % unit

    def _epoch(self, log, bar: ProgressBar) -> None:
        position = self.position
        bar.set_postfix_str("", refresh=False)
        graphs = self.objective.graphs
        updates = self.objective.updates(position.epoch, position.step_in_epoch)
        for values in updates:
            position.step += 1
            position.step_in_epoch += 1
            bar.update(compiled=self.objective.graphs > graphs)
            graphs = self.objective.graphs
            if log is not None:
                log.log_update(position.step, values, self.model.optimizer, bar)
            self._latest_step = position.step
            self._latest_values = values
            if self.losses.is_due(position.step):
                self._check_loss()
            self._after_update(log, bar)
            if position.stopped:
                return

    def _check_loss(self) -> None:
        if self._latest_step:
            self.losses.check(self._latest_step, self._latest_values)
            self.position.first_loss = self.losses.first
            self.position.high_since = self.losses.high_since

    def _after_update(self, log, bar: ProgressBar) -> None:
        """Write a checkpoint, validate and end the epoch where these are due."""
        position = self.position
        settings = self.settings
        ends = position.step_in_epoch == self.objective.steps
        validates = self._validation_due() and position.validated < position.step
        saves = position.step > 0 and position.step % settings.checkpoint_every == 0
        if not (ends or validates or saves):
            return
        # Before validating, so that an error there loses no update.
        self._checkpoint()
        if validates:
            self._validate(log, bar)
        if ends:
            position.epoch = position.epoch + 1
            position.step_in_epoch = 0
        # Again, with the scores and the next epoch.
        if ends or validates:
            self._checkpoint()
        bar.exclude_pause()

    def _validation_due(self) -> bool:
        position = self.position
        settings = self.settings
        # The initial model is validated only if it was trained.
        if not position.step:
            return self.task.starts_trained
        if position.step == self.total_steps:
            return True
        if settings.validate_every:
            return position.step % settings.validate_every == 0
        return position.step_in_epoch == self.objective.steps

    def _checkpoint(self) -> None:
        """Write a checkpoint, unless training has diverged."""
        self._check_loss()
        if self.workers.is_chief:
            path = self.folder / runs.CHECKPOINT
            save_checkpoint(path, self.model, self.position)
        self._written = self.position.step

    def _validate(self, log, bar: ProgressBar) -> None:
        """Let the chief score the model; the other workers take its position."""
        if self.workers.is_chief:
            self._score(log, bar)
        self.position.validated = self.position.step
        self._share_position()

    def _score(self, log, bar: ProgressBar) -> None:
        """Score the model; keep it if it is the best so far."""
        position = self.position
        for copy, original in zip(self.saved.weights, self.model.weights, strict=True):
            copy.assign(original)
        # The average exists from the first update on; before, it may be zeros.
        if position.step:
            variables = self.saved.trainable_variables
            self.model.optimizer.finalize_variable_values(variables)
        bar.set_postfix_str("validating", refresh=True)
        scores = self.task.validate(self.saved, position.step)
        self.task.show(log, self.saved, position.step)
        log.log_scores(position.step, scores)
        bar.write(
            f"epoch {position.step / self.objective.steps:.2f}, step {position.step}: "
            + ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        )
        if position.step or position.start_counts:
            self._keep_if_best(scores[self.task.metric])

    def _keep_if_best(self, score: float) -> None:
        position = self.position
        patience = self.settings.patience
        # NaN is larger than nothing, and so never the best score.
        if score > (-math.inf if position.best is None else position.best):
            # First, so that a validation interrupted here is repeated.
            self.saved.save(self.folder / runs.MODEL)
            position.best = score
            position.best_step = position.step
            position.without_gain = 0
        else:
            position.without_gain += 1
            if position.without_gain >= patience:
                position.stopped = f"no improvement in {patience} validations"
