"""Train a model that generates digits."""

import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from keras import ops

from show_attend_tell.config.siblings import GenerationExperiment
from show_attend_tell.data.digits import Digits
from show_attend_tell.siblings.draw.bound import Measurer, sample
from show_attend_tell.siblings.draw.data import (
    binarise,
    binarise_fixed,
    held_out_binary,
)
from show_attend_tell.siblings.draw.figures import canvas_strip, sample_grid
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.draw.task import build_model
from show_attend_tell.siblings.training import (
    DigitTask,
    PictureUpdates,
    compile_step,
    train_task,
)
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation pictures whose canvases are shown in TensorBoard
SAMPLES = 25  # generated pictures that are shown there
_SAMPLE_SEED = 0


class GenerationTask(DigitTask):
    """The training of a model that generates, see :class:`DigitTask`."""

    build_model = staticmethod(build_model)
    monitored = {"words": 2, "key": "loss", "noun": "bound in nats", "inputs": "digits"}

    def __init__(
        self, experiment: GenerationExperiment, digits: Digits, validation: Digits
    ):
        super().__init__(experiment, digits.digest())
        self.pictures = held_out_binary(validation, experiment.data, "val")
        self.objective = BinaryUpdates(experiment, self.model, digits)
        self._measurer = None

    def validate(self, model: Draw, step: int) -> dict[str, float]:
        """Return minus the bound on the validation pictures, and its terms in nats.

        Args:
            model: the model, the same model in every call.
            step: the number of updates before.
        """
        self._measurer = self._measurer or Measurer(model)
        terms = self._measurer.bound(self.pictures)
        return {
            "bound": -float(terms.whole.mean()),
            "reconstruction": float(terms.reconstruction.mean()),
            "divergence": float(terms.divergence.sum(axis=1).mean()),
        }

    def show(self, log: CurveLog, model: Draw, step: int) -> None:
        """Log canvases of the first validation pictures, and generated pictures."""
        images = self.pictures[:SHOWN].astype(np.float32) / 255
        s, rng = model.settings, np.random.default_rng(_SAMPLE_SEED)
        noise = rng.standard_normal((len(images), s.steps, s.latent), np.float32)
        outputs = model.draw(*map(ops.convert_to_tensor, (images, noise)))
        arrays = {name: ops.convert_to_numpy(x) for name, x in outputs.items()}
        drawn = {
            "canvas": canvas_strip(images, arrays, model),
            "samples": sample_grid(
                sample(model, SAMPLES, _SAMPLE_SEED), model, columns=5, scale=2
            ),
        }
        with log.writer.as_default(step=step):
            for name, image in drawn.items():
                tf.summary.image(name, np.asarray(image)[None])


class BinaryUpdates(PictureUpdates):
    """Train on every training digit once an epoch, in binary pictures.

    Args:
        experiment: the settings.
        model: a built model, which is compiled before the first update.
        digits: the training digits.
    """

    def __init__(self, experiment: GenerationExperiment, model: Draw, digits: Digits):
        fixed = experiment.data.binarise == "fixed"
        digits = binarise_fixed(digits, "train") if fixed else digits
        super().__init__(experiment, model, digits, compiled_step)

    def updates(self, epoch: int, start: int = 0) -> Iterator[dict]:
        """Apply the updates of an epoch from number `start` on; yield values to log."""
        for images in self.binary_batches(epoch, start):
            yield self.apply(tf.constant(images))

    def binary_batches(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """Yield batches (B, H, H), 0 or 255; they depend on seed, epoch and number."""
        seed = self.settings.seed
        for number, (images, _) in enumerate(self.batches(epoch, start), start):
            if self.data.binarise == "dynamic":
                # The fourth number separates these random numbers from the places'.
                images = binarise(
                    images, np.random.default_rng([seed, epoch, number, 1])
                )
            yield images


def compiled_step(model: Draw, jit_compile: bool):
    """Return the compiled training step of binary images (B, H, H) uint8."""

    def values_of(images, noise):
        return model.losses_of(model.draw(tf.cast(images, "float32") / 255, noise))

    update = compile_step(model, values_of, jit_compile)

    def step(images):
        # Outside XLA, which spends a fifth of the step on the noise on a CPU.
        return update(images, model.sample_noise(tf.shape(images)[0]))

    return tf.function(step, autograph=False)


train = functools.partial(train_task, GenerationTask)
