"""Compute the loss of given captions, which the steps of all backends differentiate."""

from show_attend_tell.models.captioner import Captioner


def likelihood(model: Captioner, x: dict, targets, weight=None):
    """Return the loss of a batch of given captions, Eq. (14)."""
    outputs = model(x, training=True)
    return model.compute_loss(x, targets, outputs, weight, training=True)
