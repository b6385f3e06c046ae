"""Define the settings of experiments on digits, in place of photos with captions.

An experiment whose file has ``task = "classify"`` has the tables ``[data]``,
``[training]``, and one of ``[glimpse]``, the recurrent attention model, ``[draw]``, the
windows of DRAW, and ``[classifier]``, a network that sees the whole picture. A table of
another task is an unknown key.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.draw import DrawReaderSettings
from show_attend_tell.config.fields import (
    STRICT,
    Count,
    Name,
    NonNegative,
    Positive,
    Rate,
    Seed,
)

DIGIT = 28  # side of a digit of MNIST, in pixels
PIECE = 8  # side of a piece of clutter, in pixels
_MODELS = ("glimpse", "draw", "classifier")  # tables, of which one is given


@dataclass(frozen=True, config=STRICT)
class DigitSettings:
    """The digits and the pictures that are made of them.

    Attributes:
        name: subfolder of the work folder that holds the prepared digits.
        source: ``mnist``.
        canvas: side of a picture, in pixels; a digit of 28 x 28 pixels is placed
            anywhere in it, anew in every epoch of training.
        clutter: pieces of 8 x 8 pixels of other digits that are added to a picture.
        validation: how many of the last training digits are the validation digits.
    """

    name: Name
    source: Literal["mnist"]
    canvas: Annotated[int, Field(ge=DIGIT, le=1000)] = DIGIT
    clutter: Annotated[int, Field(ge=0, le=1000)] = 0
    validation: Positive = 5000


@dataclass(frozen=True, config=STRICT)
class GlimpseSettings:
    """The recurrent attention model (RAM) of Mnih et al., arXiv:1406.6247.

    The equations are in :mod:`show_attend_tell.siblings.ram.model`.

    Attributes:
        patch: g, side of what the retina returns of each scale, in cells.
        scales: k, number of scales, each twice as wide as the one before.
        glimpses: T, looks at a picture.
        locations: ``learned``, or ``random``: every place is uniform, to measure what
            learning it adds.
        first: the first place: ``random`` (uniform), ``centre``, or ``learned``.
        reach: distance from the centre, in pixels, of the coordinates -1 and 1; 0 is
            half the picture's side.
        deviation: sigma of the location policy, in coordinates.
        reinforce_weight: lambda, weight of the REINFORCE term.
        reinforce_per: the ``sum`` of that term over glimpses, or their ``mean``.
        baseline: ``learned`` (the paper's b_t), ``moving`` average of the reward of
            earlier batches, or ``samples``, the reward of the picture's other runs.
        baseline_decay: decay of the moving average.
        samples: runs for each picture in training; multiplies the batch size.
        policy_reaches: the last part that the REINFORCE term trains: the ``location``
            network alone, or through it the ``core`` and the glimpse network.
        core: ``relu`` (the paper's for digits) or ``lstm``.
        width: width of the core and of the glimpse network's output.
        glimpse_width: width of the layers on the retina and on the place.
        location_width: width of a hidden layer of the location network; 0 for none.
    """

    patch: Positive = 8
    scales: Annotated[int, Field(ge=1, le=8)] = 1
    glimpses: Annotated[int, Field(ge=1, le=32)] = 6
    locations: Literal["learned", "random"] = "learned"
    first: Literal["random", "centre", "learned"] = "random"
    reach: NonNegative = 0.0
    deviation: Annotated[float, Field(gt=0)] = 0.1
    reinforce_weight: NonNegative = 0.01
    reinforce_per: Literal["sum", "mean"] = "sum"
    baseline: Literal["learned", "moving", "samples"] = "learned"
    baseline_decay: Rate = 0.9
    samples: Annotated[int, Field(ge=1, le=1000)] = 1
    policy_reaches: Literal["location", "core"] = "location"
    core: Literal["relu", "lstm"] = "relu"
    width: Positive = 256
    glimpse_width: Positive = 128
    location_width: Count = 128

    @model_validator(mode="after")
    def _check_baseline(self):
        if self.baseline == "samples" and self.samples < 2:
            raise ValueError(
                "baseline = 'samples' needs samples = 2 or more. "
                f"Received: samples = {self.samples}"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class ClassifierSettings:
    """A classifier of whole pictures, with which the glimpses are compared.

    Attributes:
        kind: ``dense`` layers, or a ``convolution`` of 8 filters of 10 x 10 pixels at
            every fifth pixel before them (the paper's).
        widths: widths of the dense layers before the last one.
    """

    kind: Literal["dense", "convolution"] = "dense"
    widths: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)] = (256,)


@dataclass(frozen=True, config=STRICT)
class DigitTrainingSettings:
    """The optimiser, its schedule, and the end of training.

    Attributes:
        seed: seed of initial weights, order and places of digits, and sampling.
        epochs: maximum passes over the training digits.
        batch_size: pictures per step.
        optimizer: rmsprop, adam or adamw.
        learning_rate: step size, the peak of the schedule.
        schedule: ``constant``, or ``cosine`` to zero over all epochs after
            ``warmup_steps``.
        warmup_steps: updates over which the learning rate rises from zero.
        weight_decay: decay of weights per update, with ``adamw``.
        clip_norm: maximum norm of the whole gradient; 0 disables clipping.
        average_decay: decay of the running average of weights (EMA), which validation
            and the saved model use; 0 disables it.
        patience: validations without a better score before training stops.
        metric: validation score that selects the model: 100 - error in percent.
        validate_every: updates between validations; 0 validates after every epoch.
        checkpoint_every: updates between checkpoints, in addition to those at
            validations.
        jit_compile: whether the training step is compiled by XLA.
    """

    seed: Seed = 1
    epochs: Positive = 10
    batch_size: Positive = 128
    optimizer: Literal["rmsprop", "adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup_steps: Count = 0
    weight_decay: NonNegative = 0.0
    clip_norm: NonNegative = 0.0
    average_decay: Rate = 0.0
    patience: Positive = 1000
    metric: Literal["accuracy"] = "accuracy"
    validate_every: Count = 0
    checkpoint_every: Positive = 1000
    jit_compile: bool = True


@dataclass(frozen=True, config=STRICT)
class DigitExperiment:
    """One complete experiment on digits, as read from ``experiments/<name>.toml``."""

    name: Name
    task: Literal["classify"]
    data: DigitSettings
    training: DigitTrainingSettings
    glimpse: GlimpseSettings | None = None
    classifier: ClassifierSettings | None = None
    draw: DrawReaderSettings | None = None

    @property
    def model(self) -> GlimpseSettings | ClassifierSettings | DrawReaderSettings:
        """The settings of the model, from whichever table the file has."""
        return self.glimpse or self.classifier or self.draw

    @model_validator(mode="after")
    def _check_tables(self):
        given = [key for key in _MODELS if getattr(self, key)]
        if len(given) != 1:
            raise ValueError(
                "task = 'classify' needs one of the tables [glimpse], [draw] and "
                f"[classifier]. Received: {', '.join(given) or 'none'}"
            )
        if self.glimpse:
            require_inside("glimpse.patch", self.glimpse.patch, self.data)
        if self.draw:
            require_inside("draw.read", self.draw.read, self.data)
        return self


def require_inside(key: str, side: int, data: DigitSettings) -> None:
    """Raise ValueError if the side of what sees a picture is longer than its own."""
    if side > data.canvas:
        raise ValueError(
            f"`{key}` must be at most the {data.canvas} pixels of data.canvas. "
            f"Received: {side}"
        )
