"""What TensorBoard shows of a training."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams
from tqdm import tqdm

from show_attend_tell.config import settings as config
from show_attend_tell.data import preprocessing as photos
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.splits import Split
from show_attend_tell.evaluation import attention_statistics
from show_attend_tell.evaluation.attention_health import AttentionWatch
from show_attend_tell.evaluation.validation import best_words
from show_attend_tell.inference.attention_figure import (
    attention_figure,
    figure_to_array,
)
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.projector import write_embedding

EVERY = 20  # updates between two points of a curve
SAMPLES = 4  # validation photos drawn with their attention
MEASURED = 64  # validation photos whose attention goes into the histograms
VIEW = 256  # pixels of the longest side of a photo in a panel
DPI = 75  # of the panels, so that a run stays small


class TrainingLog:
    """Writes curves, scores, sample captions and histograms; a context manager.

    Args:
        folder: of the run.
        experiment: its settings, shown as text.
        validation: the split whose first photos are drawn.
    """

    def __init__(self, folder: Path, experiment: config.Experiment, validation: Split):
        self.experiment, self.validation = experiment, validation
        self.folder, self.watch = folder, AttentionWatch()
        self.writer = tf.summary.create_file_writer(str(folder))
        with self.writer.as_default(step=0):
            text = "    " + config.dump(experiment).replace("\n", "\n    ")
            tf.summary.text("settings", text)
            hparams.hparams(table_row(experiment), trial_id=experiment.name)

    def __enter__(self) -> "TrainingLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()

    def step(self, step: int, values: dict, optimizer, bar: tqdm) -> None:
        """Log losses, rate and gradient norm of one update now and then."""
        if step % EVERY:
            return
        bar.set_postfix_str(f"loss {float(values['loss']):.2f}", refresh=False)
        with self.writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"train/{name}", value)
            rate = np.asarray(optimizer.learning_rate)
            tf.summary.scalar("train/learning_rate", float(rate))
            norm = np.asarray(optimizer.gradient_norm)
            tf.summary.scalar("train/gradient_norm", float(norm))

    def validation_scores(self, step: int, scores: dict[str, float]) -> None:
        """Log the scores of generated captions; warn once if attention has died."""
        with self.writer.as_default(step=step):
            for name, value in scores.items():
                tf.summary.scalar(f"validation/{name}", value)
        self.watch(scores)

    def _view(self, photo: Photo) -> np.ndarray:
        """Return what the encoder saw of a photo."""
        encoder = self.experiment.encoder
        image = photos.load_photo(photo.path)
        return photos.to_view(image, encoder.image_size, encoder.resize, VIEW)

    def samples(self, step: int, model: Captioner, reader: FeatureReader) -> None:
        """Write captions of the first validation photos; draw the very first.

        All of them give the histograms of attention's entropy, of beta and of how
        evenly locations are covered.
        """
        decoding = self.experiment.decoding
        result = model.generate(
            reader.read(self.validation.rows[:MEASURED]),
            dataclasses.replace(decoding, method="greedy"),
        )
        with self.writer.as_default(step=step):
            for name, values in attention_statistics.of_captions(result).items():
                tf.summary.histogram(f"attention_spread/{name}", values)
            for k, words in enumerate(best_words(model, result)[:SAMPLES]):
                photo, T = self.validation.photos[k], len(words)
                figure = attention_figure(
                    self._view(photo),
                    words,
                    result.alpha[k, 0, :T].reshape(T, *model.grid),
                    beta=result.beta[k, 0, :T],
                    probabilities=np.exp(result.word_log_probs[k, 0, :T]),
                    locations=result.locations[k, 0, :T],
                )
                tf.summary.text(f"caption/{k}", f"{photo.id}: {' '.join(words)}")
                tf.summary.image(f"attention/{k}", figure_to_array(figure, DPI)[None])

    def embedding(self, model: Captioner) -> None:
        """Write the words' vectors for the projector."""
        write_embedding(self.folder, model.decoder.embedding, model.vocabulary)


def table_row(experiment: config.Experiment) -> dict[str, bool | int | float | str]:
    """Return the settings by which runs are compared, ``table.key`` -> value."""
    tables = config.to_dict(experiment)
    compared = {
        "data": ("name",),
        "encoder": ("network", "layer"),
        "model": tables["model"],
        "training": tables["training"],
    }
    return {
        f"{table}.{key}": tables[table][key]
        for table, keys in compared.items()
        for key in keys
        if isinstance(tables[table][key], bool | int | float | str)
    }
