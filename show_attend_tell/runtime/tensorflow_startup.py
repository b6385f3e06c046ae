"""Start TensorFlow without its banner, with XLA's widest vectors and memory kept."""

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator

from show_attend_tell.runtime.errors import BackendError


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold standard error back, also what libraries in C++ write to it.

    It is let through after all when the body raises.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


# Of AVX-512's 512 bits XLA uses 256 unless told so; a training step takes 9 % less
# time with all of them. Without AVX-512 it changes nothing.
_XLA_FLAGS = "--xla_cpu_prefer_vector_width=512"


# Parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_memory() -> bool:
    """Have freed memory kept for the next update instead of handed back at once.

    A training step's large buffers would else be mapped and cleared anew each time,
    77,000 page faults and a quarter of the time. Returns whether it was possible; it
    is with glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_MMAP_MAX, 0)
    return all(kept)


def start_tensorflow() -> None:
    """Import TensorFlow quietly, with our flags for XLA unless the user set their own.

    TensorFlow 2.21 writes a dozen lines on import and at the first look for devices
    whatever ``TF_CPP_MIN_LOG_LEVEL`` says, and one, as an error, at the first float16
    on a processor that has no arithmetic for it; afterwards it heeds the level. A level
    set by the user leaves everything as it is.
    """
    keep_memory()
    os.environ.setdefault("XLA_FLAGS", _XLA_FLAGS)
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    with _held_back():
        import tensorflow as tf

        tf.config.list_physical_devices()
        with tf.device("CPU"):
            half = tf.zeros((1, 1), tf.float16)
            tf.matmul(half, half)


def start_keras() -> None:
    """Start TensorFlow, and verify that Keras runs on it.

    Raises:
        BackendError: the environment variable ``KERAS_BACKEND`` or the file
            ``keras.json`` selects another backend, or an import fails.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend == "tensorflow":
        try:
            start_tensorflow()
            import keras
        except (ImportError, ValueError) as error:  # not installed, or not known
            raise BackendError(
                f"TensorFlow and Keras cannot be imported: {error}; install the "
                "package again, with tensorflow as the backend in Keras' keras.json"
            ) from None
        backend = keras.backend.backend()
    if backend != "tensorflow":
        raise BackendError(
            f"the backend of Keras must be tensorflow. Received: {backend}; set "
            "KERAS_BACKEND=tensorflow"
        )
