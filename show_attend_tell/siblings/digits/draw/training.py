"""Train a model that generates digits."""

import functools
from collections.abc import Callable

import numpy as np
from keras import ops

from show_attend_tell.siblings.common.training import (
    SiblingTask,
    train_task,
    verify_task,
)
from show_attend_tell.siblings.digits.data import (
    Digits,
    binarise,
    binarise_fixed,
    held_out_binary,
    make_pictures,
    read_split,
)
from show_attend_tell.siblings.digits.draw.bound import Measurer, Sampler
from show_attend_tell.siblings.digits.draw.figures import canvas_strip, sample_grid
from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.settings import GenerationExperiment
from show_attend_tell.training.divergence import MonitoredLoss
from show_attend_tell.training.step import model_step
from show_attend_tell.training.tensorboard_log import CurveLog

SHOWN = 4  # validation pictures whose canvases are shown in TensorBoard
SAMPLES = 25  # generated pictures that are shown there
_SAMPLE_SEED = 0


class GenerationTask(SiblingTask[Digits]):
    """The training of a model that generates digits."""

    other = "other digits"
    models = GENERATORS
    read_split = staticmethod(read_split)
    # A bound in nats has no number of classes; a pixel has the two classes 0 and 1.
    monitored = MonitoredLoss(2, key="loss", noun="bound in nats", inputs="digits")

    def __init__(
        self, experiment: GenerationExperiment, data: Digits, validation: Digits
    ):
        super().__init__(experiment, data, validation)
        self.pictures = held_out_binary(validation, experiment.data, "val")
        self.dynamic = experiment.data.binarise == "dynamic"
        # "fixed" binarises all digits here, "dynamic" each batch in `make_batch`.
        self.images = data.images
        if not self.dynamic:
            self.images = binarise_fixed(data, "train").images
        self._measurer: Measurer | None = None
        self._sampler: Sampler | None = None

    def make_step(self) -> Callable:
        """Return the step of pictures."""

        def values_of(images, noise):
            pictures = ops.cast(images, "float32") / 255
            return self.model.losses_of(self.model.draw(pictures, noise))

        def noise_of(images):
            # Not `len`, which a tensor in a graph of TensorFlow does not have.
            return self.model.sample_noise(images.shape[0])

        compiled = self.settings.jit_compile
        return model_step(self.model, values_of, compiled, noise_of)

    def make_batch(self, rows: np.ndarray, seed: list[int]) -> tuple[np.ndarray]:
        """Return new binary pictures of digits, (B, H, H), 0 or 255."""
        rng = np.random.default_rng(seed)
        data = self.experiment.data
        pictures = make_pictures(self.images[rows], self.images, data, rng)
        if self.dynamic:
            # The fourth number separates the pixels' noise from the random places.
            pictures = binarise(pictures, np.random.default_rng([*seed, 1]))
        return (pictures,)

    def validate(self, model: Draw, step: int) -> dict[str, float]:
        """Return minus the bound on the validation pictures, and its terms in nats."""
        # The loop validates the same copy every time, so that one graph serves all.
        if self._measurer is None:
            self._measurer = Measurer(model)
        terms = self._measurer.bound(self.pictures)
        return {
            "bound": -float(terms.whole.mean()),
            "reconstruction": float(terms.reconstruction.mean()),
            "divergence": float(terms.divergence.sum(axis=1).mean()),
        }

    def show(self, log: CurveLog, model: Draw, step: int) -> None:
        """Log canvases of the first validation pictures, and generated pictures."""
        images = self.pictures[:SHOWN].astype(np.float32) / 255
        s = model.settings
        if self._sampler is None:  # one graph serves all, as in `validate`
            self._sampler = Sampler(model)
        # The same noise at every validation, so that the pictures can be compared.
        rng = np.random.default_rng(_SAMPLE_SEED)
        noise = rng.standard_normal((len(images), s.steps, s.latent), np.float32)
        outputs = model.draw(*map(ops.convert_to_tensor, (images, noise)))
        arrays = {name: ops.convert_to_numpy(x) for name, x in outputs.items()}
        drawn = {
            "canvas": canvas_strip(images, arrays, model),
            "samples": sample_grid(
                self._sampler(SAMPLES, _SAMPLE_SEED), model, columns=5, scale=2
            ),
        }
        for name, image in drawn.items():
            log.writer.image(step, name, np.asarray(image))


train = functools.partial(train_task, GenerationTask)
verify = functools.partial(verify_task, GenerationTask)
