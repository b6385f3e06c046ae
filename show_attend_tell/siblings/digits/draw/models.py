"""Define the model of experiments that generate, and the one in the package."""

from pathlib import Path

from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.siblings.digits.draw.model import Draw


def _generator_of(experiment):
    side = experiment.data.canvas
    return Draw, {"settings": experiment.draw, "height": side, "width": side}


GENERATORS = TaskModels(
    task="generate",
    classes=(Draw,),
    arguments_of=_generator_of,
    shipped=Path(__file__).parents[1] / "weights" / "draw_mnist.safetensors",
)
