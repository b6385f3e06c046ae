"""Define the progress of a training and its result."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from show_attend_tell.config.settings import Count


@dataclass(frozen=True)
class Summary:
    """The result of a training.

    Attributes:
        folder: the run folder. model: the best model's file.
        best: best validation score. best_step: the update at which it was reached.
        metric: name of that score.
        steps: number of updates. seconds: duration of this call.
        stopped: the reason why training ended.
    """

    folder: Path
    model: Path
    best: float
    best_step: int
    steps: int
    seconds: float
    stopped: str
    metric: str


@dataclass
class Position:
    """Progress of a training, saved in the checkpoint along with the variables."""

    epoch: Count = 0
    step_in_epoch: Count = 0
    step: Count = 0
    best: float | None = None  # -1.0 in checkpoints of earlier versions
    best_step: Count = 0
    without_gain: Count = 0
    # The update validated last; 0 is the initial model.
    validated: Annotated[int, Field(ge=-1)] = -1
    stopped: str = ""
    start_counts: bool = False  # whether the initial model may be the best
    first_loss: float | None = None  # loss per word of the first update
    vocabulary: str = ""  # digest of the words
