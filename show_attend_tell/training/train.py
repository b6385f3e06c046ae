"""Train a captioner from prepared data, with checkpoints, validation and logs."""

import dataclasses
import functools
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.dataset import measure_deviation
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.splits import (
    Split,
    folder_of,
    load_splits,
    open_features,
    open_mirror,
)
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.validation import validate
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import copy_weights
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.training import checkpoint
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.optimizer import make_optimizer
from show_attend_tell.training.self_critical import SelfCritical
from show_attend_tell.training.tensorboard_log import TrainingLog

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Summary:
    """What a training ended with.

    Attributes:
        folder: of the run. model: the best model's file.
        best: validation score that chose it. best_step: the update it was reached at.
        steps: updates in all. seconds: of this call.
        stopped: why training ended.
    """

    folder: Path
    model: Path
    best: float
    best_step: int
    steps: int
    seconds: float
    stopped: str


@dataclass
class Position:
    """Where a training stands; what a checkpoint holds besides the variables."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float = -1.0
    best_step: int = 0
    without_gain: int = 0
    validated: int = 0  # the update validated last
    stopped: str = ""


def train(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Train an experiment; its run folder receives all that comes of it.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: where the run folder lies or is made.
        resume: go on from the run's checkpoint.
        overwrite: replace an earlier run of the same name.
        progress: whether to show a bar with time left.

    Raises:
        RunError, FeatureError, ManifestError, VocabularyError, ModelFileError:
            something needed is absent or does not fit; the message is one line.
        KeyboardInterrupt: after the checkpoint was written.
    """
    with open_features(experiment, work) as reader:
        data, validation = load_splits(experiment, work, ("train", "val"), reader)
        vocabulary = Vocabulary.load(folder_of(experiment, work) / "vocabulary.json")
        readers = [reader]
        if experiment.encoder.mirror:
            readers.append(open_mirror(experiment, work, reader, data))
        try:
            source = experiment.training.init_from
            start = (
                runs.find_model(source, runs_folder) if source and not resume else None
            )
            trainer = Trainer(experiment, vocabulary, data, validation, readers, start)
            # Last, for it may replace a run, also the one that was started from.
            folder = runs.open_run(experiment, runs_folder, resume, overwrite)
            del data  # what training needs of its words is encoded
            return trainer.run(folder, resume, progress)
        finally:
            for extra in readers[1:]:
                extra.close()


