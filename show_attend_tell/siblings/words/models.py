"""Define the model of experiments that read words, and the one in the package."""

from pathlib import Path

from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.siblings.words.model import Reader


def _reader_of(experiment):
    return Reader, {"settings": experiment.reader}


READERS = TaskModels(
    task="read",
    classes=(Reader,),
    arguments_of=_reader_of,
    # Its run has the changes of the row `read_words_wide`.
    shipped=Path(__file__).parent / "weights" / "read_words.safetensors",
)
