"""Measure the updates of a training by the workers of a cluster."""

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from show_attend_tell.training.workers import Workers


def seconds_per_update(workers: "Workers", quick: bool, updates: int) -> float:
    """Return the mean seconds of an update, in one of the workers.

    The workers share a batch of ``flickr8k_soft``, or of a tiny captioner with `quick`.
    Each has a core of its own.
    """
    cores = sorted(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):  # JAX has started its threads
        os.sched_setaffinity(int(thread), [cores[workers.rank % len(cores)]])
    import jax
    import numpy as np

    from benchmarks import ours, sizes, synthetic
    from show_attend_tell.training.step import captioner_step, to_device

    chosen = sizes.chosen(quick)
    settings = ours.experiment(chosen)
    model = ours.captioner(settings, chosen)
    rng = np.random.default_rng(1)
    annotations, tokens, targets = synthetic.batch(rng, chosen)
    own = workers.share.rows(len(targets))
    x = {"annotations": annotations[own], "tokens": tokens[own]}
    batch = to_device((x, targets[own]))
    step = captioner_step(model, settings.training)
    step(*batch)
    jax.block_until_ready(step(*batch))
    workers.broadcast(None)  # until all have compiled
    started = time.perf_counter()
    for _ in range(updates):
        values = step(*batch)
    jax.block_until_ready(values)
    return (time.perf_counter() - started) / updates
