"""Measure the seconds until every training step of an epoch is compiled."""

import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import synthetic, turns
from benchmarks.row import Bar, Row
from benchmarks.sizes import FULL, Sizes, chosen

BAR = Bar("ours", most=30)
FIRST_BAR = Bar("ours", most=20)


def padded_lengths(batch: int) -> dict:
    """Return every T of an epoch of Flickr8k in batches of `batch`."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from show_attend_tell.data.dataset import epoch_order, padded_length

    lengths = synthetic.flickr8k_lengths()
    order = epoch_order(lengths, batch, seed=1, epoch=0)
    longest = (int(lengths[batch].max()) for batch in order)
    return {"lengths": sorted({padded_length(words + 1) for words in longest})}


def compiling(sizes: Sizes, lengths: list[int], precision: str = "float32") -> dict:
    """Run two passes over one batch of each length T.

    Returns:
        Seconds until the ``first`` update returned, and ``compiling``, the difference
        between the first and the second pass.
    """
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from benchmarks.ours import captioner, experiment
    from show_attend_tell.data.dataset import FeatureViews
    from show_attend_tell.data.splits import Split
    from show_attend_tell.training.maximum_likelihood import FEW_UPDATES, Likelihood

    settings = experiment(sizes, precision=precision)
    # A short training would pad captions to fewer lengths.
    training = dataclasses.replace(settings.training, epochs=FEW_UPDATES)
    settings = dataclasses.replace(settings, training=training)
    model = captioner(settings, sizes)
    word = model.vocabulary.words[-1]
    # Captions of T - 1 words and <end> are padded to T, in a batch of their own.
    captions = [[[word] * (T - 1)] for T in lengths for _ in range(sizes.batch)]
    reader = synthetic.MemoryReader(
        synthetic.features(np.random.default_rng(1), sizes.batch, sizes)
    )
    rows = np.arange(len(captions)) % sizes.batch
    sets = np.zeros(len(captions), int)
    data = Split("train", [], rows, captions, np.ones(len(captions)), sets)
    start = time.perf_counter()
    watch = turns.Stopwatch()
    objective = Likelihood(settings, model, data, FeatureViews([reader, reader]))
    ends = [start]
    for epoch in range(2):
        for values in objective.updates(epoch):
            float(values["loss"])
            ends.append(time.perf_counter())
    assert objective.graphs == len(lengths)
    first = ends[len(lengths)] - start
    second = ends[-1] - ends[len(lengths)]
    return {
        "first": ends[1] - start,
        "compiling": first - second,
        "cores": watch.read()[1],
    }


def _is_used(cache: Path) -> bool:
    """Return whether anything was cached, except for Matplotlib's font list."""
    files = (path for path in cache.rglob("*") if path.is_file())
    return any("matplotlib" not in path.parts for path in files)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure in a process with an empty cache, and again if it was used."""
    sizes = chosen(quick)
    lengths = turns.run_in_process(padded_lengths, batch=FULL.batch)["lengths"]
    options = {"sizes": sizes, "lengths": lengths[:2] if quick else lengths}
    with tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache}
        cold = turns.run_in_process(compiling, environment, **options)
        cached = _is_used(Path(cache))
        again = (
            turns.run_in_process(compiling, environment, **options) if cached else None
        )
    names = ", ".join(map(str, options["lengths"]))
    common = {"work": "compile", "unit": "s", "machine": machine}
    found = [
        Row(
            what=f"all {len(options['lengths'])} caption lengths, K {sizes.vocabulary}",
            ours=cold["compiling"],
            cores=cold["cores"],
            bar=BAR,
            note=f"lengths {names}; {'' if cached else 'nothing kept between runs; '}"
            "no arithmetic bounds it",
            **common,
        ),
        Row(
            what="the first update of a training, compilation included",
            ours=cold["first"],
            bar=FIRST_BAR,
            **common,
        ),
    ]
    if again is not None:
        found.append(
            Row(
                what="all lengths in the next process",
                ours=again["compiling"],
                cores=again["cores"],
                baseline=cold["compiling"],
                ratio=cold["compiling"] / again["compiling"],
                **common,
            )
        )
    return found
