"""Define the settings of experiments that read words, ``task = "read"``.

The equations are in :mod:`show_attend_tell.siblings.words`.
"""

import dataclasses
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import (
    STRICT,
    Count,
    Name,
    NonNegative,
    Rate,
    Seed,
    Width,
)
from show_attend_tell.siblings.common.settings import SiblingTrainingSettings

_VALIDATION = {"words": 2000, "iiit5k": 400, "word_table": 0}
_RENDERED = ("count", "fonts", "words", "photos", "seed")  # keys of rendered words
# Keys that a source has no use for.
_IGNORED = {
    "words": (),
    "iiit5k": _RENDERED,
    "word_table": (*_RENDERED, "validation"),
}

Channels = Annotated[tuple[Width, ...], Field(min_length=1, max_length=6)]


@dataclass(frozen=True, config=STRICT)
class WordSettings:
    """The words of an experiment: rendered words, crops of photos, or the user's.

    Attributes:
        name: subfolder of the work folder that holds the prepared words; experiments
            with the same name share them.
        source: ``words``, rendered words; ``iiit5k``, crops of photos; or
            ``word_table``, the user's crops, whose words decide the alphabet.
        count: number of rendered training words.
        validation: number of validation words; 0 means 2,000 rendered words, or 400 of
            the training crops. A table has splits of its own.
        fonts: folder of font files; by default installed fonts are used.
        words: file of words, one a line; by default an installed list is used.
        photos: folder of photos whose parts become backgrounds.
        seed: seed of the rendered words.
    """

    name: Name
    source: Literal["words", "iiit5k", "word_table"]
    count: Annotated[int, Field(ge=1, le=100_000_000)] = 300_000
    validation: Count = 0
    fonts: str = ""
    words: str = ""
    photos: str = ""
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_source(self):
        # The resolved settings of a run have all keys, so a default value is accepted.
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for key in _IGNORED[self.source]:
            if getattr(self, key) != defaults[key]:
                sources = [s for s, ignored in _IGNORED.items() if key not in ignored]
                raise ValueError(
                    f"{key} must go with source = {' or '.join(map(repr, sources))}. "
                    f"Received: source = {self.source!r}, {key} = "
                    f"{getattr(self, key)!r}; remove it"
                )
        return self

    @property
    def held_out(self) -> int:
        """The number of validation words."""
        return self.validation or _VALIDATION[self.source]


@dataclass(frozen=True, config=STRICT)
class ReaderSettings:
    """A reader of word crops, arXiv:1603.03101.

    Attributes:
        convolution: ``plain``, ``recursive_tied``, ``recursive_untied`` (the paper's
            choice) or ``recurrent``.
        iterations: n, how often a stage applies its shared kernel; ignored by
            ``plain``, which has the two kernels of ``recursive_untied`` with n = 1.
        channels: channels of each stage (the paper's 64, 128, 256, 512); pooling halves
            the picture between two stages.
        batch_norm: whether to normalise the sums of a convolution by the batch, with
            separate statistics for each iteration.
        share_feedforward: whether all iterations of a ``recurrent`` stage share the
            kernel of its input.
        decoder: ``independent`` (no recurrent layer), ``rnn1_start``, ``rnn1``,
            ``rnn2``, ``rnn2_factored`` or ``attention``: the paper's 1c, 1u, 2u and 2f.
        attend: attention over ``places`` of the crop, or over ``features`` (the
            paper's); ignored by other decoders, which have features.
        cell: ``lstm``, or ``rnn``, a plain recurrent layer (the paper's).
        width: n of a recurrent layer (the paper's 1024).
        embedding_width: width of an embedded character.
        attention_width: width of the hidden layer that scores places.
        feature_width: F, width of the two dense layers that compute features (the
            paper's 4096).
        feature_dropout: rate at which features are dropped in training (the paper's
            0.5); with 0 readers learn from far fewer words.
    """

    convolution: Literal["plain", "recursive_tied", "recursive_untied", "recurrent"] = (
        "recursive_untied"
    )
    iterations: Annotated[int, Field(ge=1, le=16)] = 2
    channels: Channels = (16, 32, 64, 128)
    batch_norm: bool = True
    share_feedforward: bool = True
    decoder: Literal[
        "independent", "rnn1_start", "rnn1", "rnn2", "rnn2_factored", "attention"
    ] = "attention"
    attend: Literal["places", "features"] = "places"
    cell: Literal["lstm", "rnn"] = "lstm"
    width: Width = 256
    embedding_width: Width = 64
    attention_width: Width = 64
    feature_width: Width = 1024
    feature_dropout: Rate = 0.5

    @property
    def reads_places(self) -> bool:
        """Whether the decoder attends to places, and features are not computed."""
        return self.decoder == "attention" and self.attend == "places"

    @model_validator(mode="after")
    def _check_channels(self):
        falls = list(self.channels) != sorted(self.channels)
        if self.convolution == "recursive_tied" and falls:
            raise ValueError(
                "channels must not fall with convolution = 'recursive_tied', which has "
                f"no kernel for it. Received: channels = {list(self.channels)}"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class ReaderTrainingSettings(SiblingTrainingSettings):
    """The optimiser, its schedule, and the end of training.

    :class:`OptimiserSettings` describes the other keys.

    Attributes:
        label_smoothing: epsilon of :func:`models.losses.token_losses`.
        augment: whether every epoch moves and distorts the training crops anew, and
            adds noise.
        precision: type of the convolutions' products, ``float32`` or ``bfloat16``,
            faster where the processor has units for it. Weights, statistics and
            recurrent layers stay float32.
        metric: validation score that selects the model: percentage of correct words.
    """

    optimizer: Literal["rmsprop", "adam", "adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    warmup_steps: Count = 500
    weight_decay: NonNegative = 0.01
    clip_norm: NonNegative = 5.0
    average_decay: Rate = 0.999
    label_smoothing: Rate = 0.05
    augment: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    metric: Literal["word_accuracy"] = "word_accuracy"


@dataclass(frozen=True, config=STRICT)
class ReadExperiment:
    """One complete experiment that reads words."""

    name: Name
    task: Literal["read"]
    data: WordSettings
    training: ReaderTrainingSettings
    reader: ReaderSettings = ReaderSettings()
