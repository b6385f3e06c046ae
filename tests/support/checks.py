"""Compare the numbers of captioners with the numbers of an oracle."""

import numpy as np
import oracle
import pytest
from tiny_captioner import END, PAD, START, TOLERANCE

from show_attend_tell.reference.beam import softmax


def assert_same_outputs(found, expected):
    """Compare ``logits``, ``alpha`` and ``beta`` of given words."""
    for name in ("logits", "alpha", "beta"):
        np.testing.assert_allclose(
            found[name], expected[name], **TOLERANCE, err_msg=name
        )


def assert_equal_leaves(one, other):
    """Compare two structures of arrays to the last bit."""
    import keras

    for a, b in zip(*map(keras.tree.flatten, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def assert_hypotheses_are_read(found, read, rtol=1e-4, atol=1e-5):
    """Compare every hypothesis with an oracle that reads its words.

    Args:
        found: hypotheses of NumPy arrays.
        read: function of the photo b, the hypothesis w and the words from <start> on;
            returns ``logits`` (T, K), ``alpha`` (T, L) and ``beta`` (T,).
        rtol: relative tolerance.
        atol: absolute tolerance.
    """
    for b, w in np.ndindex(found.lengths.shape):
        T = found.lengths[b, w]
        words = found.tokens[b, w, :T]
        assert (found.tokens[b, w, T:] == PAD).all()
        assert (found.locations[b, w, T:] == -1).all()
        if not T:
            continue
        expected = read(b, w, [START, *words[:-1]])
        log_probs = oracle.word_log_likelihoods(expected["logits"], words)
        each = found.word_log_probs[b, w, :T]
        np.testing.assert_allclose(each, log_probs, rtol, 10 * atol)
        assert found.log_probs[b, w] == pytest.approx(sum(log_probs), rel=rtol)
        assert found.finished[b, w] == (words[-1] == END)
        for name in ("alpha", "beta"):
            values = getattr(found, name)[b, w, :T]
            np.testing.assert_allclose(values, expected[name], rtol, atol)


def mean_of_reads(reads):
    """Return what an ensemble reads: mean probabilities, attention and gates."""
    p = [softmax(read["logits"]) for read in reads]
    means = {n: np.mean([read[n] for read in reads], axis=0) for n in ("alpha", "beta")}
    return {"logits": np.log(np.mean(p, axis=0)), **means}
