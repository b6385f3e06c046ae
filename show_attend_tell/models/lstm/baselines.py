"""Lower the variance of REINFORCE: baselines, and the rewards that an action changes.

The gradient of an expected reward E[R] is estimated by sampled actions u_1, ..., u_T
(Williams, 1992)::

    dE[R]/dW = E[sum_t (R_t - b_t) d log p(u_t) / dW]

R_t is the reward from action t on, as an action cannot change earlier rewards, and b_t
any number that does not depend on u_t. Neither biases the estimator.
:mod:`models.lstm.hard_attention` samples words' locations so, and
:mod:`siblings.ram.model` the places of glimpses.
"""

from keras import ops


def mean_of_others(values, samples):
    """Return the mean over the other samples of each row's group.

    Args:
        values: (R, ...), R = B samples rows, those of a group side by side.
        samples: two or more.

    Returns:
        (R, ...).
    """
    rest = values.shape[1:]
    each = ops.reshape(values, (-1, samples, *rest))  # (R, ...) -> (B, samples, ...)
    total = ops.sum(each, axis=1, keepdims=True)  # (B, 1, ...)
    return ops.reshape((total - each) / (samples - 1), (-1, *rest))  # -> (R, ...)


def reward_to_go(rewards):
    """Return sum_{k >= t} r_k for each t.

    Args:
        rewards: r, (R, T).

    Returns:
        (R, T).
    """
    return ops.flip(ops.cumsum(ops.flip(rewards, axis=1), axis=1), axis=1)


def moved_average(average, mean, decay, present=True):
    """Return the moving average after a batch: d b + (1 - d) mean.

    Call it after the batch's gradient is computed: a baseline must not depend on the
    samples from which it is subtracted.

    Args:
        average: b before the batch, a scalar.
        mean: mean reward of the batch.
        decay: d, 0 to 1.
        present: False where the batch has no reward; b is then returned.
    """
    return ops.where(present, decay * average + (1 - decay) * mean, average)
