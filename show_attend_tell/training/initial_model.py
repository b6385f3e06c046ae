"""Load the model that a training starts from, and add its words to the vocabulary."""

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.initial_weights import copy_weights
from show_attend_tell.models.pretrained import model_path
from show_attend_tell.models.saving import load_captioner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InitialModel:
    """A model that a training starts from.

    Attributes:
        path: its file.
        captioner: the model.
    """

    path: Path
    captioner: Captioner

    @classmethod
    def load(cls, source: str, runs_folder: str | Path) -> "InitialModel":
        """Load the model of ``training.init_from``.

        Args:
            source: the setting, see :func:`models.pretrained.model_path`.
            runs_folder: the folder of all runs.

        Raises:
            ModelFileError, PretrainedModelError: the model cannot be loaded.
        """
        path = model_path(source, runs_folder)
        return cls(path, load_captioner(path))

    def extend(self, prepared: Vocabulary) -> Vocabulary:
        """Return the model's words, then those of the prepared data that are new."""
        known = self.captioner.vocabulary
        extended = known.extended(prepared)
        new = extended.words[len(known) :]
        if new:
            shown = ", ".join(new[:10]) + ", ..." * (len(new) > 10)
            logger.info(
                "%s: %d words are kept, %d are new: %s",
                self.path,
                len(known),
                len(new),
                shown,
            )
        return extended

    def copy_to(
        self, model: Captioner, data: Split, identity: dict | None = None
    ) -> None:
        """Set the weights of the model to train, by :func:`copy_weights`.

        Args:
            model: the model to train.
            data: the training photos, whose captions give the words' frequencies.
            identity: see :func:`copy_weights`.
        """
        counts = Counter(
            word for captions in data.captions for words in captions for word in words
        )
        copy_weights(self.path, model, counts, self.captioner, identity)


def vocabulary_of_run(
    experiment: Experiment, runs_folder: str | Path, prepared: Vocabulary
) -> Vocabulary:
    """Return the vocabulary of a run that is resumed.

    Args:
        experiment: the settings; its name is that of the run's folder.
        runs_folder: the folder of all runs.
        prepared: the vocabulary of the prepared data, that of most runs.
    """
    path = Path(runs_folder) / experiment.name / runs.VOCABULARY
    return Vocabulary.load(path) if path.is_file() else prepared
