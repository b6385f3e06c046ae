"""Train a captioner from prepared data, with checkpoints, validation and logs."""

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment, experiment_to_toml
from show_attend_tell.data.dataset import measure_deviation
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import (
    Split,
    load_splits,
    open_features,
    open_mirror,
    vocabulary_path,
)
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.validation import validate
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.initial_weights import assign_convolutions
from show_attend_tell.models.pretrained import model_path
from show_attend_tell.runtime.errors import RunError
from show_attend_tell.training.distillation import make_distillation
from show_attend_tell.training.divergence import CaptionMonitor, LossMonitor
from show_attend_tell.training.initial_model import (
    InitialModel,
    vocabulary_of_run,
)
from show_attend_tell.training.loop import Trainer
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.optimizer import make_optimizer
from show_attend_tell.training.position import Summary
from show_attend_tell.training.self_critical import SelfCritical
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.workers import ALONE, Workers, require_objective

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    workers: Workers = ALONE,
) -> Summary:
    """Train an experiment and write its run folder.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, which is made if absent.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with the time left.
        workers: the workers that train together, see :mod:`cluster.training`.

    Raises:
        ClusterError: another worker differs, has failed or has ended.
        RunError, FeatureError, ManifestError, VocabularyError, ModelFileError:
            a required file is absent or does not match the experiment; the
            message is one line.
        TrainingError: training has diverged; the last good checkpoint and model are
            kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    with contextlib.ExitStack() as stack:
        with workers.together():
            given = (experiment, work, runs_folder, resume, workers)
            trainer, added = make_trainer(stack, *given)
            folder = Path(runs_folder) / experiment.name
            if workers.is_chief:
                # Last, as it may replace a run, even the one that training starts from.
                stack.enter_context(runs.lock_run(experiment, runs_folder))
                runs.open_run(experiment, runs_folder, resume, overwrite)
        workers.require_same({**trainer.task.identity(), "--resume": str(resume)})
        with workers.together():
            prepare_folder(folder, added, workers)
        return trainer.run(folder, resume, progress)


def make_trainer(
    stack: contextlib.ExitStack,
    experiment: Experiment,
    work: str | Path,
    runs_folder: str | Path,
    resume: bool,
    workers: Workers,
) -> tuple[Trainer, Vocabulary | None]:
    """Return the trainer of a captioner, and its vocabulary if words were added.

    Args:
        stack: closes the readers of the features.
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        resume: whether the run is continued.
        workers: the workers.
    """
    require_objective(experiment.training, workers)
    reader = stack.enter_context(open_features(experiment, work))
    data, validation = load_splits(experiment, work, ("train", "val"), reader)
    vocabulary = Vocabulary.load(vocabulary_path(experiment, work))
    readers = [reader]
    if experiment.encoder.mirror:
        mirror = open_mirror(experiment, work, reader, data)
        stack.callback(mirror.close)
        readers.append(mirror)
    source, start, prepared = experiment.training.init_from, None, vocabulary
    if resume:
        vocabulary = vocabulary_of_run(experiment, runs_folder, prepared)
    elif source:
        start = InitialModel.load(source, runs_folder)
        vocabulary = start.extend(prepared)
    teachers = [
        model_path(one, runs_folder) for one in experiment.distillation.teachers
    ]
    given = (experiment, vocabulary, data, validation, readers, start)
    trainer = Trainer(CaptionTask(*given, teachers, workers), workers)
    return trainer, None if vocabulary == prepared else vocabulary


def prepare_folder(folder: Path, added: Vocabulary | None, workers: Workers) -> None:
    """Write the run's vocabulary; verify that this worker sees the run folder.

    Args:
        folder: the run folder.
        added: the run's vocabulary, if it is not that of the prepared data.
        workers: the workers.

    Raises:
        RunError: this worker does not see the folder.
    """
    if workers.is_chief and added is not None:
        added.save(folder / runs.VOCABULARY)
    if not (folder / runs.SETTINGS).is_file():
        raise RunError(
            f"{folder}: the run folder is not visible here; pass a folder to --runs "
            "that every worker mounts at the same path"
        )


class CaptionTask:
    """The training of a captioner, see :class:`training.loop.Task`.

    Args:
        experiment: the settings.
        vocabulary: words of the model.
        data: the training photos.
        validation: the photos whose captions are scored.
        readers: readers of the features, see :func:`data.dataset.read_views`.
        start: the model to start from, or None.
        teachers: files of the models to distil.
        workers: the workers that train together.
    """

    other = "another vocabulary"

    def __init__(
        self,
        experiment: Experiment,
        vocabulary: Vocabulary,
        data: Split,
        validation: Split,
        readers: list[FeatureReader],
        start: InitialModel | None,
        teachers: Sequence[Path] = (),
        workers: Workers = ALONE,
    ):
        self.experiment = experiment
        self.validation, self.reader = validation, readers[0]
        self.digest, self._captions = _digest(vocabulary), CaptionMonitor()
        self.settings = settings = experiment.training
        self.starts_trained = bool(settings.init_from)
        self.model = self._build(vocabulary)
        encoder = assign_convolutions(self.model, experiment.encoder)
        if experiment.model.scale_annotations:
            deviation = measure_deviation(
                self.reader, data.rows, settings.seed, convert=self.model.convolve
            )
            self.model.set_annotation_scale(deviation)
        self.start_counts = False
        if start is not None:
            start.copy_to(self.model, data, encoder)
            attention = start.captioner.settings.attention
            # The score of an initial model with the other attention type must not
            # enter model selection.
            self.start_counts = attention == experiment.model.attention
        self.metric = settings.metric
        given = (experiment, self.model, data)
        if settings.objective == "distil":
            self.objective = make_distillation(*given, readers, teachers)
        else:
            objective = SelfCritical if settings.objective == "cider" else Likelihood
            self.objective = objective(*given, readers, workers=workers)
        if self.model.hard_attention is not None:
            self.model.hard_attention.share_batch(*workers.part)
        self._photos = len(data.rows)

    def identity(self) -> dict[str, str]:
        """Return what must be the same on all workers, by name."""
        identity = json.dumps(self.reader.attributes["identity"], sort_keys=True)
        settings = experiment_to_toml(self.experiment)
        return {
            "settings": _short_digest(settings),
            "vocabulary": self.digest[:16],
            "encoder of the features": _short_digest(identity),
            "training data": f"{self._photos} photos",
        }

    def _build(self, vocabulary: Vocabulary) -> Captioner:
        experiment, identity = self.experiment, self.reader.attributes["identity"]
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
            convolutions=experiment.encoder.trainable_layers,
        )

    def compile(self, total_steps: int) -> None:
        """Compile the captioner with the optimiser of the settings."""
        layer = self.model.convolutions
        of_encoder = layer.trainable_variables if layer else ()
        optimizer = make_optimizer(self.settings, total_steps, of_encoder)
        self.model.compile(optimizer=optimizer, jit_compile=self.settings.jit_compile)
        optimizer.build(self.model.trainable_variables)

    def copy_model(self) -> Captioner:
        """Return another captioner of the same settings."""
        return Captioner.from_config(self.model.get_config())

    def monitor_loss(self, first: float | None) -> LossMonitor:
        """Return the check of the loss per word."""
        words, warmup = len(self.model.vocabulary), self.settings.warmup_steps
        return LossMonitor(words, warmup, first)

    def open_log(self, folder: Path) -> TrainingLog:
        """Return the log of captions and attention."""
        return TrainingLog(folder, self.experiment, self.validation)

    def validate(self, model: Captioner, step: int) -> dict[str, float]:
        """Return the scores of generated captions."""
        scores, captions = validate(
            model, self.reader, self.validation, self.experiment.decoding
        )
        self._captions(step, captions.values())
        return scores

    def show(self, log: TrainingLog, model: Captioner, step: int) -> None:
        """Log captions and attention of a few validation photos."""
        log.log_samples(step, model, self.reader)

    def show_best(self, log: TrainingLog, model: Captioner) -> None:
        """Write the word vectors for the projector."""
        log.log_embedding(model)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(vocabulary: Vocabulary) -> str:
    return hashlib.sha256(json.dumps(vocabulary.words).encode()).hexdigest()
