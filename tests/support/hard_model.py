"""A hard-attention captioner and chances for it, given from outside."""

import numpy as np
import tiny_captioner as tiny
from keras import ops
from tiny_captioner import T

from show_attend_tell.config.settings import HardAttentionSettings
from show_attend_tell.models.hard_attention import Draws
from show_attend_tell.models.teacher_forcing import read


def build(rng, hard=None, spread=0.7, arguments=None, **changes):
    """Return a tiny captioner with hard attention and without the term of Eq. (14)."""
    arguments = {"doubly_stochastic": 0.0, **(arguments or {})}
    arguments["hard"] = HardAttentionSettings(**(hard or {}))
    return tiny.build(rng, arguments, spread, attention="hard", **changes)


def chances(rng, rows, steps=T, sampled=None):
    """Return Draws; `sampled` (rows,) is 1 for all by default."""
    u = rng.random((rows, steps), np.float32)
    return Draws(u, np.ones(rows, np.float32) if sampled is None else sampled)


def outputs_of(model, annotations, inputs, draws, samples=1):
    """Return what ``call`` returns in training, with chances given."""
    draws = Draws(*map(ops.convert_to_tensor, draws))
    told = read(
        model,
        {"annotations": annotations, "tokens": inputs},
        look=lambda t, alpha: model.hard_attention.look(draws, t, alpha),
        samples=samples,
    )
    return {**told, "sampled": draws.sampled}


def forced(model, annotations, inputs, locations):
    """Return what the model says when it must look at locations (R, T)."""
    where = np.eye(annotations.shape[1], dtype=np.float32)[locations]
    where = ops.convert_to_tensor(where)
    return read(
        model,
        {"annotations": annotations, "tokens": inputs},
        look=lambda t, alpha: (ops.take(where, t, axis=1), 0 * alpha[:, :1]),
    )
