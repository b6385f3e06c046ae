"""Items that threads read ahead of their use."""

import threading

import pytest

from show_attend_tell.runtime.read_ahead import read_ahead


@pytest.mark.parametrize("count", [0, 1, 3, 7])
@pytest.mark.parametrize("ahead", [1, 4])
def test_items_are_read_once_in_their_order(count, ahead):
    found = list(read_ahead(str, range(count), ahead, threads=3))
    assert found == list(map(str, range(count)))


def test_the_next_item_is_read_while_the_present_one_is_used():
    read = [threading.Event() for _ in range(4)]
    items = read_ahead(lambda item: read[item].set() or item, range(4))
    assert next(items) == 0
    assert read[1].wait(10)
    assert not read[2].is_set()


def test_an_error_of_reading_is_raised_in_its_place():
    items = read_ahead({0: "a", 1: "b"}.__getitem__, range(3))
    assert [next(items), next(items)] == ["a", "b"]
    with pytest.raises(KeyError):
        next(items)
