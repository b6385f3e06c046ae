"""Ignore Pillow's warnings of unusual photos while photos are decoded."""

import contextlib
import threading
import warnings
from collections.abc import Iterator

_lock = threading.Lock()
_active = 0  # threads that are decoding
_ignored: contextlib.AbstractContextManager | None = None


@contextlib.contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Ignore warnings that Pillow issues in the body.

    Filters belong to the process, not to a thread: the first of several threads
    changes them, and the last restores them.
    """
    global _active, _ignored
    with _lock:
        if not _active:
            _ignored = warnings.catch_warnings()
            _ignored.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\.")
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                _ignored.__exit__(None, None, None)
