"""Show, Attend and Tell (arXiv:1502.03044) in Keras 3.

    import show_attend_tell as sat
    pipeline = sat.load()
    pipeline.caption("photo.jpg")

The names in `__all__` are imported on first use, so that importing the package loads
neither Keras nor its backend. Names that need packages of the extra `train` are absent
where these are not installed. TensorFlow is imported without its banner.
"""

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from show_attend_tell.runtime.keras_startup import is_keras_installed, start_backend

if TYPE_CHECKING:  # for editors and type checkers; __getattr__ imports at run time
    from show_attend_tell.config.captioner import DecodingSettings
    from show_attend_tell.config.experiments import caption_experiment
    from show_attend_tell.config.settings import Experiment
    from show_attend_tell.data.features import FeatureReader
    from show_attend_tell.data.vocabulary import Vocabulary
    from show_attend_tell.evaluation.evaluate import evaluate
    from show_attend_tell.inference.photos import Failure
    from show_attend_tell.inference.pipeline import CaptioningPipeline, caption, load
    from show_attend_tell.inference.result import Caption
    from show_attend_tell.models.captioner import Captioner
    from show_attend_tell.models.encoder.network import Encoder
    from show_attend_tell.runtime.errors import ShowAttendTellError
    from show_attend_tell.training.train import train

__version__ = "0.3.0"

_HOMES = {
    "Caption": "inference.result",
    "Captioner": "models.captioner",
    "CaptioningPipeline": "inference.pipeline",
    "DecodingSettings": "config.captioner",
    "Encoder": "models.encoder.network",
    "Experiment": "config.settings",
    "Failure": "inference.photos",
    "FeatureReader": "data.features",
    "ShowAttendTellError": "runtime.errors",
    "Vocabulary": "data.vocabulary",
    "caption": "inference.pipeline",
    "caption_experiment": "config.experiments",
    "evaluate": "evaluation.evaluate",
    "load": "inference.pipeline",
    "train": "training.train",
}
_IMPORTING_KERAS = {"Captioner", "Encoder", "evaluate", "train"}

__all__ = [
    "Caption",
    "CaptioningPipeline",
    "DecodingSettings",
    "Experiment",
    "Failure",
    "ShowAttendTellError",
    "Vocabulary",
    "caption",
    "caption_experiment",
    "load",
]


if find_spec("h5py") is not None and find_spec("hdf5plugin") is not None:
    __all__ += ["FeatureReader"]
    if is_keras_installed():
        __all__ += ["Captioner", "Encoder", "evaluate", "train"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if not TYPE_CHECKING:  # with it, type checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name from its module on first access (PEP 562).

        Raises:
            AttributeError: there is no such name, or it needs a package that is not
                installed.
        """
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            if name in _IMPORTING_KERAS and "keras" not in sys.modules:
                start_backend()
            module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == __name__:
                raise  # a mistake of this package
            raise AttributeError(
                f"{name!r} needs {error.name}, which is not installed; run pip install "
                "'show-attend-tell[train]'"
            ) from None
        return getattr(module, name)
