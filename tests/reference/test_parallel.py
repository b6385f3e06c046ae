"""Photos are computed side by side; the threads of products are as before after it."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from show_attend_tell.reference import parallel


@pytest.fixture(autouse=True)
def _all_libraries():
    """Let the limit know libraries that other tests have loaded, such as SciPy's."""
    parallel._controller.cache_clear()


def blas_threads():
    infos = (info for info in threadpool_info() if info["user_api"] == "blas")
    return [info["num_threads"] for info in infos]


def test_results_keep_the_order_of_the_photos(monkeypatch):
    monkeypatch.setattr(parallel, "CORES", 2)
    both = threading.Barrier(2)

    def function(number, other):
        both.wait(60)  # another thread computes another photo
        return number * other, blas_threads()

    before = blas_threads()
    assert before
    results = parallel.each(function, range(4), np.arange(10, 14))
    assert [product for product, _ in results] == [0, 11, 24, 39]
    assert all(set(threads) == {1} for _, threads in results)
    assert blas_threads() == before


def test_one_photo_has_one_thread_of_a_product():
    """Threads that wait in loops take the processors from other programs."""
    before = blas_threads()
    inside = parallel.each(lambda photo: blas_threads(), [0])
    assert set(inside[0]) == {1}
    assert parallel.each(lambda photo: photo, []) == []
    assert blas_threads() == before


def test_the_limit_ends_with_the_last_caller():
    before = blas_threads()
    with parallel.one_blas_thread:
        with parallel.one_blas_thread:
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_any_thread_may_be_the_first_or_the_last_caller():
    """Threads of a server live on, and threadpoolctl obeys the first alone."""
    before = blas_threads()
    entered, left = threading.Event(), threading.Event()

    def stay():
        with parallel.one_blas_thread:
            entered.set()
            left.wait(60)
        left.clear()
        left.wait(60)

    server = threading.Thread(target=stay)
    server.start()
    entered.wait(60)
    with parallel.one_blas_thread:
        left.set()
        while left.is_set():  # the first caller leaves, and its thread lives
            time.sleep(0.001)
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with parallel.one_blas_thread:
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    left.set()
    server.join()


def test_parts_of_a_photo_are_computed_by_all_workers(monkeypatch):
    monkeypatch.setattr(parallel, "CORES", 2)
    both = threading.Barrier(2)
    done = []
    with parallel.all_cores() as workers:
        assert workers.count == 2
        assert set(blas_threads()) == {1}
        workers.run(lambda part: done.append((both.wait(60), part)), range(2))
    assert sorted(part for _, part in done) == [0, 1]


def test_an_error_of_a_part_is_raised(monkeypatch):
    monkeypatch.setattr(parallel, "CORES", 2)
    with parallel.all_cores() as workers, pytest.raises(ZeroDivisionError):
        workers.run(lambda part: 1 // part, range(2))


def test_an_error_of_a_photo_is_raised_and_the_threads_are_restored():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        parallel.each(lambda photo: 1 // photo, [1, 0])
    assert blas_threads() == before
