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
        from show_attend_tell.training.workers.cluster import train_on_cluster

        return functools.partial(train_on_cluster, cluster=cluster, count=workers)
    if "TF_CONFIG" in os.environ:
        from show_attend_tell.training.workers.joining import join

        joined = join()  # before TensorFlow computes anything

    from show_attend_tell.training.train import train

    if "TF_CONFIG" in os.environ:
        return functools.partial(train, workers=joined)
    return train


def require_one_training(cluster: str | None, seeds: object, of_digits: bool) -> None:
    """Raise a usage error if several workers cannot train what is asked for."""
    if cluster is None and "TF_CONFIG" not in os.environ:
        return
    several = "--cluster" if cluster is not None else "TF_CONFIG"
    if seeds is not None:
        raise click.UsageError(f"{several} cannot be combined with --seeds.")
    if of_digits:
        raise click.UsageError(
            f"{several} needs an experiment with captions; train digits on one machine."
        )
