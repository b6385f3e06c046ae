"""Classify many pictures with a trained model, at chosen or sampled places."""

import functools
from typing import Literal, NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.runtime.backend import compiled
from show_attend_tell.siblings.digits.classifier import DigitClassifier
from show_attend_tell.siblings.digits.ram.model import PlaceNoise, RecurrentAttention

BATCH = 500  # pictures classified together
Look = Literal["mean", "sampled", "random"]


class Prediction(NamedTuple):
    """Classes of pictures, and the places that the model saw."""

    probabilities: np.ndarray  # (N, classes)
    locations: np.ndarray | None  # (N, T, 2), None for a classifier of whole pictures
    means: np.ndarray | None  # (N, D, 2), None where no policy chose the places
    steps: np.ndarray | None = None  # (N, T, classes), probabilities after each glimpse
    zooms: np.ndarray | None = None  # (N, T), None where no policy chose them
    glimpses: np.ndarray | None = None  # (N,), how many it took; None if always T

    @property
    def classes(self) -> np.ndarray:
        """The most likely class of each picture, (N,)."""
        return self.probabilities.argmax(-1)

    def head(self, count: int) -> "Prediction":
        """Return the predictions of the first pictures."""
        return Prediction._make(None if f is None else f[:count] for f in self)

    def errors(self, labels: np.ndarray) -> float:
        """Return the error in percent for labels (N,)."""
        return 100 * float(np.mean(self.classes != labels))


class Predictor:
    """A classifier with its compiled functions; classify pictures by calling it.

    The weights of the model may change between calls.
    """

    def __init__(self, model: DigitClassifier):
        self.model = model
        self.looks = isinstance(model, RecurrentAttention)
        # Two graphs, because the model branches on `at_random` in Python.
        self._policy = compiled(self._classify, model)
        at_random = functools.partial(self._classify, at_random=True)
        self._random = compiled(at_random, model)

    @property
    def default_look(self) -> Look | None:
        """How the model chooses places by its settings; None if it has no places."""
        if not self.looks:
            return None
        return "random" if self.model.settings.locations == "random" else "mean"

    def __call__(
        self, images: np.ndarray, look: Look | None = "mean", seed: int = 0
    ) -> Prediction:
        """Return the classes of pictures, and what the model saw.

        Args:
            images: (N, H, H) uint8.
            look: places after the first place: the policy's ``mean``, or ``sampled``
                by the policy, or ``random``, uniform over the picture; ignored by a
                model without places. ``sampled`` also samples zooms and stops, else
                zooms are means, and the model stops where that is more likely.
            seed: seed of the first places and of samples.
        """
        rng = np.random.default_rng([seed, 0])
        parts = [
            self._run(images[first : first + BATCH], look, rng)
            for first in range(0, len(images), BATCH)
        ]
        fields = zip(*parts, strict=True)
        return Prediction._make(
            None if f[0] is None else np.concatenate(f) for f in fields
        )

    def _run(self, images: np.ndarray, look: Look | None, rng: np.random.Generator):
        """Return the fields of the predictions of a batch."""
        function = self._random if look == "random" and self.looks else self._policy
        noise = self._noise(len(images), look, rng) if self.looks else ()
        outputs = function(*map(ops.convert_to_tensor, (images, *noise)))
        probabilities = ops.convert_to_numpy(ops.softmax(outputs["logits"]))
        if "step_logits" in outputs:
            outputs["steps"] = ops.softmax(outputs.pop("step_logits"))
        if "glimpses" in outputs:
            outputs["glimpses"] = ops.cast(outputs["glimpses"], "int32")
        return probabilities, *(
            ops.convert_to_numpy(outputs[name]) if name in outputs else None
            for name in ("locations", "means", "steps", "zooms", "glimpses")
        )

    def _noise(self, N: int, look: Look | None, rng: np.random.Generator) -> PlaceNoise:
        """Return the random numbers of N pictures."""
        s = self.model.settings
        T = s.glimpses
        first = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
        steps = np.zeros((N, T, 2), np.float32)
        zoom = np.zeros((N, T), np.float32)
        stop = np.full((N, T), 0.5, np.float32)
        if look == "random":
            steps = rng.uniform(-1, 1, (N, T, 2)).astype(np.float32)
        if look == "sampled":
            steps = rng.standard_normal((N, T, 2), np.float32)
            # Nothing more is drawn for other models, whose places stay the same.
            if s.zoom == "learned":
                zoom = rng.standard_normal((N, T), np.float32)
            if s.stop == "learned":
                stop = rng.random((N, T), np.float32)
        return PlaceNoise(first, steps, zoom, stop)

    def _classify(self, images, *noise, at_random=False):
        images = ops.cast(images, "float32") / 255
        if not noise:
            return self.model(images)
        return self.model.look(images, PlaceNoise(*noise), at_random)
