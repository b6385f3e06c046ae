"""Teacher forcing recomputes the papers, with each decoder; dropout."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
from checks import assert_same_outputs
from nightly import nightly
from tiny_captioner import MODES, B, D, K, L, T, arrays
from tiny_transformer import EVERY_VARIANT


@pytest.mark.parametrize(
    ("decoder", "changes", "mode"),
    [
        *((*variant, "eager") for variant in EVERY_VARIANT.values()),
        (tiny, {}, "jit"),
        *nightly(*((tiny_transformer, {}, mode) for mode in MODES if mode != "eager")),
        *nightly(*((tiny, {}, mode) for mode in MODES if mode == "graph")),
    ],
)
def test_call_recomputes_the_papers_and_every_variant(
    rng, batch, decoder, changes, mode
):
    model = decoder.build(rng, **changes)
    found = tiny.outputs_of(model, *batch[:2], mode)
    assert found["logits"].shape == (B, T, K)
    assert_same_outputs(found, decoder.expected(model, *batch[:2]))


def test_annotations_are_divided_by_their_deviation(rng, batch):
    model = tiny.build(rng)
    model.set_annotation_scale(4.0)
    found = tiny.outputs_of(model, *batch[:2])
    assert_same_outputs(found, tiny.expected(model, *batch[:2], 0.25))


OF_MODEL = ({"embedding_dropout": 0.5}, {"channel_dropout": 0.5})


@pytest.mark.parametrize(
    ("build", "attention_moves"),
    [
        # around the readout alone, and after f_init's ReLU
        (lambda rng: tiny.build(rng, dropout=0.5), False),
        (lambda rng: tiny.build(rng, dropout=0.5, init_layers=2), True),
        (lambda rng: tiny.build(rng, init_dropout=0.5), True),
        *((lambda rng, own=own: tiny.build(rng, **own), True) for own in OF_MODEL),
        (lambda rng: tiny_transformer.build(rng, dropout=0.5), True),
        (lambda rng: tiny_transformer.build(rng, dropout=0.5, encoder_layers=1), True),
        *(
            (lambda rng, own=own: tiny_transformer.build(rng, model=own), True)
            for own in OF_MODEL
        ),
    ],
)
def test_each_dropout_acts_in_training_only(rng, batch, build, attention_moves):
    model = build(rng)
    inputs = {"annotations": batch[0], "tokens": batch[1]}
    quiet = [arrays(model(inputs)) for _ in range(2)]
    noisy = [arrays(model(inputs, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(quiet[0]["logits"], quiet[1]["logits"])
    assert np.abs(noisy[0]["logits"] - noisy[1]["logits"]).max() > 1e-3
    moved = np.abs(noisy[0]["alpha"] - noisy[1]["alpha"]).max() > 1e-5
    assert moved == attention_moves


def test_channels_are_dropped_at_all_locations_of_a_photo_together(rng):
    model = tiny.build(rng, channel_dropout=0.5)
    ones = np.ones((20, L, D), np.float16)
    kept = np.asarray(model.scaled_annotations(ones, training=True))
    assert set(np.unique(kept)) == {0.0, 2.0}
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:, :1], kept.shape))
    assert len(np.unique(kept[:, 0], axis=0)) > 1


def test_an_unknown_number_of_words_is_refused_in_one_line(model):
    symbolic = {
        "annotations": keras.KerasTensor((B, L, D)),
        "tokens": keras.KerasTensor((B, None), "int32"),
    }
    with pytest.raises(ValueError, match="pad every batch to a fixed T"):
        model.call(symbolic)
