"""One model from several: the mean of their weights.

Models that were trained further from the same start lie close together, and the mean
of their weights tends to write better captions than each of them, at the cost of one
(model soups, Wortsman et al., ICML 2022).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import copy_weights, load_captioner
from show_attend_tell.runtime.errors import ModelFileError


def average_models(
    paths: Sequence[str | Path],
    experiment: Experiment,
    runs_folder: str | Path = "experiments/runs",
    overwrite: bool = False,
) -> Path:
    """Write the mean of models as an experiment's run; it decodes as that says.

    Args:
        paths: two model files or more, of the same words, encoder and widths.
        experiment: names the run; its decoding settings go into the model.
        runs_folder: where the run folder is made.
        overwrite: replace an earlier run of the same name.

    Returns:
        The model's file.

    Raises:
        ModelFileError: there are fewer than two models, or one cannot be read or does
            not go with the first.
        RunError: a run lies there already.
    """
    if len(paths) < 2:
        raise ModelFileError(
            f"`models` must be two or more. Received: {len(paths)}; name the models of "
            "several trainings from the same start"
        )
    model = load_captioner(paths[0])
    sums = [np.asarray(weight, np.float64) for weight in model.weights]
    other = Captioner.from_config(model.get_config())
    for path in paths[1:]:
        copy_weights(path, other)
        sums = [s + np.asarray(w) for s, w in zip(sums, other.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(paths))
    model.decoding = dataclasses.asdict(experiment.decoding)
    # Last, for it may replace a run, also one of those that were read.
    out = runs.open_run(experiment, runs_folder, False, overwrite) / runs.MODEL
    temporary = out.with_name("saving-" + out.name)
    model.save(temporary)
    temporary.replace(out)
    return out
