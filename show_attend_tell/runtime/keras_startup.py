"""Choose the backend of Keras, start it, and set what ``keras.json`` would decide."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from show_attend_tell.runtime.errors import SetupError, nearest, one_line, quote

_MOST_BYTES = 100_000  # of keras.json

# What models and features are made with; Keras would take each from keras.json.
KERAS_SETTINGS = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
}

# The name of each backend in a message, and the extra of this package that installs it.
BACKENDS = {"tensorflow": ("TensorFlow", "train"), "jax": ("JAX", "jax")}


def chosen_backend() -> str:
    """Return the backend that Keras runs on, or will run on, without importing it.

    It is ``KERAS_BACKEND``, or TensorFlow if it is installed, or JAX. The value of
    ``KERAS_BACKEND`` is not checked.
    """
    if named := os.environ.get("KERAS_BACKEND"):
        return named
    if find_spec("tensorflow") is None and find_spec("jax") is not None:
        return "jax"
    return "tensorflow"


def is_keras_installed() -> bool:
    """Return whether Keras and the chosen backend are installed."""
    backend = chosen_backend()
    return backend in BACKENDS and all(
        find_spec(package) is not None for package in ("keras", backend)
    )


def backend_title() -> str:
    """Return the name of the chosen backend for a message, such as TensorFlow."""
    backend = chosen_backend()
    return BACKENDS[backend][0] if backend in BACKENDS else backend


def keras_file() -> Path:
    """Return the path of the user's ``keras.json``, which need not exist."""
    home = os.environ.get("KERAS_HOME") or Path("~", ".keras")
    return Path(home).expanduser() / "keras.json"


def start_backend() -> None:
    """Start the chosen backend; Keras, if it is imported later, takes the same one.

    Raises:
        SetupError: ``KERAS_BACKEND`` names another backend, or JAX would leave a GPU
            unused.
        ImportError: the backend is not installed.
    """
    backend = chosen_backend()
    if backend not in BACKENDS:
        raise SetupError(
            "`KERAS_BACKEND` must be tensorflow or jax. Received: "
            f"{quote(backend)}{nearest(backend, BACKENDS)}; correct it, or unset it"
        )
    os.environ["KERAS_BACKEND"] = backend  # it has precedence over keras.json
    # Keras opens weights with HDF5's locks, which some network file systems lack. All
    # files are written under other names and renamed, so that readers need no lock.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
    if backend == "tensorflow":
        from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

        start_tensorflow()
    else:
        from show_attend_tell.runtime.jax_startup import start_jax

        start_jax()


def start_keras() -> None:
    """Start the chosen backend, and Keras on it, whatever ``keras.json`` says.

    Raises:
        SetupError: ``KERAS_BACKEND`` names another backend than TensorFlow or JAX, an
            import fails, JAX would leave a GPU unused, or the process has imported
            Keras with another backend or other settings.
    """
    backend = chosen_backend()
    title, extra = BACKENDS.get(backend, ("", ""))
    # The settings of a program that has imported Keras already are verified, not set.
    is_first = "keras" not in sys.modules
    try:
        start_backend()
        import keras
    except ModuleNotFoundError as error:
        raise SetupError(
            f"{error.name} is not installed; run pip install "
            f"'show-attend-tell[{extra}]'"
        ) from None
    except SetupError:  # a ValueError, but with a remedy of its own
        raise
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        # A damaged installation, or values of keras.json that Keras refuses.
        file = keras_file()
        remedy = f", or delete {file}" if file.exists() else ""
        raise SetupError(
            f"{title} and Keras cannot be imported: {one_line(error)}; install the "
            f"package again{remedy}"
        ) from None
    if is_first:
        keras.config.set_floatx(KERAS_SETTINGS["floatx"])
        # Keras may have cached the policy of layers, which set_floatx leaves as it is.
        keras.config.set_dtype_policy(KERAS_SETTINGS["floatx"])
        keras.config.set_epsilon(KERAS_SETTINGS["epsilon"])
        keras.config.set_image_data_format(KERAS_SETTINGS["image_data_format"])
    if keras.backend.backend() != backend:
        raise SetupError(
            f"this process has imported Keras on {keras.backend.backend()}. Received: "
            f"the backend {backend}; set KERAS_BACKEND before the first import of Keras"
        )
    require_keras_settings()


def require_keras_settings() -> None:
    """Raise a SetupError unless Keras, which is imported, has this package's settings.

    Raises:
        SetupError: a program or ``keras.json`` has set others.
    """
    import keras

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
    ours = {"backend": chosen_backend(), **KERAS_SETTINGS}
    return {
        name: values[name]
        for name, value in ours.items()
        if values.get(name, value) != value
    }
