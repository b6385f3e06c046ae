"""Define the types of values, and the settings of training, that tables share."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
STRICT["str_max_length"] = 4096  # of a path on Linux

# The name of a folder: no separator and no "..", so that it cannot leave its parent.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9](\.?[A-Za-z0-9_-])*\.?$", max_length=200)
]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Width = Annotated[int, Field(gt=0, le=4096)]  # of a layer; limits memory
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
# Sums such as seed + 4 must fit the 32 bits of a random generator's state.
Seed = Annotated[int, Field(ge=0, lt=2**31)]


@dataclass(frozen=True, config=STRICT)
class OptimiserSettings:
    """The optimiser, its schedule, and the end of training.

    Attributes:
        seed: seed of initial weights, order of the data, dropout and sampling; a
            training is reproducible on one machine.
        epochs: maximum passes over the training data.
        batch_size: items per step, of all workers together.
        optimizer: ``rmsprop``, ``adam`` or ``adamw``.
        learning_rate: step size, the peak of the schedule.
        schedule: ``constant``, or ``cosine`` to zero over all epochs after
            ``warmup_steps``.
        warmup_steps: updates over which the learning rate rises from zero.
        weight_decay: decay of weights per update, with ``adamw``.
        clip_norm: maximum norm of the whole gradient; 0 disables clipping.
        average_decay: decay of the running average of weights (EMA), which validation
            and the saved model use; 0 disables it.
        patience: validations without a better score before training stops.
        validate_every: updates between validations; 0 validates after every epoch.
        checkpoint_every: updates between checkpoints; every validation writes one too.
        jit_compile: whether the training step is compiled by XLA.
    """

    seed: Seed = 1
    epochs: Positive = 10
    batch_size: Positive = 64
    optimizer: Literal["rmsprop", "adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: Count = 0
    weight_decay: NonNegative = 0.0
    clip_norm: NonNegative = 0.0
    average_decay: Rate = 0.0
    patience: Positive = 10
    validate_every: Count = 0
    checkpoint_every: Positive = 1000
    jit_compile: bool = True
