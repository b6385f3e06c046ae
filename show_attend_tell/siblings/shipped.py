"""Name the models of digits and words in the package.

Their files have 8 bits per weight. ``export`` writes them from the runs of the
experiments with the same names.
"""

from importlib.resources import files
from pathlib import Path

from show_attend_tell.runtime.errors import PretrainedModelError

FOLDER = Path(str(files(__package__))) / "weights"
# The experiments whose models are in the package.
SHIPPED = {"classify": "ram_mnist", "generate": "draw_mnist", "read": "read_words"}


def shipped_file(task: str) -> Path:
    """Return the file of the package's model of a task.

    Raises:
        PretrainedModelError: the installation has no such model.
    """
    name = SHIPPED[task]
    path = FOLDER / f"{name}.keras"
    if not path.is_file():
        raise PretrainedModelError(
            f"{path}: this installation has no trained {name}; train one with "
            f"`make prepare train EXPERIMENT={name}`, and name the model of its run"
        )
    return path
