"""Show, Attend and Tell (arXiv:1502.03044) in Keras 3.

    import show_attend_tell as sat
    pipeline = sat.load()
    pipeline.caption("photo.jpg")

The names in :data:`__all__` are imported on first use, so that importing the package
loads neither TensorFlow nor Keras. TensorFlow is imported without its banner.
"""

import importlib
import os
import sys

__version__ = "0.3.0"

_HOMES = {
    "Caption": "inference.result",
    "Captioner": "models.captioner",
    "CaptioningPipeline": "inference.pipeline",
    "DecodingSettings": "config.settings",
    "Encoder": "models.encoder.network",
    "Experiment": "config.settings",
    "Failure": "inference.result",
    "FeatureReader": "data.features",
    "ShowAttendTellError": "runtime.errors",
    "Vocabulary": "data.vocabulary",
    "load": "inference.pipeline",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    """Import a public name from its module on first access (PEP 562).

    Raises:
        BackendError: the module needs a package that only training installs.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    imports_keras = home.startswith("models.")
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    try:
        if imports_keras and backend == "tensorflow" and backend not in sys.modules:
            from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

            start_tensorflow()
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        from show_attend_tell.runtime.errors import BackendError

        raise BackendError(
            f"{error.name} is not installed; run pip install 'show-attend-tell[train]'"
        ) from None


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
