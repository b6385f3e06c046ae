"""Compare training steps fed by the input pipeline with steps on tensors in memory."""

import dataclasses
import statistics
import tempfile
from operator import truediv
from pathlib import Path

import numpy as np

from benchmarks import feature_file, synthetic, turns
from benchmarks.cost import Cost, total, training_step
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes, chosen

BAR = Bar("ratio", most=1.05)
_PHOTOS = 2000
_PER_PHOTO = 5
_ROUNDS = 3
_STEPS = 20
_DRAINED = 6  # steps after which the batches that were prefetched are used up


def measure(
    sizes: Sizes, folder: str, photos: int, steps: int, longest: int | None = None
) -> dict:
    """Run steps of an epoch from features.h5, and the same steps from memory.

    Args:
        sizes: sizes of the model.
        folder: folder of the feature file.
        photos: number of photos in it.
        steps: number of steps in a round.
        longest: maximum number of words of a caption, None for no maximum.

    Returns:
        Seconds a step of each round, ``pipeline`` and ``memory``, and the ``lengths``
        of the batches.
    """
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    import tensorflow as tf

    from benchmarks.ours import captioner, experiment
    from show_attend_tell.data.dataset import (
        CaptionBatches,
        Captions,
        FeatureViews,
        epoch_order,
        padded_length,
    )
    from show_attend_tell.data.features import FeatureReader
    from show_attend_tell.training.step_tensorflow import compiled_step, to_device

    settings = experiment(sizes)
    model = captioner(settings, sizes)
    path = Path(folder) / "features.h5"
    feature_file.write_feature_file(path, photos, photos, sizes)
    rng = np.random.default_rng(3)
    owners = np.repeat(np.arange(photos), _PER_PHOTO)
    words = synthetic.lengths(rng, len(owners)).clip(max=longest)
    captions = Captions.join(owners, synthetic.tokens(rng, words, sizes.vocabulary))
    functions = {}

    def step(x, y):
        length = y.shape[1]
        if length not in functions:
            function = compiled_step(model, settings.training)
            functions[length] = function.get_concrete_function(x, y)
        return functions[length](x, y)

    def take(batches) -> tuple[float, float]:
        watch = turns.Stopwatch()
        for x, y in batches:
            values = step(x, y)
        float(values["loss"])
        seconds, cores = watch.read()
        return seconds / steps, cores

    def remembered(batches, seen):
        for batch in batches:
            seen.append(batch)
            yield batch
            if len(seen) == steps:
                return

    # Two readers, as of the experiment's photos and their mirrored ones.
    with FeatureReader(path) as reader, FeatureReader(path) as mirror:
        batches = CaptionBatches(
            captions,
            np.arange(photos),
            FeatureViews([reader, mirror]),
            sizes.batch,
            seed=1,
        )
        order = epoch_order(captions.lengths, sizes.batch, seed=1, epoch=0)
        needed = order[: _ROUNDS * (_DRAINED + steps)]
        longest_of = (int(captions.lengths[batch].max()) for batch in needed)
        # Compile before measuring.
        for length in sorted({padded_length(words + 1) for words in longest_of}):
            fitting = dataclasses.replace(sizes, words=length)
            a, x, y = map(tf.constant, synthetic.batch(rng, fitting))
            step({"annotations": a, "tokens": x}, y)
        stream = batches.prefetched(0, 0, to_device)
        result = {"pipeline": [], "memory": [], "lengths": []}
        for _ in range(_ROUNDS):
            for _ in range(_DRAINED):
                step(*next(stream))
            seen = []
            result["pipeline"].append(take(remembered(stream, seen)))
            result["memory"].append(take(seen))
            result["lengths"] += [y.shape[1] for _, y in seen]
    return result


def _mean_cost(sizes: Sizes, lengths: list[int]) -> Cost:
    every = [training_step(dataclasses.replace(sizes, words=T)) for T in lengths]
    return total(every)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return one row."""
    sizes = chosen(quick)
    photos, steps, longest = (40, 2, 5) if quick else (_PHOTOS, _STEPS, None)
    with tempfile.TemporaryDirectory() as folder:
        found = turns.run_in_process(
            measure,
            sizes=sizes,
            folder=folder,
            photos=photos,
            steps=steps,
            longest=longest,
        )
    (ours, cores), (memory, memory_cores) = (
        zip(*found[name], strict=True) for name in ("pipeline", "memory")
    )
    row = Row(
        work="pipeline",
        what=f"training step from features.h5, batch {sizes.batch}, Flickr8k's lengths",
        unit="s",
        ours=statistics.median(ours),
        machine=machine,
        baseline=statistics.median(memory),
        ratio=statistics.median(map(truediv, ours, memory)),
        cores=statistics.median(cores),
        baseline_cores=statistics.median(memory_cores),
        ratio_is="ours / baseline",
        bar=BAR,
        note=f"{photos} synthetic photos in a file that the system has cached; "
        f"{_ROUNDS} rounds of {steps} steps, the same batches by both",
    )
    lengths = found["lengths"]
    return [row.limited(_mean_cost(sizes, lengths), units=len(lengths))]
