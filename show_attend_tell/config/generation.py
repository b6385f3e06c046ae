"""Define the settings of experiments that generate digits, ``task = "generate"``."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.draw import DrawSettings
from show_attend_tell.config.fields import STRICT, Count, Name, NonNegative, Positive
from show_attend_tell.config.siblings import (
    DigitSettings,
    DigitTrainingSettings,
    require_inside,
)


@dataclass(frozen=True, config=STRICT)
class GeneratedDigitSettings(DigitSettings):
    """The digits, the pictures that are made of them, and how these become binary.

    A pixel of intensity p becomes 1 with probability p. Validation and test digits are
    always binarised the same way, so that every model is measured on the same pixels.

    Attributes:
        binarise: ``dynamic`` samples the training pixels anew in every epoch, ``fixed``
            once.
        validation: see :class:`config.siblings.DigitSettings`.
    """

    validation: Positive = 10_000
    binarise: Literal["fixed", "dynamic"] = "dynamic"


@dataclass(frozen=True, config=STRICT)
class GenerationTrainingSettings(DigitTrainingSettings):
    """The optimiser, its schedule, and the end of training.

    Attributes:
        batch_size: see :class:`config.siblings.DigitTrainingSettings`, as for every
            other key.
        learning_rate: see the same class.
        warmup_steps: see the same class.
        clip_norm: see the same class.
        metric: validation score that selects the model: minus the bound in nats.
    """

    batch_size: Positive = 100
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    warmup_steps: Count = 100
    clip_norm: NonNegative = 10.0
    metric: Literal["bound"] = "bound"


@dataclass(frozen=True, config=STRICT)
class GenerationExperiment:
    """One complete experiment that generates digits."""

    name: Name
    task: Literal["generate"]
    data: GeneratedDigitSettings
    training: GenerationTrainingSettings
    draw: DrawSettings

    @model_validator(mode="after")
    def _check_windows(self):
        if self.draw.attention:
            require_inside("draw.read", self.draw.read, self.data)
            require_inside("draw.write", self.draw.write, self.data)
        return self
