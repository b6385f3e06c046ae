"""Batches that a thread reads ahead."""

import threading

import pytest

from show_attend_tell.inference.photos import read_ahead


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_batches_are_those_of_the_items_in_order(count):
    found = list(read_ahead(str, range(count), 3))
    assert [len(batch) for batch in found] == [3] * (count // 3) + [count % 3] * (
        count % 3 > 0
    )
    assert sum(found, []) == [str(one) for one in range(count)]


def test_the_next_batch_is_read_while_the_present_one_is_used():
    read = threading.Event()

    def mark(item):
        if item == 2:
            read.set()
        return item

    batches = read_ahead(mark, range(6), 2)
    assert next(batches) == [0, 1]
    assert read.wait(10)


def test_an_error_of_reading_is_raised_at_its_batch():
    batches = read_ahead({0: "a", 1: "b"}.__getitem__, range(3), 1)
    assert [next(batches), next(batches)] == [["a"], ["b"]]
    with pytest.raises(KeyError):
        next(batches)
