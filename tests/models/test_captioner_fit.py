"""The captioner as a Keras model: fit, evaluate, predict, metrics."""

import hard_model
import keras
import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from tiny_captioner import LENGTHS, B, T

from show_attend_tell.config.settings import DecodingSettings

# TensorFlow traces a graph without it; JAX would run operation by operation.
XLA = keras.backend.backend() == "jax"


@pytest.mark.nightly
def test_fit_overfits_four_captions_and_generate_returns_them():
    """One caption of two words for each of four photos."""
    seeded = np.random.default_rng(1502_03044)
    wider = {"lstm_width": 16, "embedding_width": 8}
    model = tiny.build(seeded, {"doubly_stochastic": 0.0}, spread=0.3, **wider)
    a = tiny.photos(seeded, 4)
    inputs = np.array([[1, 4, 5, 0], [1, 6, 7, 0], [1, 8, 9, 0], [1, 10, 4, 0]], "i4")
    targets = np.array([[4, 5, 2, 0], [6, 7, 2, 0], [8, 9, 2, 0], [10, 4, 2, 0]], "i4")
    model.compile(optimizer=keras.optimizers.Adam(0.03), jit_compile=XLA)
    repeated = [
        np.tile(values, (40, *[1] * (values.ndim - 1)))
        for values in (a, inputs, targets)
    ]
    x, y = {"annotations": repeated[0], "tokens": repeated[1]}, repeated[2]
    history = model.fit(x, y, batch_size=4, epochs=5, shuffle=False, verbose=0).history
    x = {"annotations": a, "tokens": inputs}
    assert history["loss"][-1] < 0.05 < history["loss"][0]
    assert history["word_loss"][-1] < 0.02
    assert (np.diff(history["loss"]) < 0).all()
    how = DecodingSettings(method="greedy", max_words=T, batch_size=4)
    found = model.generate(x["annotations"], how)
    np.testing.assert_array_equal(found.tokens[:, 0], targets)
    assert found.finished[:, 0].all()
    outputs = tiny.expected(model, x["annotations"], x["tokens"])
    predicted = model.predict(x, batch_size=2, verbose=0)
    np.testing.assert_allclose(predicted["logits"], outputs["logits"], 1e-4, 1e-4)


@pytest.mark.nightly
def test_hard_attention_is_fitted_too(rng, batch):
    hard = {"samples": 2, "baseline": "samples", "drawn_per": "caption"}
    model = hard_model.build(rng, hard)
    model.compile(optimizer=keras.optimizers.Adam(0.03), jit_compile=XLA)
    a, inputs, targets = (np.tile(x, (20, *[1] * (x.ndim - 1))) for x in batch)
    x = {"annotations": a, "tokens": inputs}
    history = model.fit(x, targets, batch_size=6, epochs=3, verbose=0).history
    assert history["word_loss"][-1] < history["word_loss"][0] - 0.3
    assert 0.3 < history["sampled"][-1] < 0.7
    assert float(model.hard_attention.baseline) < -0.1
    values = model.evaluate(x, targets, batch_size=6, verbose=0, return_dict=True)
    assert values["sampled"] == 0  # from the expected context


def test_metrics_are_means_per_word_and_per_caption_without_smoothing(rng, batch):
    model = tiny.build(rng, {"doubly_stochastic": 2.0, "label_smoothing": 0.3})
    empty = [np.concatenate([x, np.zeros_like(x[:2])]) for x in batch]
    model.compile(optimizer="sgd", run_eagerly=True)
    x = {"annotations": empty[0], "tokens": empty[1]}
    values = model.evaluate(x, empty[2], verbose=0, return_dict=True)
    assert set(values) == {"loss", "word_loss", "attention_loss"}
    outputs = tiny.expected(model, *batch[:2])
    parts = np.sum(
        [
            oracle.caption_loss(
                outputs["logits"][b, :length],
                outputs["alpha"][b, :length],
                batch[2][b, :length],
                strength=2.0,
            )
            for b, length in enumerate(LENGTHS)
        ],
        axis=0,
    )
    assert values["word_loss"] == pytest.approx(parts[0] / sum(LENGTHS), rel=1e-5)
    assert values["attention_loss"] == pytest.approx(parts[1] / B, rel=1e-5)
    assert values["loss"] == pytest.approx(parts.sum() / B, rel=1e-5)
    smoothed = tiny.loss_of(model, *batch, training=True)
    assert smoothed != pytest.approx(values["loss"], rel=1e-3)
