"""Trainings of a few updates, and the comparison of two run folders."""

import json
import zipfile

import keras
import numpy as np
from tiny_run import experiment

from show_attend_tell.config.runs import CHECKPOINT, MODEL
from show_attend_tell.training import train as training
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.train import train

STEPS = 3  # updates per epoch: 18 captions in batches of 8


def score_weights(model, *rest):
    """Scores that follow from the weights, in place of those of captions."""
    value = float(np.sum(np.abs(np.asarray(model.decoder.l_o)))) % 1.0
    return {"BLEU-4": 100 * value, "CIDEr": 1.0}, {}


def skip_captions(patch):
    """Write no captions and draw no samples while training, to save time."""
    patch.setattr(training, "validate", score_weights)
    patch.setattr(TrainingLog, "samples", lambda *arguments: None)


def go(work, folder, resume=False, overwrite=False, **changes):
    chosen = experiment(**changes)
    return train(chosen, work, folder, resume, overwrite, progress=False)


def read_checkpoint(folder):
    """Return the arrays and the position of a run's checkpoint."""
    with zipfile.ZipFile(folder / "tiny" / CHECKPOINT) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        arrays = {name: np.load(archive.open(name)) for name in names}
        return arrays, json.loads(archive.read("position.json"))


def assert_same_run(one, other):
    """Compare two run folders: last weights, optimiser, position, best model."""
    (arrays, position), (others, other_position) = map(read_checkpoint, (one, other))
    assert position == other_position
    assert arrays.keys() == others.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)
    models = [keras.saving.load_model(f / "tiny" / MODEL) for f in (one, other)]
    for ours, theirs in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
