"""Train a captioner from prepared data, with checkpoints, validation and logs."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import unused_settings
from show_attend_tell.config.settings import Experiment, experiment_to_toml
from show_attend_tell.data.dataset import FeatureViews, measure_deviation
from show_attend_tell.data.splits import (
    digest_of_splits,
    load_splits,
    load_vocabulary,
    open_features,
    open_mirror,
)
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.validation import validate
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.pretrained import model_path
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import TrainingError, plural
from show_attend_tell.runtime.untrusted import reading
from show_attend_tell.training.distillation import make_distillation
from show_attend_tell.training.divergence import (
    CaptionMonitor,
    MonitoredLoss,
    fault_of_metric,
)
from show_attend_tell.training.initial_model import copy_weights, extend_vocabulary
from show_attend_tell.training.loop import Summary, Task, Trainer
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.resident_features import feature_views
from show_attend_tell.training.self_critical import SelfCritical
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.workers import ALONE, Workers

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train an experiment and write its run folder.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, which is made if absent.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with the time left.

    Raises:
        ConfigError: the settings do not fit each other, or the training would replace
            a model that it reads.
        DataError, ModelFileError: a required file is absent or does not match the
            experiment.
        TrainingError: the run folder or its checkpoint does not match the experiment,
            or training has diverged; the last good checkpoint and model are kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    with contextlib.ExitStack() as stack:
        trainer = make_trainer(stack, experiment, work, runs_folder, resume)
        # Last, as it may replace a run.
        stack.enter_context(runs.lock_run(experiment, runs_folder))
        folder = open_run(trainer.task, work, runs_folder, resume, overwrite)
        return trainer.run(folder, resume, progress)


def verify(
    experiment: Experiment,
    work: str | Path,
    runs_folder: str | Path,
    replaced: Iterable[Path],
) -> None:
    """Raise an error if an experiment cannot be trained anew; change no file.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folders.
        replaced: folders of runs that will be replaced before.

    Raises:
        ConfigError, DataError, ModelFileError: see :func:`train`.
    """
    with contextlib.ExitStack() as stack:
        task = CaptionTask(stack, experiment, work, runs_folder, False, ALONE)
        task.require_kept(replaced)


def make_trainer(
    stack: contextlib.ExitStack,
    experiment: Experiment,
    work: str | Path,
    runs_folder: str | Path,
    resume: bool,
    workers: Workers = ALONE,
) -> Trainer:
    """Return the training of an experiment; read its files and change none.

    Args:
        stack: closes the readers of the features.
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        resume: whether it continues from the run's checkpoint.
        workers: the workers that train together.

    Raises:
        SetupError: worker 0 trains something else.
        ConfigError, DataError, ModelFileError: see :func:`train`.
    """
    task = CaptionTask(stack, experiment, work, runs_folder, resume, workers)
    if not resume:
        task.require_kept([Path(runs_folder) / experiment.name])
    trainer = Trainer(task, workers)
    # After all files are read and before anything is written.
    workers.require_same(task.identity())
    return trainer


def open_run(
    task: "CaptionTask",
    work: str | Path,
    runs_folder: str | Path,
    resume: bool,
    overwrite: bool,
) -> Path:
    """Open the run folder of a training, with its words if the data have others.

    Args:
        task: the training.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        resume: see :func:`train`.
        overwrite: see :func:`train`.

    Raises:
        TrainingError: see :func:`config.runs.open_run`.
    """
    folder = runs.open_run(task.experiment, runs_folder, resume, overwrite)
    vocabulary = task.model.vocabulary
    # A resumed run has these words even if the initial model is gone.
    if vocabulary != load_vocabulary(task.experiment, work):
        vocabulary.save(folder / runs.VOCABULARY)
    return folder


class _Initial(NamedTuple):
    """The trained model that a training starts from."""

    path: Path
    captioner: Captioner


class CaptionTask(Task):
    """The training of a captioner.

    ``stack`` closes the readers of the features; the other arguments are those of
    :func:`train`.
    """

    other = "another vocabulary"

    def __init__(
        self,
        stack: contextlib.ExitStack,
        experiment: Experiment,
        work: str | Path,
        runs_folder: str | Path,
        resume: bool,
        workers: Workers,
    ):
        super().__init__(experiment)
        self.starts_trained = bool(self.settings.init_from)
        # Prepared data, and warnings about what the settings make of them
        reader = stack.enter_context(open_features(experiment, work))
        self.reader = reader
        data, self.validation = load_splits(experiment, work, ("train", "val"), reader)
        self.data = data
        readers = [reader]
        self._watch = CaptionMonitor(self.validation.captions)
        if fault := fault_of_metric(self.metric, self.validation.captions):
            logger.warning("%s", fault)
        if unused := unused_settings(experiment):
            logger.warning(
                "%s: no effect with model.decoder = %r",
                ", ".join(unused),
                experiment.model.decoder,
            )
        if experiment.encoder.mirror:
            mirror = open_mirror(experiment, work, reader, data)
            stack.callback(mirror.close)
            readers.append(mirror)
        self.data_digests = self._digests(readers, runs_folder)
        # The words, which an initial model may extend
        vocabulary = load_vocabulary(experiment, work)
        initial = None
        if resume:  # the initial model may be gone, and is not needed
            file = Path(runs_folder) / experiment.name / runs.VOCABULARY
            vocabulary = Vocabulary.load(file) if file.is_file() else vocabulary
        elif self.starts_trained:
            path = model_path(self.settings.init_from, runs_folder)
            self.sources.append(("training.init_from", path))
            initial = _Initial(path, load_captioner(path))
            vocabulary = extend_vocabulary(path, initial.captioner, vocabulary)
        # The model, and what updates it
        self.digest = _digest(json.dumps(vocabulary.words))
        self.model = self._build(vocabulary)
        self.monitored = MonitoredLoss(classes=len(vocabulary))
        self._initialise(initial)
        views = feature_views(readers, data.rows)
        self.objective = self._make_objective(views, runs_folder, workers)

    def _make_objective(
        self, views: FeatureViews, runs_folder: str | Path, workers: Workers
    ) -> Likelihood | SelfCritical:
        """Return what applies the updates, see :mod:`show_attend_tell.training`."""
        experiment = self.experiment
        if self.settings.objective == "distil":
            teachers = self._teachers(runs_folder)
            self.sources += [("distillation.teachers", file) for file in teachers]
            return make_distillation(
                experiment, self.model, self.data, views, workers, teachers
            )
        if self.settings.objective == "cider":
            return SelfCritical(experiment, self.model, self.data, views, workers)
        return Likelihood(experiment, self.model, self.data, views, workers)

    def _teachers(self, runs_folder: str | Path) -> list[Path]:
        """Return the model files of the teachers of a distillation."""
        names = self.experiment.distillation.teachers
        return [model_path(name, runs_folder) for name in names]

    def _digests(self, readers, runs_folder: str | Path) -> dict[str, str]:
        """Return digests of everything that the updates and the validations read."""
        train_rows = self.data.rows
        rows = np.concatenate([train_rows, self.validation.rows])
        # Only training photos have mirror images.
        features = [self.reader.digest(rows)]
        features += [mirror.digest(train_rows) for mirror in readers[1:]]
        digests = {"features": "".join(features)}
        digests |= digest_of_splits([self.data, self.validation])
        if self.settings.objective == "distil":
            teachers = self._teachers(runs_folder)
            digests["teachers"] = "".join(map(_file_digest, teachers))
        return {name: _digest(text)[:16] for name, text in digests.items()}

    def _initialise(self, initial: _Initial | None) -> None:
        """Set the scale of the annotations and the weights of the initial model."""
        experiment = self.experiment
        model = self.model
        if experiment.model.scale_annotations:
            rows = self.data.rows
            seed = self.settings.seed
            # An initial model replaces this scale, below, by the one that it was
            # trained with.
            model.set_annotation_scale(measure_deviation(self.reader, rows, seed))
        if initial is not None:
            captions = itertools.chain.from_iterable(self.data.captions)
            counts = Counter(itertools.chain.from_iterable(captions))
            copy_weights(initial.path, model, counts, initial.captioner)
            # The score of an initial model with the other attention type must not
            # enter model selection.
            attention = initial.captioner.settings.attention
            self.start_counts = attention == experiment.model.attention

    def identity(self) -> list[str]:
        """Name the settings and the data, which must be the same on all workers."""
        encoder = json.dumps(self.reader.attributes["identity"], sort_keys=True)
        return [
            f"settings {_digest(experiment_to_toml(self.experiment))[:16]}",
            f"vocabulary {self.digest[:16]}",
            f"features of the encoder {_digest(encoder)[:16]}",
            f"{len(self.data.rows)} training photos",
            *(f"{name} {digest}" for name, digest in self.data_digests.items()),
        ]

    def _build(self, vocabulary: Vocabulary) -> Captioner:
        experiment = self.experiment
        identity = self.reader.attributes["identity"]
        return Captioner(
            vocabulary,
            experiment.model,
            annotation_width=self.reader.shape[2],
            grid=identity["grid"],
            label_smoothing=experiment.training.label_smoothing,
            doubly_stochastic=experiment.training.doubly_stochastic,
            encoder_identity=identity,
            decoding=dataclasses.asdict(experiment.decoding),
            hard=experiment.hard,
            transformer=experiment.transformer,
            seed=experiment.training.seed,
        )

    def open_log(self, folder: Path) -> TrainingLog:
        """Return the log of captions and attention."""
        return TrainingLog(folder, self.experiment, self.validation)

    def validate(self, model: Captioner, step: int) -> dict[str, float]:
        """Return the scores of generated captions."""
        scores, captions = validate(
            model, self.reader, self.validation, self.experiment.decoding
        )
        # Attention that never moves is no fault of a model without attention.
        attention = scores if self.experiment.model.attends else {}
        self._watch(step, captions.values(), attention)
        return scores

    def check_result(self, best_step: int, steps: int) -> None:
        """Log a warning if the saved model's captions are mostly the same."""
        if fault := self._watch.repetitions.get(best_step):
            logger.warning(
                "the saved model, of update %d: %s; it has learnt hardly anything of "
                "the photos in %s: train on more photos or for more training.epochs",
                best_step,
                fault,
                plural(steps, "update"),
            )

    def show(self, log: TrainingLog, model: Captioner, step: int) -> None:
        """Log captions and attention of a few validation photos, and word vectors."""
        log.log_samples(step, model, self.reader)
        log.log_embedding(model)


def _file_digest(path: Path) -> str:
    remedy = "train the teacher again"
    with reading(path, TrainingError, remedy), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
