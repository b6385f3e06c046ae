"""Compute several photos side by side, one on each core.

A matrix product of one photo is too small for all cores, and NumPy's other operations
use one; so each thread takes a photo and keeps the products' threads to itself.
"""

import functools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from show_attend_tell.runtime.machine import usable_cores

Result = TypeVar("Result")

CORES = usable_cores()
_limit_is_set = threading.Lock()  # the limit counts for the whole process
_controller = functools.cache(ThreadpoolController)


def each(function: Callable[..., Result], *arguments: Iterable[Any]) -> list[Result]:
    """Return the results of a function for each photo, in order."""
    photos = list(zip(*arguments, strict=True))
    if len(photos) < 2:
        return [function(*photo) for photo in photos]
    with (
        _limit_is_set,
        _controller().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(CORES) as pool,
    ):
        return list(pool.map(lambda photo: function(*photo), photos))
