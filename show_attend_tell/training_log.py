"""What TensorBoard shows of a training."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image
from tqdm import tqdm

from show_attend_tell import config, photos
from show_attend_tell.attention_health import AttentionWatch
from show_attend_tell.captioner import Captioner
from show_attend_tell.features import FeatureReader
from show_attend_tell.manifest import Photo
from show_attend_tell.prepared import Split
from show_attend_tell.validation import best_words
from show_attend_tell.visualize import attention_figure, figure_to_array

EVERY = 20  # updates between two points of a curve
SAMPLES = 4  # validation photos drawn with their attention


class TrainingLog:
    """Writes curves, validation scores and sample captions; a context manager.

    Args:
        folder: of the run.
        experiment: its settings, shown as text.
        validation: the split whose first photos are drawn.
    """

    def __init__(self, folder: Path, experiment: config.Experiment, validation: Split):
        self.experiment, self.validation = experiment, validation
        self.watch = AttentionWatch()
        self.writer = tf.summary.create_file_writer(str(folder))
        with self.writer.as_default(step=0):
            text = "    " + config.dump(experiment).replace("\n", "\n    ")
            tf.summary.text("settings", text)

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

    def _square(self, photo: Photo) -> Image.Image:
        """Return what the encoder saw of a photo."""
        encoder = self.experiment.encoder
        image = photos.load_photo(photo.path)
        return photos.to_square(image, encoder.image_size, encoder.resize)

    def samples(self, step: int, model: Captioner, reader: FeatureReader) -> None:
        """Draw the first validation photos with caption and attention."""
        decoding = self.experiment.decoding
        rows = self.validation.rows[:SAMPLES]
        result = model.generate(
            reader.read(rows),
            method="greedy",
            max_words=decoding.max_words,
            locations=decoding.locations,
            batch_size=decoding.batch_size,
        )
        sentences = best_words(model, result)
        with self.writer.as_default(step=step):
            for k, words in enumerate(sentences):
                photo = self.validation.photos[k]
                figure = attention_figure(
                    self._square(photo),
                    words,
                    result.alpha[k, 0, : len(words)],
                    model.grid,
                    beta=result.beta[k, 0, : len(words)],
                    probabilities=np.exp(result.word_log_probs[k, 0, : len(words)]),
                )
                tf.summary.text(f"caption/{k}", f"{photo.id}: {' '.join(words)}")
                tf.summary.image(f"attention/{k}", figure_to_array(figure)[None])
