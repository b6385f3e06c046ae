"""Define the settings of experiments on digits.

With ``task = "classify"`` an experiment has the tables ``[data]`` and ``[training]``
and one table of its model: ``[glimpse]``, the recurrent attention model, ``[draw]``,
the windows of DRAW, or ``[classifier]``, a network that sees the whole picture. With
``task = "generate"`` the model is DRAW, :mod:`show_attend_tell.siblings.digits.draw`.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.captioner import require_samples
from show_attend_tell.config.fields import (
    STRICT,
    Count,
    Name,
    NonNegative,
    Positive,
    Rate,
    Width,
)
from show_attend_tell.siblings.common.settings import SiblingTrainingSettings

DIGIT = 28  # side of a digit of MNIST, in pixels
PIECE = 8  # side of a piece of clutter, in pixels
_MODELS = ("glimpse", "draw", "classifier")  # an experiment has one of these tables

Steps = Annotated[int, Field(ge=1, le=1000)]
# At least two filters: the distance of the centres is divided by N - 1.
Filters = Annotated[int, Field(ge=2, le=1000)]
# e^20 exceeds any picture, and its square still fits 32 bits.
Limit = Annotated[float, Field(gt=0, le=20)]


@dataclass(frozen=True, config=STRICT)
class DigitSettings:
    """The digits, and the pictures that contain them.

    Attributes:
        name: subfolder of the work folder that holds the prepared digits.
        source: ``mnist``, or ``class_folders``, the user's pictures, a folder for each
            class.
        canvas: side of a picture, in pixels; each epoch of training places a digit of
            28 x 28 pixels at a new random place. The user's pictures are resized.
        clutter: number of pieces of other digits, 8 x 8 pixels, in a picture.
        validation: how many of the last training digits are the validation digits; a
            folder of classes has splits of its own.
    """

    name: Name
    source: Literal["mnist", "class_folders"]
    canvas: Annotated[int, Field(ge=DIGIT, le=1000)] = DIGIT
    clutter: Annotated[int, Field(ge=0, le=1000)] = 0
    validation: Positive = 5000

    @model_validator(mode="after")
    def _check_source(self):
        if self.source == "class_folders" and self.clutter:
            raise ValueError(
                "clutter must go with source = 'mnist'. Received: source = "
                f"'class_folders', clutter = {self.clutter}; remove it"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class GlimpseSettings:
    """The recurrent attention model (RAM) of Mnih et al., arXiv:1406.6247.

    The equations are in :mod:`show_attend_tell.siblings.digits.ram.model`.

    Attributes:
        patch: g, cells along a side of the retina's patch of each scale.
        scales: k, number of scales; each is twice as wide as the scale before.
        glimpses: T, number of glimpses at a picture.
        locations: ``learned``, or ``random``: uniform places, the baseline of a learned
            policy.
        first: the first place: ``random`` (uniform), ``centre``, or ``learned``.
        reach: distance in pixels between the centre and the coordinate 1; 0 is half the
            picture's side.
        deviation: sigma of the location policy, in coordinates.
        reinforce_weight: lambda, weight of the REINFORCE term.
        reinforce_per: the ``sum`` of that term over glimpses, or their ``mean``.
        baseline: ``learned`` (the paper's b_t), ``moving``, the average reward of
            earlier batches, or ``samples``, the reward of the picture's other runs.
        baseline_decay: decay of the moving average.
        samples: runs for each picture in training; multiplies the batch size.
        policy_reaches: what the REINFORCE term trains: the ``location`` network alone,
            or through it also the ``core`` and the glimpse network.
        core: ``relu`` (the paper's for digits) or ``lstm``.
        width: width of the core and of the glimpse network's output.
        glimpse_width: width of the layers on the retina and on the place.
        location_width: width of a hidden layer of the location network, and of the
            networks of zoom and stop; 0 for none.
        zoom: ``fixed``, or ``learned``: the policy also chooses how wide the patches
            of each glimpse are.
        zoom_limit: how many times as wide, or as narrow, a zoom makes them at most.
        zoom_deviation: deviation of the policy's zoom; 1 is the whole way from no zoom
            to the limit.
        stop: ``never``: T glimpses at each picture; or ``learned``: after each glimpse
            the policy may stop and answer.
        stop_decay: weight of the squared logits of stopping in the REINFORCE term; more
            keeps a policy longer from settling on one number of glimpses.
        price: what a glimpse costs, in rewards for a right class; needs, and is needed
            by, ``stop = "learned"``.
    """

    patch: Width = 8
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
    width: Width = 256
    glimpse_width: Width = 128
    location_width: Annotated[int, Field(ge=0, le=4096)] = 128
    zoom: Literal["fixed", "learned"] = "fixed"
    zoom_limit: Annotated[float, Field(gt=1, le=8)] = 2.0
    zoom_deviation: Annotated[float, Field(gt=0)] = 0.2
    stop: Literal["never", "learned"] = "never"
    stop_decay: NonNegative = 0.005
    price: Annotated[float, Field(ge=0, lt=1)] = 0.0

    _check_baseline = model_validator(mode="after")(require_samples)

    @model_validator(mode="after")
    def _check_zoom_and_stop(self):
        if self.stop == "learned" and not self.price:
            raise ValueError(
                "stop = 'learned' needs a price of a glimpse above 0, such as 0.01; "
                "without one it never pays to stop. Received: price = 0"
            )
        if self.stop == "never" and self.price:
            raise ValueError(
                "price needs stop = 'learned'. "
                f"Received: price = {self.price:g}, stop = 'never'"
            )
        if self.stop == "learned" and self.glimpses < 2:
            raise ValueError(
                "stop = 'learned' needs glimpses = 2 or more. "
                f"Received: glimpses = {self.glimpses}"
            )
        if self.zoom == "learned" and self.glimpses < 2 and self.first != "learned":
            raise ValueError(
                "zoom = 'learned' needs glimpses = 2 or more, or first = 'learned'. "
                f"Received: glimpses = {self.glimpses}, first = {self.first!r}"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class DrawReaderSettings:
    """A classifier that reads with DRAW's window: Sec. 4.1 of arXiv:1502.04623.

    Attributes:
        steps: T, glimpses.
        read: N of the window, N x N filters.
        width: width of the LSTM.
        log_variance_limit: largest absolute value of log sigma^2 of the filters.
        log_scale_limit: largest absolute value of log delta~ and of log gamma.
    """

    steps: Steps = 8
    read: Filters = 12
    width: Width = 256
    log_variance_limit: Limit = 12.0
    log_scale_limit: Limit = 8.0


@dataclass(frozen=True, config=STRICT)
class DrawSettings(DrawReaderSettings):
    """A DRAW network that generates pictures, arXiv:1502.04623.

    Attributes:
        steps: T, additions to the canvas.
        write: N of the window that writes.
        latent: width of z_t.
        attention: whether to read and write with windows; without windows both use the
            whole picture, and ``read`` and ``write`` are ignored.
        read_start: initial delta~ of the window that reads. At 1 it spans the picture,
            and two filters see nothing but its four corners, from which none learns.
        canvas_start: initial value of every pixel of c_0, a learned log-odds.
    """

    steps: Steps = 10
    read: Filters = 5
    write: Filters = 5
    latent: Width = 50
    attention: bool = True
    read_start: Annotated[float, Field(gt=0, le=1)] = 1.0
    # sigmoid(-2) is 0.12; the mean of MNIST's pixels is 0.13.
    canvas_start: Annotated[float, Field(ge=-20, le=20)] = -2.0


@dataclass(frozen=True, config=STRICT)
class ClassifierSettings:
    """A classifier of whole pictures, the baseline of glimpses.

    Attributes:
        kind: ``dense`` layers, or the paper's ``convolution`` before them: 8 filters of
            10 x 10 pixels with stride 5.
        widths: widths of the dense layers before the last layer.
    """

    kind: Literal["dense", "convolution"] = "dense"
    widths: Annotated[tuple[Width, ...], Field(min_length=1, max_length=8)] = (256,)


@dataclass(frozen=True, config=STRICT)
class DigitTrainingSettings(SiblingTrainingSettings):
    """The optimiser, its schedule, and the end of training.

    Attributes:
        metric: validation score that selects the model: ``accuracy``, 100 - error in
            percent, or, with ``glimpse.stop = "learned"``, ``reward``: the share of
            right classes minus the price of the glimpses.
    """

    metric: Literal["accuracy", "reward"] = "accuracy"


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
        if self.glimpse is not None:
            return self.glimpse
        if self.classifier is not None:
            return self.classifier
        assert self.draw is not None  # an experiment has one of the three tables
        return self.draw

    @model_validator(mode="after")
    def _check_tables(self):
        tables = [key for key in _MODELS if getattr(self, key)]
        if len(tables) != 1:
            raise ValueError(
                "task = 'classify' needs one of the tables [glimpse], [draw] and "
                f"[classifier]. Received: {', '.join(tables) or 'none'}"
            )
        if self.glimpse:
            require_inside("glimpse.patch", self.glimpse.patch, self.data)
        if self.draw:
            require_inside("draw.read", self.draw.read, self.data)
        stops = self.glimpse is not None and self.glimpse.stop == "learned"
        if self.training.metric == "reward" and not stops:
            raise ValueError(
                "training.metric = 'reward' needs glimpse.stop = 'learned'. "
                "Received: a model that does not stop; choose 'accuracy'"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class GeneratedDigitSettings(DigitSettings):
    """The digits, the pictures that are made of them, and how these become binary.

    A pixel of intensity p becomes 1 with probability p. Validation and test digits are
    always binarised the same way, so that every model is measured on the same pixels.

    Attributes:
        binarise: ``dynamic`` samples the training pixels anew in every epoch, ``fixed``
            once.
    """

    source: Literal["mnist"]
    validation: Positive = 10_000
    binarise: Literal["fixed", "dynamic"] = "dynamic"


@dataclass(frozen=True, config=STRICT)
class GenerationTrainingSettings(SiblingTrainingSettings):
    """The optimiser, its schedule, and the end of training.

    Attributes:
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


def require_inside(key: str, side: int, data: DigitSettings) -> None:
    """Raise ValueError if a patch or window has a longer side than the picture."""
    if side > data.canvas:
        raise ValueError(
            f"`{key}` must be at most the {data.canvas} pixels of data.canvas. "
            f"Received: {side}"
        )
