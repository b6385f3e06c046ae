"""Start a training from a trained model, and average models fine-tuned from it.

Models fine-tuned from the same initial model are close to each other in weight space,
and the mean of their weights tends to score higher than each of them at the cost of one
model (model soups, Wortsman et al., ICML 2022). The average of the weights along one
training (EMA) is in :mod:`training.optimizer`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.initial_weights import copy_weights
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path

logger = logging.getLogger(__name__)


def extend_vocabulary(
    path: Path, initial: Captioner, prepared: Vocabulary
) -> Vocabulary:
    """Return a model's words, followed by the new words of the prepared data."""
    known = initial.vocabulary
    extended = known.extended(prepared)
    if new := extended.words[len(known) :]:
        logger.info(
            "%s: %d words are kept, %d are new: %s",
            path,
            len(known),
            len(new),
            ", ".join(new[:10]) + ", ..." * (len(new) > 10),
        )
    return extended


def average_models(
    paths: Sequence[str | Path],
    experiment: Experiment,
    runs_folder: str | Path = "experiments/runs",
    overwrite: bool = False,
) -> Path:
    """Write the mean of several models as the run of an experiment.

    Args:
        paths: two model files or more, with the same words, encoder and widths.
        experiment: the experiment of the run; the model gets its decoding settings.
        runs_folder: folder of the run folder, which is made if absent.
        overwrite: replace an earlier run of the same name.

    Returns:
        The path of the new model.

    Raises:
        ModelFileError: there are fewer than two models, one cannot be read, or one
            does not fit the first.
        RunError: the run already exists.
    """
    if len(paths) < 2:
        raise ModelFileError(
            f"`models` must be two or more. Received: {len(paths)}; pass the models of "
            "several trainings from the same initial model"
        )
    model = load_captioner(paths[0])
    sums = [np.asarray(weight, np.float64) for weight in model.weights]
    other = Captioner.from_config(model.get_config())
    for path in paths[1:]:
        copy_weights(path, other)
        sums = [s + np.asarray(w) for s, w in zip(sums, other.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(paths))
    model.decoding = experiment.decoding
    # Last, as it may replace a run, even one whose model was read.
    out = runs.open_run(experiment, runs_folder, False, overwrite) / runs.MODEL
    with atomic_path(out) as temporary:
        model.save(temporary)
    return out
