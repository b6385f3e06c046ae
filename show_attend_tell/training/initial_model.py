"""Start a training from a trained model, and average models fine-tuned from it.

The captioner may have words that the initial model was not trained on. The weights of
the old words stay as they are, so their logits do too. A new word w has a row of E and
a column of L_o near the means of the old words', and the bias ::

    b_w = log f_w + mean over old words v of (b_v - log f_v)

where f is the frequency in the training captions: among words whose columns are alike,
it is as probable as it is frequent.

Models fine-tuned from the same initial model are close to each other in weight space,
and the mean of their weights tends to score higher than each of them at the cost of one
model (model soups, Wortsman et al., ICML 2022). The average of the weights along one
training (EMA) is in :mod:`training.optimizer`.
"""

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from show_attend_tell.config import runs
from show_attend_tell.config.captioner import DECODERS
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError

logger = logging.getLogger(__name__)

NOISE = 0.1  # deviation from the mean, in standard deviations of the old words
# The axis of the words in each weight that has one.
WORD_AXES = {"embedding": 0, "l_o": 1, "l_o_b": 0}
# Settings of a decoder without effect on the captions of given weights.
_WITHOUT_EFFECT = frozenset(
    "dropout embedding_dropout init_dropout channel_dropout fast_gradient "
    "scale_annotations initializer alpha_layer alpha_head".split()
)


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


def copy_weights(
    path: str | Path,
    model: Captioner,
    counts: Mapping[str, int] | None = None,
    source: Captioner | None = None,
) -> Captioner:
    """Copy the weights of a model file into a captioner; return the file's captioner.

    A soft model can start a hard model, and a hard model a soft one: they differ
    only in the baseline, which then starts at 0. A model of the mean annotation and
    one with attention can start each other as well.

    Args:
        path: path of the model file.
        model: the captioner; its weights are replaced.
        counts: word -> number of times that it occurs in the training captions; the
            captioner may then have further words, after the words of the file.
        source: the captioner of the file, if it is already loaded.

    Raises:
        ModelFileError: the file cannot be loaded, or its words, encoder, weights or
            switches differ from the captioner's.
    """
    source = source or load_captioner(path)
    old = len(source.vocabulary)
    words = model.vocabulary.words
    if source.vocabulary.words != words[:old] or (counts is None and old < len(words)):
        raise ModelFileError(
            f"{path}: its vocabulary is not that of the prepared data; start from a "
            "model trained on the same data"
        )
    if difference := identity_difference(
        source.encoder_identity, model.encoder_identity
    ):
        raise ModelFileError(
            f"{path}: it was trained on another encoder's features ({difference}); "
            "start from a model of the same encoder"
        )
    theirs = _shared_weights(source, model)
    ours = _shared_weights(model, source)
    copies = [
        extend_weight(w.name, np.asarray(w), model.vocabulary, counts or {})
        for w in theirs
    ]
    received = [(w.name, x.shape) for w, x in zip(theirs, copies, strict=True)]
    expected = [(w.name, tuple(w.shape)) for w in ours]
    # All are compared before the first is assigned; one list may be longer.
    for found, required in itertools.zip_longest(received, expected):
        if found != required:
            raise ModelFileError(
                f"{path}: its weights must have the shapes of the settings, "
                f"{required}. Received: {found}; start from a model of the same "
                "widths and switches"
            )
    _require_same_switches(path, source, model)
    for value, weight in zip(copies, ours, strict=True):
        weight.assign(value)
    return source


def _shared_weights(model: Captioner, other: Captioner) -> list:
    """Return a model's weights, without a baseline that `other` lacks."""
    excluded = set()
    if model.hard_attention is not None and other.hard_attention is None:
        excluded = {w.path for w in model.hard_attention.weights}
    return [w for w in model.weights if w.path not in excluded]


def extend_weight(
    name: str,
    values: np.ndarray,
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
) -> np.ndarray:
    """Extend a weight of the old words to a vocabulary that begins with them.

    Args:
        name: name of the weight; only weights of :data:`WORD_AXES` change.
        values: the weight.
        vocabulary: the old words, then the new words.
        counts: see :func:`copy_weights`.
    """
    axis = WORD_AXES.get(name)
    if axis is None or values.shape[axis] == len(vocabulary):
        return values
    old = values.shape[axis]
    if name == "l_o_b":
        new = _biases(values, vocabulary, counts)  # (new words,)
    else:
        # Special tokens are no words, so the mean leaves them out.
        rows = np.moveaxis(values, axis, 0)[len(SPECIAL) :]  # (old words, m)
        # E and L_o have the words on different axes, and so get different noise.
        rng = np.random.default_rng([0, axis])
        noise = rng.standard_normal((len(vocabulary) - old, rows.shape[1]))
        rows = rows.mean(axis=0) + NOISE * rows.std(axis=0) * noise
        new = np.moveaxis(rows, 0, axis)  # (new words, m) or (m, new words)
    return np.concatenate([values, new.astype(values.dtype)], axis=axis)


