"""Captions with all their details, made without a model."""

from pathlib import Path

import numpy as np

from show_attend_tell.inference.result import Caption

GRID = (3, 4)


def make_alpha(peaks, grid=GRID):
    """Return attention (T, rows, columns), mostly at one location for each word."""
    rows, columns = grid
    alpha = np.full((len(peaks), rows * columns), 0.1 / (rows * columns - 1))
    alpha[np.arange(len(peaks)), peaks] = 0.9
    return alpha.reshape(-1, rows, columns).astype(np.float32)


def sentence(text, peaks, **more):
    """Return the fields that captions and alternatives share."""
    words = tuple(text.split(" ")) if text else ()
    T = len(words)
    return {
        "text": text,
        "words": words,
        "log_prob": -1.25 * T,
        "score": -1.0 * T,
        "word_log_probs": np.log(np.linspace(0.9, 0.5, T, dtype=np.float32)),
        "attention": make_alpha(peaks),
        "beta": np.linspace(0.2, 0.8, T, dtype=np.float32),
        **more,
    }


VIEW = np.full((90, 120, 3), 160, np.uint8)


def make_caption(
    text="a red <b>", peaks=(0, 6, 11), path="photo.jpg", view=VIEW, **more
):
    """Return a caption of a grey photo with two alternatives."""
    photo = {
        "path": Path(path),
        "end_log_prob": -0.5,
        "square": np.zeros((64, 64, 3), np.uint8),
        "view": view,
    }
    others = (("a blue circle", (1, 6, 11)), ("one", (3,)))
    return Caption(
        **sentence(text, peaks, **more),
        **photo,
        alternatives=tuple(Caption(**sentence(*other), **photo) for other in others),
    )
