"""Train a classifier of digits."""

import functools
from collections.abc import Callable

import numpy as np
from keras import ops

from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.siblings.common.training import (
    SiblingTask,
    train_task,
    verify_task,
)
from show_attend_tell.siblings.digits.class_folders import Pictures
from show_attend_tell.siblings.digits.data import (
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
from show_attend_tell.training.divergence import MonitoredLoss
from show_attend_tell.training.step import model_step
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation pictures whose glimpses are shown in TensorBoard
DPI = 60  # resolution of that figure, so that a run stays small


class ClassificationTask(SiblingTask[Digits | Pictures]):
    """The training of a classifier of digits, or of the user's pictures."""

    other = "other digits"
    models = CLASSIFIERS
    # Without staticmethod the function would be a method of the task.
    read_split = staticmethod(read_split)

    def __init__(
        self,
        experiment: DigitExperiment,
        data: Digits | Pictures,
        validation: Digits | Pictures,
    ):
        super().__init__(experiment, data, validation)
        self.monitored = MonitoredLoss(
            classes=len(data.names),
            key="cross_entropy",
            noun="cross entropy",
            inputs="pictures",
        )
        self.pictures = held_out_pictures(validation, experiment.data, "val")
        self._predictor: Predictor | None = None
        self._shown: Prediction | None = None  # of the last validation

    def make_step(self) -> Callable:
        """Return the step of pictures and labels."""

        def values_of(images, labels):
            pictures = ops.cast(images, "float32") / 255
            outputs = self.model(pictures, training=True)
            return self.model.losses_of(labels, outputs)

        return model_step(self.model, values_of, self.settings.jit_compile)

    def arguments_of_data(self) -> dict[str, object]:
        """Return the classes of the pictures, as arguments of the model."""
        names = self.data.names
        return {"classes": len(names), "names": names}

    def make_batch(self, rows: np.ndarray, seed: list[int]) -> Digits:
        """Return new pictures of digits, and their labels."""
        images = self.data.images
        labels = self.data.labels
        rng = np.random.default_rng(seed)
        pictures = make_pictures(images[rows], images, self.experiment.data, rng)
        return Digits(pictures, labels[rows])

    def validate(self, model, step: int) -> dict[str, float]:
        """Return accuracy and error in percent on the validation pictures.

        Of a model that stops also the mean number of glimpses, and the reward.
        """
        # The loop validates the same copy every time, so that its graphs serve all.
        if self._predictor is None:
            self._predictor = Predictor(model)
        predict = self._predictor
        images, labels = self.pictures
        seen = predict(images, predict.default_look)
        self._shown = seen
        error = seen.errors(labels)
        scores = {"accuracy": 100 - error, "error": error}
        if seen.glimpses is not None:
            scores["glimpses"] = float(seen.glimpses.mean())
            price = self.experiment.glimpse.price
            scores["reward"] = (1 - error / 100) - price * scores["glimpses"]
        if predict.default_look == "mean":
            scores["error_sampled"] = predict(images, "sampled").errors(labels)
        return scores

    def show(self, log: CurveLog, model, step: int) -> None:
        """Log the glimpses at the first validation pictures."""
        if not model.glimpses or self._shown is None:
            return
        first = self._shown.head(SHOWN)
        images = self.pictures.images[:SHOWN]
        glimpses = glimpses_of(model, images, first)
        figure = draw_glimpses(images, glimpses, named(model, first.classes))
        log.writer.image(step, "glimpses", figure_to_array(figure, DPI))


train = functools.partial(train_task, ClassificationTask)
verify = functools.partial(verify_task, ClassificationTask)
