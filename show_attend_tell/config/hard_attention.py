"""Define the settings of hard attention."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, NonNegative, Positive, Rate


@dataclass(frozen=True, config=STRICT)
class HardAttentionSettings:
    """The training of hard attention, Sec. 4.1.

    The defaults are the constants of the paper's equation and of the authors' code. In
    that code they weigh more, because only the likelihood is averaged over the batch;
    ``flickr8k_hard_authors`` has its weights in the units of this program.

    Used with ``model.attention = "hard"`` only. The equation is in
    :mod:`show_attend_tell.models.lstm.hard_attention`.

    Attributes:
        entropy_weight: lambda_e, weight of the entropy of alpha.
        reinforce_weight: lambda_r, weight of the score-function term.
        reward_per: reward of a location: log p(y|s~) - b of the whole ``caption`` (the
            paper's equation), ``caption_mean``, the mean of log p(y_t|s~) - b over the
            caption's words (the authors' code), or log p(y_t|s~) - b summed from the
            location's own ``word`` on. In the last two b is the average of a word.
        reward_scale: factor of the reward; 1/10 in the authors' code, where
            ``reinforce_weight`` is the batch size.
        baseline: b: ``moving``, the average of earlier batches (the paper's), or
            ``samples``, log p of the same words in the caption's other samples, which
            needs two samples or more.
        baseline_decay: decay of the moving average b.
        samples: location sequences sampled per caption; multiplies the batch size.
        sampling_probability: probability that s~ is sampled and not replaced by its
            expected value alpha. 1 always samples.
        drawn_per: unit for which sampling or replacement is decided: the whole
            ``minibatch`` (the authors' code), or each ``caption`` and sample.
    """

    entropy_weight: NonNegative = 0.002
    reinforce_weight: NonNegative = 1.0
    reward_per: Literal["caption", "caption_mean", "word"] = "caption"
    reward_scale: Annotated[float, Field(gt=0)] = 0.1
    baseline: Literal["moving", "samples"] = "moving"
    baseline_decay: Rate = 0.9
    samples: Positive = 1
    sampling_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    drawn_per: Literal["minibatch", "caption"] = "minibatch"

    @model_validator(mode="after")
    def _check_baseline(self):
        if self.baseline == "samples" and self.samples < 2:
            raise ValueError(
                "baseline = 'samples' needs samples = 2 or more. "
                f"Received: samples = {self.samples}"
            )
        return self