class Trainer:
    """One training: the model, its data and where it stands."""

    def __init__(
        self,
        experiment: Experiment,
        vocabulary: Vocabulary,
        data: Split,
        validation: Split,
        readers: list[FeatureReader],
        start: Path | None,
    ):
        self.experiment = experiment
        self.validation, self.reader = validation, readers[0]
        settings = experiment.training
        self.model = self._build(vocabulary)
        if experiment.model.scale_annotations:
            deviation = measure_deviation(self.reader, data.rows, settings.seed)
            self.model.set_annotation_scale(deviation)
        # A start of the other attention is no result of this training.
        self.start_counts = False
        if start is not None:
            attention = copy_weights(start, self.model).settings.attention
            self.start_counts = attention == experiment.model.attention
        objective = SelfCritical if settings.objective == "cider" else Likelihood
        self.objective = objective(experiment, self.model, data, readers)
        self.total_steps = settings.epochs * self.objective.steps
        optimizer = make_optimizer(settings, self.total_steps)
        self.model.compile(optimizer=optimizer, jit_compile=settings.jit_compile)
        optimizer.build(self.model.trainable_variables)
        self.position = Position()

    @functools.cached_property
    def saved(self) -> Captioner:
        """What is validated and saved: a copy, so that averaged weights stay apart."""
        return Captioner.from_config(self.model.get_config())

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
        )

    def run(self, folder: Path, resume: bool, progress: bool) -> Summary:
        """Train until the end in a run folder; see :func:`train`."""
        started, self.folder = time.monotonic(), folder
        if resume:
            state = checkpoint.restore(self.folder / runs.CHECKPOINT, self.model)
            self.position = Position(**state)
        position, settings = self.position, self.experiment.training
        bar = progress_bar(self.total_steps, "step", done=position.step, shown=progress)
        with bar, TrainingLog(self.folder, self.experiment, self.validation) as log:
            try:
                if resume:
                    self._after_update(log, bar)  # what an interrupt left undone
                elif settings.init_from:
                    # Kept where it counts, so that training cannot end worse.
                    self._validate(log, bar, keep=self.start_counts)
                while position.epoch < settings.epochs and not position.stopped:
                    self._epoch(log, bar)
            except KeyboardInterrupt:
                # It comes as an update returns: taken, but not counted yet.
                position.step = int(self.model.optimizer.iterations)
                done = position.epoch * self.objective.steps
                position.step_in_epoch = position.step - done
                self._checkpoint()
                raise
        return Summary(
            folder=self.folder,
            model=self.folder / runs.MODEL,
            best=position.best,
            best_step=position.best_step,
            steps=position.step,
            seconds=time.monotonic() - started,
            stopped=position.stopped or "all epochs done",
        )

    def _epoch(self, log: TrainingLog, bar: tqdm) -> None:
        position = self.position
        start = position.epoch, position.step_in_epoch
        for values in self.objective.updates(*start):
            position.step += 1
            position.step_in_epoch += 1
            bar.update()
            log.step(position.step, values, self.model.optimizer, bar)
            self._after_update(log, bar)
            if position.stopped:
                return

    def _after_update(self, log: TrainingLog, bar: tqdm) -> None:
        """Validate, end the epoch and write a checkpoint, where these are due."""
        position, settings = self.position, self.experiment.training
        ends = position.step_in_epoch == self.objective.steps
        every = settings.validate_every
        due = position.step % every == 0 if every else ends
        due = due or position.step == self.total_steps
        validates = due and position.validated < position.step
        if validates:
            self._validate(log, bar)
        if ends:
            position.epoch, position.step_in_epoch = position.epoch + 1, 0
        if ends or validates or position.step % settings.checkpoint_every == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        state = dataclasses.asdict(self.position)
        checkpoint.save(self.folder / runs.CHECKPOINT, self.model, state)

    def _validate(self, log: TrainingLog, bar: tqdm, keep: bool = True) -> None:
        """Score written captions; `keep` the model if they are the best so far."""
        position, settings = self.position, self.experiment.training
        self._copy_weights()
        bar.set_postfix_str("validating", refresh=True)
        scores, _ = validate(
            self.saved, self.reader, self.validation, self.experiment.decoding
        )
        log.validation_scores(position.step, scores)
        log.samples(position.step, self.saved, self.reader)
        bar.write(
            f"epoch {position.step / self.objective.steps:.2f}, step {position.step}: "
            + ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        )
        if keep:
            self._keep_if_best(scores[settings.metric], log)
        position.validated = position.step

    def _keep_if_best(self, score: float, log: TrainingLog) -> None:
        position, patience = self.position, self.experiment.training.patience
        if score > position.best:
            log.embedding(self.saved)
            self._save_model()  # first, so that an interrupted one is done again
            position.best, position.best_step = score, position.step
            position.without_gain = 0
        else:
            position.without_gain += 1
            if position.without_gain >= patience:
                position.stopped = f"no gain in {patience} validations"

    def _copy_weights(self) -> None:
        pairs = zip(self.saved.weights, self.model.weights, strict=True)
        for copy, original in pairs:
            copy.assign(original)
        if self.experiment.training.average_decay and self.position.step:
            variables = self.saved.trainable_variables
            self.model.optimizer.finalize_variable_values(variables)

    def _save_model(self) -> None:
        path = self.folder / runs.MODEL
        temporary = path.with_name("saving-" + path.name)
        self.saved.save(temporary)
        temporary.replace(path)
