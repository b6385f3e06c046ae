"""The settings of hard attention, the table ``[hard]`` of an experiment."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid", str_strip_whitespace=True))
class HardAttentionSettings:
    """How hard attention is trained, Sec. 4.1; defaults are the authors' own.

    Used with ``model.attention = "hard"`` only. See
    :mod:`show_attend_tell.models.hard_attention` for the equation.

    Attributes:
        entropy_weight: lambda_e, of the entropy of alpha.
        reinforce_weight: lambda_r, of the score-function term.
        reward_per: what rewards a location: the whole ``caption``, log p(y|s~) - b, the
            paper's; or the words from its own on, log p(y_t|s~) - b each, where b is
            the average of a ``word``.
        reward_scale: multiplies the reward; 1/10 in the authors' code.
        baseline: b: ``moving``, the average of earlier batches, the paper's; or
            ``samples``, the same words' log p in the caption's other samples, of
            which there must be some.
        baseline_decay: of the moving average b.
        samples: sequences of locations drawn for each caption of a batch; the batch
            grows as many times.
        sampling_probability: with which s~ is drawn; else it is replaced by its
            expected value alpha. 1 always draws.
        drawn_per: what is replaced at once: the whole ``minibatch``, as in the authors'
            code, or each ``caption`` (each of its samples) for itself.
    """

    entropy_weight: Annotated[float, Field(ge=0)] = 0.002
    reinforce_weight: Annotated[float, Field(ge=0)] = 1.0
    reward_per: Literal["caption", "word"] = "caption"
    reward_scale: Annotated[float, Field(gt=0)] = 0.1
    baseline: Literal["moving", "samples"] = "moving"
    baseline_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    samples: Annotated[int, Field(ge=1)] = 1
    sampling_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    drawn_per: Literal["minibatch", "caption"] = "minibatch"

    @model_validator(mode="after")
    def _check(self):
        if self.baseline == "samples" and self.samples < 2:
            raise ValueError(
                "baseline = 'samples' needs samples = 2 or more. "
                f"Received: samples = {self.samples}"
            )
        return self
