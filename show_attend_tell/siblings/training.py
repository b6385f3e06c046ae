"""Train a model of digits or words: the parts that their tasks share."""

from collections.abc import Callable
from pathlib import Path

import keras

from show_attend_tell.config import runs
from show_attend_tell.config.generation import GenerationExperiment
from show_attend_tell.config.reader import ReadExperiment
from show_attend_tell.config.siblings import DigitExperiment
from show_attend_tell.data.digits import Digits, read_digits
from show_attend_tell.training.loop import Trainer
from show_attend_tell.training.optimizer import make_plain_optimizer
from show_attend_tell.training.position import Summary
from show_attend_tell.training.tensorboard_log import CurveLog


class SiblingTask:
    """The shared half of a :class:`training.loop.Task` beside the captioner's.

    A task adds its ``objective``, the check of its loss, and its scores, and names
    what its data are, ``other``.

    Args:
        experiment: the settings.
        digest: digest of the training data.
        build_model: returns the untrained model of an experiment.
    """

    starts_trained = start_counts = False

    def __init__(
        self,
        experiment: DigitExperiment | GenerationExperiment | ReadExperiment,
        digest: str,
        build_model: Callable[..., keras.Model],
    ):
        self.experiment, self.settings = experiment, experiment.training
        self.metric, self.digest = self.settings.metric, digest
        self._build_model = build_model
        self.model = build_model(experiment)

    def compile(self, total_steps: int) -> None:
        """Compile the model with the optimiser of the settings."""
        optimizer = self.make_optimizer(total_steps)
        self.model.compile(optimizer=optimizer, jit_compile=self.settings.jit_compile)
        optimizer.build(self.model.trainable_variables)

    def make_optimizer(self, total_steps: int) -> keras.optimizers.Optimizer:
        """Return the optimiser of the settings, which is not built."""
        return make_plain_optimizer(self.settings, total_steps)

    def copy_model(self) -> keras.Model:
        """Return another model of the same settings."""
        return self._build_model(self.experiment)

    def open_log(self, folder: Path) -> CurveLog:
        """Return the log of curves and scores."""
        return CurveLog(folder, self.experiment)

    def show_best(self, log: CurveLog, model: keras.Model) -> None:
        """Log nothing more of the best model."""


class DigitTask(SiblingTask):
    """The shared half of a task on digits.

    Args:
        experiment: the settings.
        digits: the training digits.
        build_model: returns the untrained model of an experiment.
    """

    other = "other digits"

    def __init__(
        self,
        experiment: DigitExperiment | GenerationExperiment,
        digits: Digits,
        build_model: Callable[..., keras.Model],
    ):
        super().__init__(experiment, digits.digest(), build_model)


def train_task(
    make_task: Callable[..., DigitTask],
    experiment: DigitExperiment | GenerationExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train an experiment on digits and write its run folder.

    Args:
        make_task: called with the experiment, the training and the validation digits;
            returns the task.
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
    task = make_task(experiment, digits, held_out)
    return run_task(task, runs_folder, resume, overwrite, progress)


def run_task(
    task: SiblingTask,
    runs_folder: str | Path,
    resume: bool,
    overwrite: bool,
    progress: bool,
) -> Summary:
    """Train a task and write its run folder; see :func:`train_task`."""
    trainer, experiment = Trainer(task), task.experiment
    # Last, as it may replace a run.
    with runs.lock_run(experiment, runs_folder):
        run = runs.open_run(experiment, runs_folder, resume, overwrite)
        return trainer.run(run, resume, progress)
