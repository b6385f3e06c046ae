"""Train a classifier of digits."""

import functools

import numpy as np
import tensorflow as tf

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.siblings.common.training import (
    SiblingTask,
    train_task,
)
from show_attend_tell.siblings.digits.class_folders import Pictures
from show_attend_tell.siblings.digits.data import (
    CLASSES,
    Digits,
    held_out_pictures,
    make_pictures,
    read_split,
)
from show_attend_tell.siblings.digits.ram.figures import (
    draw_glimpses,
    glimpses_of,
    named,
)
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Prediction, Predictor
from show_attend_tell.siblings.digits.settings import DigitExperiment
from show_attend_tell.training.step import model_step
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation pictures whose glimpses are shown in TensorBoard
DPI = 60  # resolution of that figure, so that a run stays small


class ClassificationTask(SiblingTask):
    """The training of a classifier of digits, or of the user's pictures."""

    other = "other digits"
    models = CLASSIFIERS
    read_split = staticmethod(read_split)
    monitored = {
        "words": CLASSES,
        "key": "cross_entropy",
        "noun": "cross entropy",
        "inputs": "pictures",
    }

    def __init__(
        self,
        experiment: DigitExperiment,
        digits: Digits | Pictures,
        validation: Digits | Pictures,
    ):
        names = digits.names
        super().__init__(experiment, digits, classes=len(names), names=names)
        self.monitored = self.monitored | {"words": len(names)}
        self.pictures = held_out_pictures(validation, experiment.data, "val")
        self.digits = digits

        def values_of(images, labels):
            pictures = tf.cast(images, "float32") / 255
            outputs = self.model(pictures, training=True)
            return self.model.losses_of(labels, outputs)

        self.step = model_step(self.model, values_of, self.settings.jit_compile)
        self._predictor = None
        self._shown = None

    def make_batch(self, rows: np.ndarray, seed: list[int]) -> Digits:
        """Return new pictures of digits, and their labels."""
        images = self.digits.images
        labels = self.digits.labels
        rng = np.random.default_rng(seed)
        pictures = make_pictures(images[rows], images, self.experiment.data, rng)
        return Digits(pictures, labels[rows])

    def validate(self, model, step: int) -> dict[str, float]:
        """Return accuracy and error in percent on the validation pictures.

        Of a model that stops also the mean number of glimpses, and the reward.
        """
        self._predictor = self._predictor or Predictor(model)
        images, labels = self.pictures
        self._shown = self._predictor(images, self._predictor.usual_look)
        error = self._shown.errors(labels)
        scores = {"accuracy": 100 - error, "error": error}
        if self._shown.glimpses is not None:
            scores["glimpses"] = float(self._shown.glimpses.mean())
            price = self.experiment.glimpse.price
            scores["reward"] = (1 - error / 100) - price * scores["glimpses"]
        if self._predictor.usual_look == "mean":
            scores["error_sampled"] = self._predictor(images, "sampled").errors(labels)
        return scores

    def show(self, log: CurveLog, model, step: int) -> None:
        """Log the glimpses at the first validation pictures."""
        if not model.glimpses:
            return
        first = Prediction(*(f if f is None else f[:SHOWN] for f in self._shown))
        images = self.pictures.images[:SHOWN]
        glimpses = glimpses_of(model, images, first)
        figure = draw_glimpses(images, glimpses, named(model, first.classes))
        log.writer.image(step, "glimpses", figure_to_array(figure, DPI))


train = functools.partial(train_task, ClassificationTask)
