"""A calibration of the tiny pipeline with made-up numbers, and hypotheses to judge."""

import dataclasses
import functools
import tempfile
from pathlib import Path

import numpy as np
from tiny_pipeline import save_for_numpy

from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.confidence import Calibration, PhotoSpace
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.inference.tags import TagCalibration
from show_attend_tell.reference.hypotheses import Hypotheses

_NOUNS = ("dog", "grass", "cat", "ball", "tree", "boy", "car", "man")
VOCABULARY = Vocabulary((*SPECIAL, "dog", "hot", "dogs", "cat", "ball"))
_FOLDER = tempfile.TemporaryDirectory()


def make_space(grid=(5, 2), width=4, k=3, words=(4, 6, 7), seed=0) -> PhotoSpace:
    """Return a distribution of photos with random values."""
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(3 * width, k)))
    return PhotoSpace(
        grid=grid,
        mean=rng.uniform(0.1, 0.4, 3 * width),
        components=directions,
        variances=np.array([0.3, 0.1, 0.02])[:k],
        layout=rng.normal(size=width),
        words=np.array(words),
        shares=rng.uniform(0.05, 0.3, len(words)),
        word_weights=rng.normal(0, 0.1, (k, len(words))),
    )


def make_calibration(space: PhotoSpace, seed=1) -> Calibration:
    """Return a calibration with random coefficients."""
    rng = np.random.default_rng(seed)
    return Calibration(
        space,
        centre=rng.normal(size=7),
        scale=rng.uniform(0.5, 2, 7),
        familiarity=rng.normal(size=6),
        quality=rng.normal(size=3),
        tags=TagCalibration(rng.normal(size=5)),
    )


def make_hypotheses(photos=5, beam=2, most=6, words=9, seed=2) -> Hypotheses:
    """Return hypotheses of lengths 1 to `most` with random words."""
    rng = np.random.default_rng(seed)
    shape = (photos, beam, most)
    lengths = 1 + np.arange(photos * beam).reshape(photos, beam) % most
    written = np.arange(most) < lengths[..., None]
    log_p = np.where(written, -rng.exponential(size=shape), 0)
    return Hypotheses(
        tokens=np.where(written, rng.integers(2, words, shape), 0),
        lengths=lengths,
        log_probs=log_p.sum(-1),
        scores=log_p.sum(-1),
        word_log_probs=log_p,
        alpha=np.zeros((*shape, 10)),
        beta=np.zeros(shape),
        locations=np.full(shape, -1),
        finished=np.ones(shape[:2], bool),
    )


@functools.cache
def tagged_pipeline() -> CaptioningPipeline:
    """Return a pipeline of a file, with a calibration under which nouns are tags.

    Its candidates are such as "cat cat ball", so that cat is in all, and ball in some.
    """
    file = Path(_FOLDER.name) / "tagged.safetensors"
    save_for_numpy(file, words=_NOUNS, seed=5)
    engine = load(file, engine="numpy").engine
    space = make_space(engine.grid, engine.generator.annotation_width)
    calibration = dataclasses.replace(
        make_calibration(space),
        familiarity=np.array([0.0] * 5 + [9.0]),  # every photo is like the others
        quality=np.array([0.0] * 2 + [9.0]),
        tags=TagCalibration(np.array([0.5, 0.0, 0.0, 0.0, 0.0])),
    )
    return CaptioningPipeline(engine, None, file, calibration)
