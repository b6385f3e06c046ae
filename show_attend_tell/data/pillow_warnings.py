"""Ignore Pillow's warnings and log lines while photos are decoded."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator

_lock = threading.Lock()
_pillow = logging.getLogger("PIL")
_active = 0  # threads that are decoding
_restore = contextlib.ExitStack()


@contextlib.contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Ignore what Pillow reports in the body other than by an error.

    Filters and levels belong to the process, not to a thread: the first of several
    threads changes them, and the last restores them.
    """
    global _active
    with _lock:
        if not _active:
            _restore.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\.")
            _restore.callback(_pillow.setLevel, _pillow.level)
            _pillow.setLevel(logging.CRITICAL + 1)
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                _restore.close()
