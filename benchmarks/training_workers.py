"""Measure the updates of a training by the workers of a cluster."""

import json
import os
import time


def seconds_per_update(quick: bool, updates: int) -> float:
    """Return the mean seconds of an update, in one of the workers of ``TF_CONFIG``.

    The workers share a batch of ``flickr8k_soft``, or of a tiny captioner with `quick`.
    Each has a core of its own: with one thread for each operation, TensorFlow still
    runs operations side by side, by which a worker alone uses 1.2 cores.
    """
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[rank % len(cores)]])
    from show_attend_tell.runtime.keras_startup import start_keras

    start_keras()
    from show_attend_tell.training.workers import join

    workers = join()
    import numpy as np
    import tensorflow as tf

    from benchmarks import ours, sizes, synthetic
    from show_attend_tell.training.step_tensorflow import compiled_step

    chosen = sizes.chosen(quick)
    settings = ours.experiment(chosen)
    model = ours.captioner(settings, chosen)
    rng = np.random.default_rng(1)
    annotations, tokens, targets = synthetic.batch(rng, chosen)
    own = workers.share.rows(len(targets))
    x = {"annotations": annotations[own], "tokens": tokens[own]}
    x, y = tf.nest.map_structure(tf.constant, (x, targets[own]))
    step = compiled_step(model, settings.training, workers=workers)
    graph = step.get_concrete_function(x, y)
    graph(x, y)
    graph(x, y)
    workers.total([0.0])  # until all have compiled
    started = time.perf_counter()
    for _ in range(updates):
        graph(x, y)
    return (time.perf_counter() - started) / updates
