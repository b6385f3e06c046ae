"""Reading millions of small objects without Python's collector looking at each."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the cyclic garbage collector out of the body, or of a decorated function.

    It runs again and again while many objects are made, over all that TensorFlow holds
    too, and finds nothing: half of the time in which COCO's captions are read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
