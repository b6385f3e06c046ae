"""Start TensorFlow without its banner, with wide vectors and retained memory."""

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def _suppress_stderr() -> Iterator[None]:
    """Suppress standard error, including the output of C++ libraries.

    The output is written after all if the body raises.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:  # a program without a console has no standard error
        yield
        return
    # A file and not a pipe, which somebody would have to drain.
    with tempfile.TemporaryFile() as captured:
        # The descriptor, as C++ libraries do not write through sys.stderr.
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(stderr, captured.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


# By default XLA uses 256 of AVX-512's 512 bits; a training step takes 9 % less time
# with all of them. Without AVX-512 the flag has no effect.
_XLA_FLAGS = "--xla_cpu_prefer_vector_width=512"


# Parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_memory() -> bool:
    """Configure malloc to keep freed memory for the next update.

    By default a training step's large buffers are returned to the system, then mapped
    and cleared again each time: 77,000 page faults and a quarter of the time.

    Returns:
        Whether malloc could be configured, which needs glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    # The heap is not trimmed, and large buffers are parts of it in place of mappings.
    kept = mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_MMAP_MAX, 0)
    return all(kept)


def start_tensorflow() -> None:
    """Import TensorFlow without its banner; set flags of XLA unless the user set some.

    Whatever ``TF_CPP_MIN_LOG_LEVEL`` is, TensorFlow 2.21 writes a dozen lines on import
    and on the first search for devices, and an error message at the first float16
    operation on a processor without float16 arithmetic; after that it respects the
    level. If the user has set a level, no output is suppressed.
    """
    keep_memory()
    os.environ.setdefault("XLA_FLAGS", _XLA_FLAGS)
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    with _suppress_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()
        with tf.device("CPU"):
            half = tf.zeros((1, 1), tf.float16)
            tf.matmul(half, half)
