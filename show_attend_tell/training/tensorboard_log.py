"""Write a training's curves, samples, histograms and embedding for TensorBoard."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.plugins import projector
from tqdm import tqdm

from show_attend_tell.config.captioner import unread_tables
from show_attend_tell.config.experiments import nearest_shipped
from show_attend_tell.config.settings import (
    AnyExperiment,
    Experiment,
    experiment_to_toml,
)
from show_attend_tell.data.features import Features
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import load_photo, to_view
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL
from show_attend_tell.evaluation.validation import attention_statistics, best_words
from show_attend_tell.inference.visualization.attention_figure import (
    attention_figure,
    figure_to_array,
)
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import PhotoError
from show_attend_tell.runtime.files import atomic_path, atomic_write
from show_attend_tell.training.divergence import CHECK_INTERVAL
from show_attend_tell.training.event_log import PATTERN, EventWriter

logger = logging.getLogger(__name__)

SAMPLES = 4  # validation photos whose captions and attention are shown
MEASURED = 64  # validation photos whose attention goes into the histograms
VIEW = 256  # pixels of the longest side of a photo in a panel
DPI = 75  # resolution of the panels, so that a run stays small
WORDS = 1000  # words in the projector, so that a run stays small
_LONGEST_CHANGES = 200  # characters
_VECTORS = "embedding.tsv"
_NAMES = "embedding-words.tsv"


class CurveLog:
    """Write the curves and scores of any training; a context manager.

    Args:
        folder: the run folder.
        experiment: the settings, logged as text.
    """

    def __init__(self, folder: Path, experiment: AnyExperiment):
        self.folder = folder
        self.experiment = experiment
        # Without a chart, as the value is always 0.
        without_penalty = getattr(experiment.training, "doubly_stochastic", None) == 0
        self.constant = {"attention_loss"} if without_penalty else set()
        resumed = any(folder.glob(PATTERN))
        self.writer = EventWriter(folder)
        if resumed:  # the settings are in the first file; step 0 would be a step back
            return
        # Four spaces make a block of code in Markdown.
        text = "    " + experiment_to_toml(experiment).replace("\n", "\n    ")
        self.writer.text(0, "settings", text)
        self.writer.settings(0, hyperparameters(experiment), experiment.name)

    def __enter__(self) -> "CurveLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()

    def log_update(self, step: int, values: dict, optimizer, bar: tqdm) -> None:
        """Log losses, learning rate and gradient norm at the checks of the loss."""
        if step % CHECK_INTERVAL:
            return
        bar.set_postfix_str(f"loss {float(values['loss']):.2f}", refresh=False)
        curves = {
            f"train/{name}": float(value)
            for name, value in values.items()
            if name not in self.constant
        }
        curves["train/learning_rate"] = float(np.asarray(optimizer.learning_rate))
        curves["train/gradient_norm"] = float(np.asarray(optimizer.gradient_norm))
        self.writer.scalars(step, curves)

    def log_scores(self, step: int, scores: dict[str, float]) -> None:
        """Log the scores of a validation."""
        curves = {f"validation/{name}": value for name, value in scores.items()}
        self.writer.scalars(step, curves)


class TrainingLog(CurveLog):
    """Write a captioner's curves, scores, sample captions and histograms.

    ``validation`` is the split whose first photos are shown.
    """

    def __init__(self, folder: Path, experiment: Experiment, validation: Split):
        super().__init__(folder, experiment)
        self.experiment: Experiment = experiment
        self.validation = validation
        self._warned_of_photos = False

    def log_samples(self, step: int, model: Captioner, reader: Features) -> None:
        """Log captions of the first validation photos, and their attention as figures.

        A figure needs the photo's file, which training does without: where it cannot
        be read, a warning is logged once and the figure is left out. The first
        :data:`MEASURED` photos give the histograms of attention's entropy, of beta and
        of how evenly locations are covered.
        """
        decoding = self.experiment.decoding
        result = model.generate(
            reader.read(self.validation.rows[:MEASURED]),
            dataclasses.replace(decoding, method="greedy"),
        )
        for name, values in attention_statistics(result).items():
            self.writer.histogram(step, f"attention_spread/{name}", values)
        for k, words in enumerate(best_words(model, result)[:SAMPLES]):
            photo = self.validation.photos[k]
            T = len(words)
            self.writer.text(step, f"caption/{k}", f"{photo.id}: {' '.join(words)}")
            view = self._view(photo)
            if view is None:
                continue
            figure = attention_figure(
                view,
                words,
                result.alpha[k, 0, :T].reshape(T, *model.grid),
                beta=result.beta[k, 0, :T],
                probabilities=np.exp(result.word_log_probs[k, 0, :T]),
                locations=result.locations[k, 0, :T],
            )
            pixels = figure_to_array(figure, DPI)
            self.writer.image(step, f"attention/{k}", pixels)

    def _view(self, photo: Photo) -> np.ndarray | None:
        """Return the part of a photo that the encoder sees, None if unreadable."""
        encoder = self.experiment.encoder
        try:
            image = load_photo(photo.path)
        except PhotoError as error:
            if not self._warned_of_photos:
                logger.warning(
                    "%s; TensorBoard shows attention figures only of photos that can "
                    "be read, training continues",
                    error,
                )
            self._warned_of_photos = True
            return None
        return to_view(image, encoder.image_size, encoder.resize, VIEW)

    def log_embedding(self, model: Captioner) -> None:
        """Write the vectors of the first :data:`WORDS` words for the projector.

        Prepared words are in the order of their frequency. The words of an initial
        model come first, in its order, and new ones follow.
        """
        chosen = np.s_[len(SPECIAL) : len(SPECIAL) + WORDS]
        vectors = np.asarray(model.decoder.embedding)[chosen]  # (K, m)
        with atomic_path(self.folder / _VECTORS) as temporary:
            np.savetxt(temporary, vectors, fmt="%.3g", delimiter="\t")
        names = "".join(f"{word}\n" for word in model.vocabulary.words[chosen])
        atomic_write(self.folder / _NAMES, names)
        panel = projector.ProjectorConfig()
        panel.embeddings.add(
            tensor_name="word embedding", tensor_path=_VECTORS, metadata_path=_NAMES
        )
        atomic_write(self.folder / "projector_config.pbtxt", str(panel))


def hyperparameters(experiment: Any) -> dict[str, bool | int | float | str]:
    """Return ``changed`` and the settings in use, table.key -> value.

    TensorBoard shows five columns, first those that differ among the runs, for which
    every run must have them, then by name: ``changed`` comes before the tables.
    """
    unused: set[str] = set()
    if experiment.task == "caption":
        if experiment.model.attention != "hard":
            unused.add("hard")
        if experiment.training.objective != "distil":
            unused.add("distillation")
        unused |= unread_tables(experiment.model.decoder).keys()
    values: dict[str, bool | int | float | str] = {"changed": _changes(experiment)}
    for table in dataclasses.fields(experiment):
        settings = getattr(experiment, table.name)
        if dataclasses.is_dataclass(settings) and table.name not in unused:
            for field in dataclasses.fields(settings):
                value = getattr(settings, field.name)
                # HParams takes only values of these types.
                if isinstance(value, bool | int | float | str):
                    values[f"{table.name}.{field.name}"] = value
    return values


def _changes(experiment: Any) -> str:
    """Return what differs from the nearest shipped experiment, after its name."""
    name, changes = nearest_shipped(experiment)
    listed = [f"{key} = {value}" for key, value in changes.items()]
    return ", ".join([name, *listed])[:_LONGEST_CHANGES]
