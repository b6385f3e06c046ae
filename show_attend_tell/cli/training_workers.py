"""Choose the function of the verb ``train`` that trains on several workers."""

import functools
import os
from collections.abc import Callable

import click


def captioner_training(cluster: str | None, workers: int | None) -> Callable:
    """Return a function with the arguments of :func:`training.train.train`.

    Args:
        cluster: address of a Ray cluster, or None.
        workers: number of its workers.
    """
    if cluster is not None:
        from show_attend_tell.cluster.training import train_on_cluster

        return functools.partial(train_on_cluster, cluster=cluster, count=workers)
    if "TF_CONFIG" in os.environ:
        from show_attend_tell.training.workers.joining import join

        joined = join()  # before TensorFlow computes anything

    from show_attend_tell.training.train import train

    if "TF_CONFIG" in os.environ:
        return functools.partial(train, workers=joined)
    return train


def require_joint_training(cluster: str | None, several: bool, digits: bool) -> None:
    """Raise a usage error if workers cannot train together what is asked for.

    Args:
        cluster: address of a Ray cluster, or None.
        several: whether several runs are trained, side by side on a cluster.
        digits: whether the experiment is one of digits.
    """
    if several and "TF_CONFIG" in os.environ:
        raise click.UsageError("TF_CONFIG cannot be combined with --seeds or --grid.")
    joint = cluster is not None and not several
    if digits and (joint or "TF_CONFIG" in os.environ):
        option = "--cluster without --seeds or --grid" if joint else "TF_CONFIG"
        raise click.UsageError(
            f"{option} needs an experiment with captions; train digits on one machine."
        )
