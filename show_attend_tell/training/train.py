"""Train a captioner from prepared data, with checkpoints, validation and logs."""

import dataclasses
import functools
import hashlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
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
from show_attend_tell.models.convolutions.initial import assign_convolutions
from show_attend_tell.runtime.errors import RunError, TrainingError, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.progress import ProgressBar, progress_bar
from show_attend_tell.training.checkpoint import restore_checkpoint, save_checkpoint
from show_attend_tell.training.distillation import make_distillation
from show_attend_tell.training.divergence import CaptionMonitor, LossMonitor
from show_attend_tell.training.initial_model import InitialModel, vocabulary_of_run
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.optimizer import make_optimizer
from show_attend_tell.training.position import Position, Summary
from show_attend_tell.training.self_critical import SelfCritical
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.text_likelihood import TextLikelihood

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
        RunError, FeatureError, ManifestError, VocabularyError, ModelFileError:
            a required file is absent or does not match the experiment; the
            message is one line.
        TrainingError: training has diverged; the last good checkpoint and model are
            kept.
        KeyboardInterrupt: after the checkpoint was written, or in the first update.
    """
    with open_features(experiment, work) as reader:
        data, validation = load_splits(experiment, work, ("train", "val"), reader)
        vocabulary = Vocabulary.load(vocabulary_path(experiment, work))
        readers = [reader]
        text = experiment.training.objective == "text"
        if experiment.encoder.mirror and not text:
            readers.append(open_mirror(experiment, work, reader, data))
        try:
            source, start, prepared = experiment.training.init_from, None, vocabulary
            if resume:
                vocabulary = vocabulary_of_run(experiment, runs_folder, prepared)
            elif source:
                start = InitialModel.load(source, runs_folder)
                vocabulary = start.extend(prepared)
            teachers = [
                runs.find_model(one, runs_folder)
                for one in experiment.distillation.teachers
            ]
            given = (experiment, vocabulary, data, validation, readers, start)
            trainer = Trainer(*given, teachers)
            # Last, as it may replace a run, even the one that training starts from.
            with runs.lock_run(experiment, runs_folder):
                folder = runs.open_run(experiment, runs_folder, resume, overwrite)
                if vocabulary != prepared:
                    vocabulary.save(folder / runs.VOCABULARY)
                del data  # the training captions are encoded by now
                return trainer.run(folder, resume, progress)
        finally:
            for extra in readers[1:]:
                extra.close()


class Trainer:
    """One training: the model, its data and its position.

    Args:
        experiment: the settings.
        vocabulary: words of the model.
        data: the training photos.
        validation: the photos whose captions are scored.
        readers: readers of the features, see :func:`data.dataset.read_views`.
        start: the model to start from, or None.
        teachers: files of the models to distil.
    """

    def __init__(
        self,
        experiment: Experiment,
        vocabulary: Vocabulary,
        data: Split,
        validation: Split,
        readers: list[FeatureReader],
        start: InitialModel | None,
        teachers: Sequence[Path] = (),
    ):
        self.experiment = experiment
        self.validation, self.reader = validation, readers[0]
        self.position = Position(vocabulary=_digest(vocabulary))
        self._captions, self._latest = CaptionMonitor(), None
        settings = experiment.training
        self.model = self._build(vocabulary)
        encoder = assign_convolutions(self.model, experiment.encoder)
        if experiment.model.scale_annotations:
            deviation = measure_deviation(
                self.reader, data.rows, settings.seed, convert=self.model.convolve
            )
            self.model.set_annotation_scale(deviation)
        if start is not None:
            start.copy_to(self.model, data, encoder)
            attention = start.captioner.settings.attention
            # The score of an initial model with the other attention type must not
            # enter model selection.
            self.position.start_counts = attention == experiment.model.attention
        self.text, self.metric = None, settings.metric
        given = (experiment, self.model, data)
        if settings.objective == "text":
            self.text = TextLikelihood(*given, validation)
            self.objective, self.metric = self.text, self.text.METRIC
        elif settings.objective == "distil":
            self.objective = make_distillation(*given, readers, teachers)
        else:
            objective = SelfCritical if settings.objective == "cider" else Likelihood
            self.objective = objective(*given, readers)
        self.total_steps = settings.epochs * self.objective.steps
        layer = self.model.convolutions
        of_encoder = layer.trainable_variables if layer else ()
        optimizer = make_optimizer(settings, self.total_steps, of_encoder)
        self.model.compile(optimizer=optimizer, jit_compile=settings.jit_compile)
        optimizer.build(self.model.trainable_variables)

    @functools.cached_property
    def saved(self) -> Captioner:
        """The model that is validated and saved, a copy with the averaged weights."""
        copy = Captioner.from_config(self.model.get_config())
        for own, original in zip(copy.weights, self.model.weights, strict=True):
            own.trainable = original.trainable
        return copy

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
            seed=experiment.training.seed,
            convolutions=experiment.encoder.trainable_layers,
        )

    def run(self, folder: Path, resume: bool, progress: bool) -> Summary:
        """Train until the end in a run folder; see :func:`train`."""
        started, self.folder = time.monotonic(), folder
        if resume:
            self._restore()
        position, settings = self.position, self.experiment.training
        self.losses = LossMonitor(
            len(self.model.vocabulary), settings.warmup_steps, position.first_loss
        )
        self._written = position.step if resume else None
        bar = progress_bar(self.total_steps, "step", done=position.step, shown=progress)
        with bar, TrainingLog(self.folder, self.experiment, self.validation) as log:
            try:
                self._train(log, bar, validate=resume or bool(settings.init_from))
            except TrainingError as error:
                raise TrainingError(
                    f"{folder}: training has diverged: {error}; {self._kept()}; train "
                    "again with --overwrite and a training.learning_rate below "
                    f"{settings.learning_rate:g}"
                ) from None
        return Summary(
            folder=self.folder,
            model=self.folder / runs.MODEL,
            best=position.best,
            best_step=position.best_step,
            steps=position.step,
            seconds=time.monotonic() - started,
            stopped=position.stopped or "all epochs done",
            metric=self.metric,
        )

    def _restore(self) -> None:
        """Set the model, its optimiser and the position to the run's checkpoint."""
        path, digest = self.folder / runs.CHECKPOINT, self.position.vocabulary
        state = restore_checkpoint(path, self.model)
        try:
            position = TypeAdapter(Position).validate_python(state)
        except ValidationError:
            raise RunError(
                f"{path}: the checkpoint is damaged: its position is {quote(state)}; "
                "train without --resume"
            ) from None
        if position.vocabulary not in ("", digest):  # version 0.1.0 stored none
            raise RunError(
                f"{path}: the run was started with another vocabulary; prepare the "
                "data as they were, or replace the run with --overwrite"
            )
        steps, within = self.objective.steps, position.step_in_epoch
        if within > steps or position.step != position.epoch * steps + within:
            raise RunError(
                f"{path}: the run was started with other training data: update "
                f"{position.step} must be number {within} of epoch {position.epoch}. "
                f"Received: {steps} updates per epoch; prepare the data as they were, "
                "or replace the run with --overwrite"
            )
        position.vocabulary = digest
        self.position = position

    def _train(self, log: TrainingLog, bar: ProgressBar, validate: bool) -> None:
        """Train until the end; write a checkpoint if interrupted.

        Args:
            log: the log.
            bar: the progress bar.
            validate: whether to validate first: the initial model, or to finish what
                was interrupted.
        """
        position = self.position
        try:
            if validate:
                self._after_update(log, bar)
            while (
                position.epoch < self.experiment.training.epochs
                and not position.stopped
            ):
                self._epoch(log, bar)
        except KeyboardInterrupt:
            # The interrupt can arrive after an update was applied, before it was
            # counted.
            position.step = int(self.model.optimizer.iterations)
            if position.step <= 1 and self.losses.first is None is self._latest:
                raise  # the first update is repeated, as its loss is not known
            done = position.epoch * self.objective.steps
            position.step_in_epoch = position.step - done
            self._checkpoint()
            raise

    def _kept(self) -> str:
        """Describe what a training that has diverged leaves in its folder."""
        position = self.position
        checkpoint = f"that of update {self._written}"
        checkpoint = "none" if self._written is None else checkpoint
        model = f"that of update {position.best_step}" if position.best >= 0 else "none"
        return f"the last good checkpoint is {checkpoint}, the best model {model}"

    def _epoch(self, log: TrainingLog, bar: ProgressBar) -> None:
        position, graphs = self.position, self.objective.graphs
        start = position.epoch, position.step_in_epoch
        # Without a graph the bar shows "compiling", also as a line of a log file.
        bar.set_postfix_str("", refresh=not graphs)
        for values in self.objective.updates(*start):
            position.step += 1
            position.step_in_epoch += 1
            bar.update(compiling=self.objective.graphs > graphs)
            graphs = self.objective.graphs
            log.log_update(position.step, values, self.model.optimizer, bar)
            self._latest = position.step, values
            if self.losses.is_due(position.step):
                self._check_loss()
            self._after_update(log, bar)
            if position.stopped:
                return

    def _check_loss(self) -> None:
        if self._latest is not None:
            self.losses.check(*self._latest)
            self.position.first_loss = self.losses.first

    def _after_update(self, log: TrainingLog, bar: ProgressBar) -> None:
        """Write a checkpoint, validate and end the epoch where these are due."""
        position, settings = self.position, self.experiment.training
        ends = position.step_in_epoch == self.objective.steps
        validates = self._validation_due() and position.validated < position.step
        saves = position.step > 0 and position.step % settings.checkpoint_every == 0
        if ends or validates or saves:
            # Before validating, so that an error there loses no update.
            self._checkpoint()
        if validates:
            self._validate(log, bar)
        if ends:
            position.epoch, position.step_in_epoch = position.epoch + 1, 0
        if ends or validates:
            self._checkpoint()
        if ends or validates or saves:
            bar.exclude_pause()

    def _validation_due(self) -> bool:
        position, settings = self.position, self.experiment.training
        if not position.step:
            return bool(settings.init_from)
        if position.step == self.total_steps:
            return True
        if settings.validate_every:
            return position.step % settings.validate_every == 0
        return position.step_in_epoch == self.objective.steps

    def _checkpoint(self) -> None:
        """Write a checkpoint, unless training has diverged."""
        self._check_loss()
        state = dataclasses.asdict(self.position)
        save_checkpoint(self.folder / runs.CHECKPOINT, self.model, state)
        self._written = self.position.step

    def _validate(self, log: TrainingLog, bar: ProgressBar) -> None:
        """Score the model; keep it if it is the best so far."""
        position = self.position
        self._copy_weights()
        bar.set_postfix_str("validating", refresh=True)
        scores = self.text.validate(self.saved) if self.text else self._score(log)
        log.log_scores(position.step, scores)
        bar.write(
            f"epoch {position.step / self.objective.steps:.2f}, step {position.step}: "
            + ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        )
        if position.step or position.start_counts:
            self._keep_if_best(scores[self.metric], log)
        position.validated = position.step

    def _score(self, log: TrainingLog) -> dict[str, float]:
        """Return the scores of generated captions; log samples of them."""
        step = self.position.step
        scores, captions = validate(
            self.saved, self.reader, self.validation, self.experiment.decoding
        )
        self._captions(step, captions.values())
        log.log_samples(step, self.saved, self.reader)
        return scores

    def _keep_if_best(self, score: float, log: TrainingLog) -> None:
        position, patience = self.position, self.experiment.training.patience
        if score > position.best:
            log.log_embedding(self.saved)
            # First, so that a validation interrupted here is repeated.
            with atomic_path(self.folder / runs.MODEL) as temporary:
                self.saved.save(temporary)
            position.best, position.best_step = score, position.step
            position.without_gain = 0
        else:
            position.without_gain += 1
            if position.without_gain >= patience:
                position.stopped = f"no improvement in {patience} validations"

    def _copy_weights(self) -> None:
        pairs = zip(self.saved.weights, self.model.weights, strict=True)
        for copy, original in pairs:
            copy.assign(original)
        if self.position.step:
            variables = self.saved.trainable_variables
            self.model.optimizer.finalize_variable_values(variables)


def _digest(vocabulary: Vocabulary) -> str:
    return hashlib.sha256(json.dumps(vocabulary.words).encode()).hexdigest()
