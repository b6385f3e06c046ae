"""Show, Attend and Tell (arXiv:1502.03044) in Keras 3.

    import show_attend_tell as sat
    pipeline = sat.load("model.keras")
    pipeline.caption("photo.jpg")

The names in :data:`__all__` are imported on first use, so that importing the package
loads neither TensorFlow nor Keras.
"""

import importlib

__version__ = "0.2.0"

_HOMES = {
    "Caption": "inference.result",
    "Captioner": "models.captioner",
    "CaptioningPipeline": "inference.pipeline",
    "DecodingSettings": "config.settings",
    "Encoder": "models.encoder",
    "Experiment": "config.settings",
    "FeatureReader": "data.features",
    "ShowAttendTellError": "runtime.errors",
    "Vocabulary": "data.vocabulary",
    "load": "inference.pipeline",
}

__all__ = [
    "Caption",
    "Captioner",
    "CaptioningPipeline",
    "DecodingSettings",
    "Encoder",
    "Experiment",
    "FeatureReader",
    "ShowAttendTellError",
    "Vocabulary",
    "load",
]


def __getattr__(name: str):
    """Import a public name from its module on first access (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
