"""Define the settings of training that the plug-ins share."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, OptimiserSettings, Positive


@dataclass(frozen=True, config=STRICT)
class SiblingTrainingSettings(OptimiserSettings):
    """The optimiser, its schedule, and the end of training.

    :class:`OptimiserSettings` describes the other keys.

    Attributes:
        init_from: initial model with weights of the same shapes, such as one of fewer
            glimpses, or one without zoom and stop: a ``.safetensors`` file, ``shipped``
            or the name of another run; empty for random weights.
    """

    init_from: str = ""
    batch_size: Positive = 128
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    patience: Positive = 1000
