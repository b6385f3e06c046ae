"""Train a reader of words."""

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

from show_attend_tell.config import runs
from show_attend_tell.config.reader import ReadExperiment
from show_attend_tell.data.characters import TOKENS
from show_attend_tell.data.words import WordData
from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.siblings.saved_model import read_model_of
from show_attend_tell.siblings.training import SiblingTask, run_task
from show_attend_tell.siblings.words.figures import reading_figure
from show_attend_tell.siblings.words.generation import Searcher, words_of
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.scoring import score_words
from show_attend_tell.siblings.words.updates import WordUpdates
from show_attend_tell.training.divergence import LossMonitor
from show_attend_tell.training.position import Summary
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation crops whose attention is shown in TensorBoard
DPI = 60  # resolution of those figures, so that a run stays small
_ROWS = 4096  # crops that are in memory together


def build_model(experiment: ReadExperiment) -> Reader:
    """Return the untrained model of an experiment."""
    return Reader(experiment.reader, experiment.training.seed)


class ReadTask(SiblingTask):
    """The training of a reader, see :class:`training.loop.Task`.

    Args:
        experiment: the settings.
        data: the training words.
        validation: the validation words.
        initial: file of the model to start from; None for random weights.
    """

    other = "other words"

    def __init__(
        self,
        experiment: ReadExperiment,
        data: WordData,
        validation: WordData,
        initial: Path | None = None,
    ):
        super().__init__(experiment, digest_of(data), build_model)
        self.validation = validation
        self.starts_trained = self.start_counts = initial is not None
        if initial is not None:
            copy_weights(initial, self.model)
        self.objective = WordUpdates(experiment, self.model, data)
        self._search, self._found = None, None

    def make_optimizer(self, total_steps: int):
        """Return the optimiser; its average starts at the weights of a given model."""
        optimizer = super().make_optimizer(total_steps)
        optimizer.average_from_start = self.starts_trained
        return optimizer

    def monitor_loss(self, first: float | None) -> LossMonitor:
        """Return the check of the cross entropy per character."""
        named = {"key": "character_loss", "noun": "loss per character"}
        warmup = self.settings.warmup_steps
        return LossMonitor(len(TOKENS), warmup, first, inputs="crops", **named)

    def validate(self, model: Reader, step: int) -> dict[str, float]:
        """Return the scores of greedy words on the validation crops, in percent.

        Args:
            model: the model, the same one in every call; its statistics of batch
                normalisation are measured anew.
            step: the number of updates before.
        """
        if step:  # an initial model has its own
            self.objective.estimate_statistics(model)
        self._search = self._search or Searcher(model)
        self._found = self._search(self.validation.images)
        scores = score_words(words_of(self._found), self.validation.words)
        return {
            "word_accuracy": scores.word_accuracy,
            "character_accuracy": scores.character_accuracy,
            "similarity": scores.similarity,
        }

    def show(self, log: CurveLog, model: Reader, step: int) -> None:
        """Log the words of the first validation crops, and their attention."""
        words = words_of(self._found)[:SHOWN]
        with log.writer.as_default(step=step):
            for row, word in enumerate(words):
                right = self.validation.words[row]
                tf.summary.text(f"word/{row}", f"{right}: {word}")
                if model.grid is None or not word:
                    continue
                alpha = self._found.alpha[row, 0, : len(word)]
                log_probs = self._found.word_log_probs[row, 0, : len(word)]
                figure = reading_figure(
                    self.validation.images[row],
                    word,
                    alpha.reshape(len(word), *model.grid),
                    np.exp(log_probs),
                )
                image = figure_to_array(figure, DPI)[None]
                tf.summary.image(f"attention/{row}", image)


def digest_of(data: WordData) -> str:
    """Return a digest of words and pixels, which takes a second per gigabyte."""
    digest = hashlib.sha256("\n".join(data.words).encode())
    for first in range(0, len(data), _ROWS):
        digest.update(np.ascontiguousarray(data.images[first : first + _ROWS]).data)
    return digest.hexdigest()


def copy_weights(path: Path, model: Reader) -> None:
    """Set the weights of a reader to those of a model file.

    Raises:
        ModelFileError: the file is absent, damaged, or of other settings.
    """
    source = load_reader(path)
    if source.settings != model.settings:
        raise ModelFileError(
            f"{path}: must have the settings of [reader] of the experiment; restore "
            "them, or start from another model"
        )
    model.set_weights(source.get_weights())


def load_reader(path: Path) -> Reader:
    """Load a reader from its model file.

    Raises:
        ModelFileError: the file is absent, damaged, or another model's.
    """
    fault = "is no reader of words; name the model of a run with task = 'read'"
    return read_model_of(path, lambda model: isinstance(model, Reader), fault)


def train(
    experiment: ReadExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train a reader and write its run folder.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, which is made if absent.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with the time left.

    Raises:
        WordsError: the prepared words are absent or damaged.
        ModelFileError: the initial model is absent, damaged, or of other settings.
        RunError: there is nothing to resume, or an earlier run would be overwritten.
        TrainingError: training has diverged; the last good checkpoint and model are
            kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    folder = Path(work) / experiment.data.name
    data, held_out = (WordData.open(folder, split) for split in ("train", "val"))
    source = experiment.training.init_from
    initial = runs.find_model(source, runs_folder) if source else None
    task = ReadTask(experiment, data, held_out, initial)
    return run_task(task, runs_folder, resume, overwrite, progress)
