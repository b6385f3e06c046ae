"""Batches of RAM, DRAW and the reader, and their step compiled by XLA."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from checks import assert_equal_leaves
from tiny_siblings import EVERY_SIBLING, SIBLINGS

from show_attend_tell.siblings.digits.draw.model import Draw
from show_attend_tell.siblings.digits.ram.model import PlaceNoise, RecurrentAttention


def batches(work, name, epoch, start=0, **changes):
    """Return the batches of an epoch, as lists of arrays."""
    sibling = SIBLINGS[name]
    task = sibling.task.open(sibling.experiment(**changes), work, work)
    return list(map(tf.nest.flatten, task.objective.batches(epoch, start)))


@EVERY_SIBLING
def test_batches_depend_on_seed_epoch_and_number_alone(work, name):
    data = {} if name == "words" else {"data": {"canvas": 40, "clutter": 1}}
    one, again, resumed, other = (
        batches(work, name, epoch, start, **data)
        for epoch, start in ((3, 0), (3, 0), (3, 2), (4, 0))
    )
    assert len(one) == (5 if name == "words" else 6)
    assert_equal_leaves([one, one[2:]], [again, resumed])
    seed = batches(work, name, 3, **data, training={"seed": 2})
    for different in (other, seed):
        assert not np.array_equal(different[0][0], one[0][0])


def test_dynamic_pixels_are_new_in_every_epoch_and_fixed_ones_are_not(work):
    def pictures(kind, epoch):
        """Return the pictures of an epoch in an order that does not depend on it."""
        changes = {"data": {"binarise": kind}, "training": {"batch_size": 48}}
        ((images,),) = batches(work, "draw", epoch, **changes)
        assert set(np.unique(images)) == {0, 255}
        return sorted(image.tobytes() for image in images)

    assert pictures("fixed", 0) == pictures("fixed", 1)
    assert not set(pictures("dynamic", 0)) & set(pictures("dynamic", 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ram", "draw"])
def test_the_step_compiled_by_xla_equals_the_other_one(work, monkeypatch, rng, name):
    # XLA has random numbers of its own.
    noise = rng.standard_normal((16, 2, 2)), rng.standard_normal((8, 2, 5))
    steps, noise = (tf.constant(x, "float32") for x in noise)
    places = PlaceNoise(steps[:, 0], steps)
    monkeypatch.setattr(RecurrentAttention, "sample_noise", lambda *rest: places)
    monkeypatch.setattr(Draw, "sample_noise", lambda *rest: noise)
    sibling, values = SIBLINGS[name], []
    changes = {"glimpse": {"samples": 2}} if name == "ram" else {}
    for jit_compile in (False, True):
        chosen = sibling.experiment(training={"jit_compile": jit_compile}, **changes)
        task = sibling.task.open(chosen, work, work)
        task.compile(10)
        for found in itertools.islice(task.objective.updates(0), 2):
            values.append({k: float(v) for k, v in found.items()})
        assert task.objective.step.experimental_get_tracing_count() == 1
    for one, other in zip(values[:2], values[2:], strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
