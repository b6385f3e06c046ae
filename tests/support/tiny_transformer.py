"""Build a Transformer captioner small enough to recompute; sizes of tiny_captioner."""

import sys

import numpy as np
import tiny_captioner as tiny
from nightly import others_nightly

from show_attend_tell.config.settings import TransformerSettings
from show_attend_tell.reference import transformer

d, H, F, N = 8, 2, 12, 2
VARIANTS = {
    "the default": {},
    "post": {"norm": "post", "alpha_head": 2},
    "encoder layers": {"encoder_layers": 2, "alpha_layer": 1},
    "encoder layers, post": {"encoder_layers": 1, "norm": "post"},
    "no positions, not tied": {"positions": "none", "tie_output": False},
    "one head": {"heads": 1, "layers": 1},
}
# Of both decoders: the module that builds the captioner, and the changes.
EVERY_VARIANT = {
    **{f"lstm, {name}": (tiny, changes) for name, changes in tiny.VARIANTS.items()},
    **{
        f"transformer, {name}": (sys.modules[__name__], changes)
        for name, changes in VARIANTS.items()
    },
}
# The names of all variants, for tests that take seconds a variant.
VARIANT_CASES = others_nightly(
    EVERY_VARIANT,
    kept=(
        "lstm, the default",
        "lstm, the photo once",
        "transformer, the default",
        "transformer, encoder layers, post",
    ),
)


def settings(**changes):
    """Return the settings of the tiny Transformer, without dropout."""
    sizes = {"layers": N, "width": d, "heads": H, "hidden": F, "dropout": 0.0}
    return TransformerSettings(**{**sizes, **changes})


def build(rng, spread=0.5, arguments=None, model=None, **changes):
    """Return a tiny Transformer captioner whose every weight is random.

    Args:
        rng: random numbers of the weights.
        spread: their deviation; large enough that captions differ.
        arguments: arguments of the Captioner.
        model: settings of the table [model].
        changes: settings of the table [transformer].
    """
    arguments = {"transformer": settings(**changes), **(arguments or {})}
    return tiny.build(rng, arguments, spread, decoder="transformer", **(model or {}))


def weights(model):
    """Return the decoder's weights in float64, by path."""
    return {w.path: np.asarray(w, np.float64) for w in model.decoder.weights}


def expected(model, annotations, tokens, bias=None):
    """Return the reference's outputs for a batch: dict of arrays (B, ...)."""
    p, s = weights(model), model.transformer
    biases = [None] * len(tokens) if bias is None else bias
    rows = [
        transformer.read(p, s, a.astype(float), words, model.grid, bias=b)
        for a, words, b in zip(annotations, tokens, biases, strict=True)
    ]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
