"""The expected gradient of sampled captions, by enumeration of all of them."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tiny_captioner import END, GRID, PAD, D, photos, settings

from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.self_critical import (
    FORBIDDEN,
    advantages,
    compile_sampler,
    sampled_loss,
    to_batch,
)

WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "b")
LENGTH = 2
# Every caption of at most two words, with its end word if it has one.
SENTENCES = np.array(
    [[END, PAD], [4, END], [5, END], [4, 4], [4, 5], [5, 4], [5, 5]], np.int32
)
REWARDS = np.array([0.3, 2.0, 0.1, 1.5, 4.0, 0.7, 2.5])


@pytest.fixture
def model(rng):
    """A captioner that gives <unk> a third of the probability of each word."""
    model = Captioner(
        WORDS, settings(), annotation_width=D, grid=GRID, doubly_stochastic=0.0
    )
    for weight in model.trainable_weights:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    return model


@pytest.fixture
def batch(rng):
    """All sentences of one photo as a training batch."""
    inputs, targets = to_batch(SENTENCES[None], np.ones((1, len(SENTENCES)), bool))
    features = np.repeat(photos(rng, 1), len(SENTENCES), axis=0)
    return {"annotations": features, "tokens": inputs}, targets


def log_q(model, x, targets):
    """Return log p of each sentence, renormalised over the words that are sampled."""
    logits = model(x)["logits"]
    allowed = [word for word in range(len(WORDS)) if word not in FORBIDDEN]
    totals = tf.reduce_logsumexp(tf.gather(logits, allowed, axis=-1), axis=-1)
    own = tf.gather(logits, targets, batch_dims=2) - totals  # (B, T)
    return tf.reduce_sum(tf.where(targets == PAD, 0.0, own), axis=-1)


def flat(gradient):
    return np.concatenate([tf.convert_to_tensor(g).numpy().ravel() for g in gradient])


def true_gradient(model, x, targets):
    """Return q of each sentence and the gradient of minus the expected reward."""
    with tf.GradientTape() as tape:
        q = tf.exp(log_q(model, x, targets))
        loss = -tf.reduce_sum(q * REWARDS.astype("f4"))
    return q.numpy().astype(float), flat(tape.gradient(loss, model.trainable_weights))


def score_gradients(model, x, targets):
    """Return, for each sentence, the gradient that an advantage of 1 has alone."""
    rows = []
    for one in np.eye(len(SENTENCES), dtype="f4"):
        with tf.GradientTape() as tape:
            # The loss is a mean over the batch.
            loss = sampled_loss(model, x, targets, one) * len(SENTENCES)
        rows.append(flat(tape.gradient(loss, model.trainable_weights)))
    return np.array(rows)


def expected_gradient(q, scores, samples, advantage):
    """Return the mean, over all tuples of sentences, of the gradient of a tuple."""
    total = np.zeros(scores.shape[1])
    for drawn in itertools.product(range(len(q)), repeat=samples):
        drawn = list(drawn)
        weight = advantage(REWARDS[drawn])
        total += np.prod(q[drawn]) * (weight @ scores[drawn]) / samples
    return total


@pytest.mark.parametrize("samples", [2, 3])
def test_the_mean_gradient_of_samples_is_that_of_the_expected_reward(
    model, batch, samples
):
    def leave_one_out(rewards):
        return advantages(rewards[None], np.ones((1, samples), bool))[0]

    q, expected = true_gradient(model, *batch)
    assert q.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(expected).max() > 0.05
    scores = score_gradients(model, *batch)
    found = expected_gradient(q, scores, samples, leave_one_out)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("samples", [2, 3])
def test_a_baseline_of_all_samples_would_shrink_the_gradient(model, batch, samples):
    q, expected = true_gradient(model, *batch)
    scores = score_gradients(model, *batch)
    found = expected_gradient(q, scores, samples, lambda r: r - r.mean())
    shrunk = expected * (samples - 1) / samples
    np.testing.assert_allclose(found, shrunk, atol=1e-6)


def test_the_compiled_sampler_has_the_probabilities_of_the_loss(rng, model, batch):
    q, _ = true_gradient(model, *batch)
    P, n = 4, 1500
    features = np.repeat(batch[0]["annotations"][:1], P, axis=0)
    noise = rng.random((P, n, LENGTH), np.float32)
    found = compile_sampler(model)(*map(tf.convert_to_tensor, (features, noise)))
    tokens, lengths, finished = (x.numpy() for x in found)
    np.testing.assert_array_equal(lengths, (tokens != PAD).sum(axis=-1))
    np.testing.assert_array_equal(finished, (tokens == END).any(axis=-1))
    drawn = tokens.reshape(-1, LENGTH)
    counts = [(drawn == sentence).all(axis=1).sum() for sentence in SENTENCES]
    assert sum(counts) == P * n
    assert stats.chisquare(counts, q / q.sum() * P * n).pvalue > 0.01
