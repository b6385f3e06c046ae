"""Random values, and random weights, with which the outputs of models differ."""

import numpy as np


def normal(rng, *shape):
    """Return normal random numbers, float32."""
    return rng.standard_normal(shape).astype(np.float32)


def randomised(model, rng, spread=0.4):
    """Return a model after each trainable weight, biases too, became random."""
    for weight in model.trainable_weights:
        weight.assign(spread * rng.standard_normal(weight.shape))
    return model
