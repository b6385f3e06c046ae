"""Define the model of experiments that read words, and the reader in the package."""

from pathlib import Path

from show_attend_tell.siblings.common.models import TaskModels
from show_attend_tell.siblings.words.model import Reader


def _reader_of(experiment):
    return Reader, {"settings": experiment.reader}


# The reader in the package has the changes of the row `read_words_wide`.
READERS = TaskModels(
    "read",
    (Reader,),
    _reader_of,
    Path(__file__).parent / "weights" / "read_words.keras",
)
