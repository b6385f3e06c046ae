"""Define the settings of distillation, the training by the words of other models."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT


@dataclass(frozen=True, config=STRICT)
class DistillationSettings:
    """The teachers and the loss of ``training.objective = "distil"``.

    The equation is in :mod:`show_attend_tell.training.distillation`.

    Attributes:
        teachers: models whose mean word probabilities are learnt: ``.keras`` files,
            names of experiments whose runs are in the same folder, ``shipped`` or
            ``shipped-lstm``.
        temperature: divisor of the logits of teachers and student.
        truth_weight: weight, 0 to 1, of the likelihood of the given captions; the rest
            is that of the teachers.
    """

    teachers: tuple[str, ...] = ()
    temperature: Annotated[float, Field(gt=0)] = 1.0
    truth_weight: Annotated[float, Field(ge=0, le=1)] = 0.0

    def check(self, objective: str, attention: str) -> None:
        """Validate the settings for an objective and a type of attention.

        Raises:
            ValueError: there are teachers without ``distil``, or ``distil`` without
                teachers or with hard attention.
        """
        if (objective == "distil") != bool(self.teachers):
            raise ValueError(
                "distillation.teachers must name models if, and only if, objective = "
                f"'distil'. Received: objective = {objective!r}, "
                f"teachers = {list(self.teachers)}"
            )
        if objective == "distil" and attention == "hard":
            raise ValueError(
                "objective = 'distil' must go with attention = 'soft'. Received: "
                "attention = 'hard'; train hard attention by likelihood"
            )
