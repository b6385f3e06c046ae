"""Start TensorFlow without its banner, with wide vectors and retained memory."""

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from show_attend_tell.runtime.errors import SetupError, one_line

_MOST_BYTES = 100_000  # of keras.json


@contextlib.contextmanager
def _suppress_stderr() -> Iterator[None]:
    """Suppress standard error, including the output of C++ libraries.

    The output is written after all if the body raises.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
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
    # Keras opens weights with HDF5's locks, which some network file systems lack. All
    # files are written under other names and renamed, so that readers need no lock.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    # Several workers must join before TensorFlow computes anything. If one ends,
    # level 3 leaves one line of its error instead of a dozen.
    one_of_several = "TF_CONFIG" in os.environ
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3" if one_of_several else "2"
    with _suppress_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()
        if one_of_several:
            return
        with tf.device("CPU"):
            half = tf.zeros((1, 1), tf.float16)
            tf.matmul(half, half)


# What models and features are made with; Keras would take each from keras.json.
KERAS_SETTINGS = {
    "backend": "tensorflow",
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
}


def keras_file() -> Path:
    """Return the path of the user's ``keras.json``, which need not exist."""
    home = os.environ.get("KERAS_HOME") or Path("~", ".keras")
    return Path(home).expanduser() / "keras.json"


def start_keras() -> None:
    """Start TensorFlow, and Keras on it, whatever ``keras.json`` says.

    Raises:
        SetupError: the environment variable ``KERAS_BACKEND`` selects another
            backend, an import fails, or the process has imported Keras with other
            settings.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend == "tensorflow":
        os.environ["KERAS_BACKEND"] = backend  # it has precedence over keras.json
        is_first = "keras" not in sys.modules
        try:
            start_tensorflow()
            import keras
        except ModuleNotFoundError as error:
            raise SetupError(
                f"{error.name} is not installed; run pip install "
                "'show-attend-tell[train]'"
            ) from None
        except (ImportError, ValueError, AttributeError, TypeError) as error:
            # A damaged installation, or values of keras.json that Keras refuses.
            file = keras_file()
            remedy = f", or delete {file}" if file.exists() else ""
            raise SetupError(
                f"TensorFlow and Keras cannot be imported: {one_line(error)}; install "
                f"the package again{remedy}"
            ) from None
        if is_first:
            keras.config.set_floatx(KERAS_SETTINGS["floatx"])
            keras.config.set_dtype_policy(KERAS_SETTINGS["floatx"])
            keras.config.set_epsilon(KERAS_SETTINGS["epsilon"])
            keras.config.set_image_data_format(KERAS_SETTINGS["image_data_format"])
        backend = keras.backend.backend()
    if backend != "tensorflow":
        raise SetupError(
            f"the backend of Keras must be tensorflow. Received: {backend}; set "
            "KERAS_BACKEND=tensorflow"
        )
    for name in ("floatx", "image_data_format"):
        expected = KERAS_SETTINGS[name]
        received = getattr(keras.config, name)()
        if received != expected:
            raise SetupError(
                f"Keras' {name} must be {expected}. Received: {received}, from "
                f"keras.json or your program; call keras.config.set_{name}"
                f'("{expected}") first'
            )


def ignored_keras_settings() -> dict[str, object]:
    """Return the values of the user's ``keras.json`` that this package overrides.

    Raises:
        OSError, ValueError: the file cannot be read, or is not JSON.
    """
    # Here, as the module imports NumPy, which `--help` does without.
    from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes

    file = keras_file()
    if not file.exists():
        return {}
    values = parse_json(read_text_bytes(file, _MOST_BYTES))
    if not isinstance(values, dict):
        raise ValueError("must be a JSON object")
    return {
        name: values[name]
        for name, ours in KERAS_SETTINGS.items()
        if values.get(name, ours) != ours
    }