def _biases(
    biases: np.ndarray, vocabulary: Vocabulary, counts: Mapping[str, int]
) -> np.ndarray:
    """Return the biases of the new words, (new words,)."""
    words = vocabulary.words[len(SPECIAL) :]
    log_f = np.log([max(counts.get(word, 0), 0.5) for word in words])  # 0.5 if absent
    known = biases[len(SPECIAL) :]  # (old words,)
    shared = np.array([word in counts for word in words[: len(known)]], bool)
    # Data in another language share no word: then all old words give the offset.
    if not shared.any():
        shared[:] = True
    offset = np.mean(known[shared] - log_f[: len(known)][shared])
    return log_f[len(known) :] + offset


def _require_same_switches(
    path: str | Path, source: Captioner, model: Captioner
) -> None:
    """Raise a ModelFileError if a setting that no weight shows differs.

    Weights of one shape mean something else with another number of heads, for example.
    """
    theirs = _switches(source)
    for name, expected in _switches(model).items():
        if theirs[name] != expected:
            _refuse_switch(path, name, expected, theirs[name])


def _refuse_switch(
    path: str | Path, name: str, expected: object, received: object
) -> NoReturn:
    raise ModelFileError(
        f"{path}: its {name} must be {expected!r}. Received: {received!r}; take a "
        "model of the same widths and switches"
    )


def _switches(captioner: Captioner) -> dict[str, object]:
    """Return the decoder's settings that decide what its weights compute."""
    table = getattr(captioner, DECODERS[captioner.settings.decoder].table)
    values = dataclasses.asdict(table)
    # The kind of attention is compared where it matters, `_require_same_attention`.
    without_effect = {*_WITHOUT_EFFECT, "attention"}
    return {k: v for k, v in values.items() if k not in without_effect}


def _require_same_attention(
    path: str | Path, source: Captioner, model: Captioner
) -> None:
    """Raise a ModelFileError if the models caption by attention of another kind."""
    theirs = _kind_of_attention(source)
    expected = _kind_of_attention(model)
    if theirs != expected:
        _refuse_switch(path, "attention", expected, theirs)


def _kind_of_attention(captioner: Captioner) -> str:
    # Hard attention captions from the expected context, as soft attention does.
    return "soft" if captioner.settings.attends else captioner.settings.attention


def average_models(
    paths: Sequence[str | Path],
    experiment: Experiment,
    runs_folder: str | Path = "experiments/runs",
    overwrite: bool = False,
) -> Path:
    """Write the mean of several models as the run of an experiment.

    Args:
        paths: two model files or more, with the same words, encoder, widths and
            switches.
        experiment: the experiment of the run; the model gets its decoding settings.
        runs_folder: folder of the run folder, which is made if absent.
        overwrite: replace an earlier run of the same name.

    Returns:
        The path of the new model.

    Raises:
        ModelFileError: there are fewer than two models, one cannot be read, or one
            does not fit the first: its words, encoder, widths or switches differ.
        TrainingError: the run already exists, or another process is training it.
    """
    if len(paths) < 2:
        raise ModelFileError(
            f"`models` must be two or more. Received: {len(paths)}; pass the models of "
            "several trainings from the same initial model"
        )
    model = load_captioner(paths[0])
    # A running sum: however many models are averaged, two are in memory beside it.
    sums = [np.asarray(weight, np.float64) for weight in model.weights]
    other = Captioner.from_config(model.get_config())
    for path in paths[1:]:
        _require_same_attention(path, copy_weights(path, other), model)
        sums = [s + np.asarray(w) for s, w in zip(sums, other.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(paths))
    model.decoding = experiment.decoding
    # Last, as it may replace a run, even one whose model was read.
    with runs.lock_run(experiment, runs_folder):
        out = runs.open_run(experiment, runs_folder, False, overwrite) / runs.MODEL
        model.save(out)
    return out
