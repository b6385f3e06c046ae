"""Train RAM, DRAW and the reader with the loop of the captioner.

:class:`SiblingTask` has their batches and updates; a subclass adds the training step
and the validation of one model.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.settings import AnyExperiment
from show_attend_tell.runtime.read_ahead import read_ahead
from show_attend_tell.siblings.common.evaluation import ReadSplit
from show_attend_tell.siblings.common.layers import SiblingModel
from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.training.loop import Summary, Task, Trainer
from show_attend_tell.training.step import require_divisible, to_device

_AHEAD = 4  # batches made ahead of training


class Examples(Protocol):
    """Prepared data of a split."""

    @property
    def images(self) -> np.ndarray: ...  # noqa: D102

    def digest(self) -> str: ...  # noqa: D102


Data = TypeVar("Data", bound=Examples)


class SiblingTask(Task, abc.ABC, Generic[Data]):
    """The shared half of the trainings, which use every example once an epoch.

    An epoch leaves out the examples after its last whole batch, different examples in
    every epoch, because a smaller batch would need another graph. The task is its own
    objective.

    Attributes:
        models: the models of the task.
        read_split: reads the prepared data.
        step: the training step of the compiled model.

    Args:
        experiment: the settings.
        data: the training data.
        validation: the validation data.
    """

    models: TaskModels
    read_split: ReadSplit
    step: Callable
    graphs = 1  # compiled in the first update

    def __init__(self, experiment: AnyExperiment, data: Data, validation: Data):
        super().__init__(experiment)
        self.data = data
        self.validation = validation
        self.digest = data.digest()
        self.model = self.models.build(experiment, **self.arguments_of_data())
        self.objective = self
        self.count = len(data.images)
        self.batch = min(self.settings.batch_size, self.count)
        require_divisible(self.batch, "training.batch_size")

    @classmethod
    def open(cls, experiment: AnyExperiment, work: Path, runs_folder: Path) -> Self:
        """Return the task with the prepared data and the initial model."""
        data, validation = (
            cls.read_split(experiment, work, split) for split in ("train", "val")
        )
        source = experiment.training.init_from
        if not source:
            return cls(experiment, data, validation)
        # Before the task is made: `fit_data` takes the alphabet of the initial model,
        # and the data decide the size of the new model.
        path, initial = cls.models.load_initial(source, runs_folder)
        task = cls(experiment, cls.fit_data(data, initial), validation)
        # `require_kept` refuses a training that would replace this file.
        task.sources.append(("training.init_from", path))
        cls.models.set_weights_from(initial, path, task.model)
        # The initial model is validated first, and kept if no update improves it.
        task.starts_trained = True
        task.start_counts = True
        return task

    @classmethod
    def fit_data(cls, data: Data, initial: SiblingModel) -> Data:
        """Return the training data in the form that continues an initial model."""
        return data

    def arguments_of_data(self) -> dict[str, object]:
        """Return the arguments of the model that the training data decide."""
        return {}

    @abc.abstractmethod
    def make_batch(self, rows: np.ndarray, seed: list[int]) -> tuple:
        """Return the arrays of a batch.

        Args:
            rows: the rows of its examples.
            seed: the seed of its random numbers.
        """

    @abc.abstractmethod
    def make_step(self) -> Callable:
        """Return the training step of the compiled model.

        It is a function of a batch's arrays as tensors that returns values to log.
        """

    def compile(self, total_steps: int) -> None:
        """Compile the model, and then its step."""
        super().compile(total_steps)
        # Last, because a step on JAX holds the variables of the built optimiser.
        self.step = self.make_step()

    @property
    def steps(self) -> int:
        """Number of updates in an epoch."""
        return self.count // self.batch

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        batches = self.batches(epoch, start)
        numbers = range(start, self.steps)
        # One thread makes the batches: a generator cannot be advanced by several at
        # once.
        for batch in read_ahead(lambda _: next(batches), numbers, _AHEAD):
            yield self.step(*to_device(batch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple]:
        """Yield batches; each depends only on the seed, the epoch and its number."""
        seed = self.settings.seed
        B = self.batch
        # The whole order also from `start` on, so that a resumed epoch goes on in it.
        order = np.random.default_rng([seed, epoch]).permutation(self.count)
        for number in range(start, self.steps):
            rows = order[number * B : (number + 1) * B]
            # The numbers of batch 0 are the order's, see `CaptionBatches.batches`.
            yield self.make_batch(rows, [seed, epoch, number])


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

    See :func:`training.train.train` for the arguments after ``experiment``.

    Raises:
        ConfigError: the training would replace its initial model.
        DataError: the prepared data are absent or damaged.
        ModelFileError: the initial model is absent, damaged, or of other settings.
        TrainingError: there is nothing to resume, or an earlier run would be
            overwritten; or training has diverged; the last good checkpoint and model
            are kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    task = task_class.open(experiment, Path(work), Path(runs_folder))
    # A resumed training replaces no run.
    if not resume:
        task.require_kept([Path(runs_folder) / experiment.name])
    trainer = Trainer(task)
    # Last, as it may replace a run.
    with runs.lock_run(experiment, runs_folder):
        run = runs.open_run(experiment, runs_folder, resume, overwrite)
        return trainer.run(run, resume, progress)


def verify_task(
    task_class: type[SiblingTask],
    experiment: AnyExperiment,
    work: str | Path,
    runs_folder: str | Path,
    replaced: Iterable[Path],
) -> None:
    """Raise an error if an experiment cannot be trained anew; change no file.

    See :func:`training.train.verify` for the arguments after ``task_class``, and
    :func:`train_task` for the errors.
    """
    task = task_class.open(experiment, Path(work), Path(runs_folder))
    task.require_kept(replaced)
