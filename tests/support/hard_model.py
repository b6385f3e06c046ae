"""Build a hard-attention captioner, and noise for it that a test controls."""

import numpy as np
import tiny_captioner as tiny
from keras import ops
from tiny_captioner import T

from show_attend_tell.config.settings import HardAttentionSettings
from show_attend_tell.models.decoder_interface import Selection
from show_attend_tell.models.lstm.hard_attention import LocationNoise


def build(rng, hard=None, spread=0.7, arguments=None, **changes):
    """Return a tiny captioner with hard attention and without the term of Eq. (14)."""
    arguments = {"doubly_stochastic": 0.0, **(arguments or {})}
    arguments["hard"] = HardAttentionSettings(**(hard or {}))
    return tiny.build(rng, arguments, spread, attention="hard", **changes)


def location_noise(rng, rows, steps=T, sampled=None):
    """Return LocationNoise; `sampled` (rows,) is 1 for all by default."""
    u = rng.random((rows, steps), np.float32)
    return LocationNoise(u, np.ones(rows, np.float32) if sampled is None else sampled)


def outputs_of(model, annotations, inputs, noise, samples=1, training=False):
    """Return the outputs of ``call`` in training, for given noise."""
    noise = LocationNoise(*map(ops.convert_to_tensor, noise))
    outputs = model.teacher_force(
        {"annotations": annotations, "tokens": inputs},
        training,
        selection=noise.selection(),
        samples=samples,
    )
    return {**outputs, "sampled": noise.sampled}


def forced(model, annotations, inputs, locations):
    """Return the outputs where the context is that of given locations (R, T)."""
    one_hot = np.eye(annotations.shape[1], dtype=np.float32)[locations]  # (R, T, L)
    one_hot = ops.convert_to_tensor(one_hot)

    inputs = {"annotations": annotations, "tokens": inputs}
    return model.teacher_force(inputs, selection=Selection(_given, (one_hot,)))


def _given(alpha, one_hot):
    """Return given context weights (R, L), of which alpha has no gradient."""
    return one_hot, ops.zeros_like(alpha[:, :1])
