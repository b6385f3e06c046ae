"""Measure bounds of -log p(x) with a trained model, and sample from it."""

from typing import NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.runtime.backend import compiled
from show_attend_tell.siblings.digits.draw.model import Draw

BATCH = 500  # pictures drawn together


class Bound(NamedTuple):
    """Terms of the bound of each picture, in nats."""

    reconstruction: np.ndarray  # L^x, (N,)
    divergence: np.ndarray  # L^z of each step, (N, T)

    @property
    def whole(self) -> np.ndarray:
        """L, (N,)."""
        return self.reconstruction + self.divergence.sum(axis=1)


class Measurer:
    """A model with its compiled function; its weights may change between calls."""

    def __init__(self, model: Draw):
        self.model = model
        self._draw = compiled(self._terms, model, xla=False)

    def _terms(self, images, noise):
        outputs = self.model.draw(ops.cast(images, "float32") / 255, noise)
        return [outputs[name] for name in ("l_x", "l_z", "log_ratio")]

    def _run(self, images: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        s = self.model.settings
        # From NumPy, so that every backend measures with the same samples.
        noise = rng.standard_normal((len(images), s.steps, s.latent), np.float32)
        terms = self._draw(*map(ops.convert_to_tensor, (images, noise)))
        # In float64, because means over many pictures and log-sums follow.
        return [ops.convert_to_numpy(x).astype(np.float64) for x in terms]

    def bound(self, images: np.ndarray, seed: int = 0) -> Bound:
        """Return the terms of the bound, from one sample of z for each picture.

        The pictures are (N, H, W) uint8; the seed decides the samples.
        """
        rng = np.random.default_rng(seed)
        parts = [
            self._run(images[first : first + BATCH], rng)[:2]
            for first in range(0, len(images), BATCH)
        ]
        return Bound(*map(np.concatenate, zip(*parts, strict=True)))

    def weighted_bound(
        self, images: np.ndarray, samples: int, seed: int = 0
    ) -> np.ndarray:
        """Return the importance-weighted bound of each picture, in nats; (N,).

        It is -log 1/K sum_k p(x, z_k) / q(z_k | x) for K samples z_k of q, Eq. (8) of
        Burda et al., arXiv:1509.00519. Its expectation falls with K, from the
        expectation of L to -log p(x). With the closed form of L^z in place of the
        sampled ratio, the result would not be a bound. ``samples`` is K.
        """
        rng = np.random.default_rng(seed)
        bounds = []
        # K samples of a picture are K rows of one call.
        together = max(1, BATCH // samples)
        for first in range(0, len(images), together):
            batch = images[first : first + together]
            # (n, H, W) -> (n K, H, W) -> log weights (n, K)
            l_x, _, log_ratio = self._run(np.repeat(batch, samples, axis=0), rng)
            logs = -(l_x + log_ratio.sum(axis=1)).reshape(len(batch), samples)
            # A log-sum-exp: exp(logs) itself is 0 in float64 below -745 nats.
            bounds.append(np.log(samples) - np.logaddexp.reduce(logs, axis=1))
        return np.concatenate(bounds)


class Sampler:
    """A trained model with its compiled function; draw pictures by calling it."""

    def __init__(self, model: Draw):
        self.model = model
        self._generate = compiled(model.generate, model, xla=False)

    def __call__(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Return the outputs of :meth:`Draw.generate`; the seed decides z."""
        s = self.model.settings
        rng = np.random.default_rng(seed)
        parts = []
        for first in range(0, count, BATCH):
            rows = min(BATCH, count - first)
            # Picture by picture from one generator: more pictures begin with the same
            # ones.
            noise = rng.standard_normal((rows, s.steps, s.latent), np.float32)
            outputs = self._generate(ops.convert_to_tensor(noise))
            parts.append({k: ops.convert_to_numpy(x) for k, x in outputs.items()})
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
