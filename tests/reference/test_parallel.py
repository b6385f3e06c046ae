"""Photos are computed side by side; the threads of products are as before after it."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from show_attend_tell.reference import parallel


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


def test_one_photo_keeps_all_threads_of_a_product():
    before = blas_threads()
    assert parallel.each(lambda photo: blas_threads(), [0]) == [before]
    assert parallel.each(lambda photo: photo, []) == []


def test_an_error_of_a_photo_is_raised_and_the_threads_are_restored():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        parallel.each(lambda photo: 1 // photo, [1, 0])
    assert blas_threads() == before
