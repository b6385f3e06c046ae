"""A captioner with a Transformer generates, averages and is saved as any other."""

import keras
import numpy as np
import pytest
import tiny_captioner
import tiny_transformer as tiny
from checks import assert_equal_leaves
from tiny_captioner import END, START, B, K, T, arrays, outputs_of, write

from show_attend_tell.config.settings import ModelSettings
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.initial_weights import copy_weights
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ConfigError, ModelFileError

PHOTOS, WORDS = 4, 4
LARGE = {"spread": 1.5, "tie_output": False}  # so that captions differ


@pytest.fixture(scope="module")
def model():
    return tiny.build(np.random.default_rng(8), **LARGE)


@pytest.fixture(scope="module")
def photos():
    return tiny_captioner.photos(np.random.default_rng(9), PHOTOS)


def test_a_saved_model_is_the_same_model(rng, photos, tmp_path):
    arguments = {"decoding": {"beam": 4}, "seed": 7}
    model = tiny.build(rng, arguments=arguments, encoder_layers=1, alpha_layer=1)
    model.set_annotation_scale(3.0)
    model.save(tmp_path / "model.keras")
    loaded = load_captioner(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert loaded.transformer == model.transformer
    assert_equal_leaves(model.get_weights(), loaded.get_weights())
    words = rng.integers(1, K, (PHOTOS, T))
    before, after = (outputs_of(one, photos, words) for one in (model, loaded))
    np.testing.assert_array_equal(after["logits"], before["logits"])


def test_an_lstms_weights_are_refused_in_one_line(rng, model, tmp_path):
    tiny_captioner.build(rng).save(tmp_path / "lstm.keras")
    with pytest.raises(ModelFileError, match="widths and switches") as caught:
        copy_weights(tmp_path / "lstm.keras", model)
    assert "\n" not in str(caught.value)


def test_single_locations_are_refused_in_one_line(model, photos):
    message = r"`locations` must be 'expected' .* Received: 'likeliest'"
    with pytest.raises(ConfigError, match=message):
        write(model, photos, locations="likeliest", method="greedy")


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({"dropout": 0.5}, {}),
        ({"dropout": 0.5, "encoder_layers": 1}, {}),
        ({}, {"embedding_dropout": 0.5}),
        ({}, {"channel_dropout": 0.5}),
    ],
)
def test_each_dropout_acts_in_training_only(rng, changes, model):
    model = tiny.build(rng, model=model, **changes)
    a, inputs, _ = tiny_captioner.batch(rng)
    x = {"annotations": a, "tokens": inputs}
    quiet = [arrays(model(x))["logits"] for _ in range(2)]
    noisy = [arrays(model(x, training=True))["logits"] for _ in range(2)]
    np.testing.assert_array_equal(quiet[0], quiet[1])
    assert np.abs(noisy[0] - noisy[1]).max() > 1e-3


def test_attention_in_heads_is_that_of_the_chosen_words_and_an_lstm_has_none(
    model, photos
):
    inputs = np.array([[START, 4, 5]] * PHOTOS)
    heads = model.attention_heads(photos, inputs)
    expected = tiny.expected(model, photos, inputs)["heads"]
    np.testing.assert_allclose(heads, expected, rtol=1e-3, atol=1e-5)
    lstm = tiny_captioner.build(np.random.default_rng(4))
    assert lstm.attention_heads(photos, inputs) is None
    assert B != PHOTOS  # the batches above are of another size


@pytest.mark.slow
def test_fit_learns_two_captions_and_generate_returns_them(rng):
    model = Captioner(
        tiny_captioner.WORDS,
        ModelSettings(decoder="transformer"),
        tiny_captioner.D,
        tiny_captioner.GRID,
        doubly_stochastic=0.1,
        transformer=tiny.settings(width=16, hidden=32, tie_output=True),
    )
    a = tiny_captioner.photos(rng, 2)
    inputs = np.array([[START, 4, 5, 0], [START, 6, 7, 8]], "i4")
    targets = np.array([[4, 5, END, 0], [6, 7, 8, END]], "i4")
    model.compile(optimizer=keras.optimizers.Adam(0.01), jit_compile=False)
    x = {"annotations": np.tile(a, (60, 1, 1)), "tokens": np.tile(inputs, (60, 1))}
    model.fit(x, np.tile(targets, (60, 1)), batch_size=2, verbose=0)
    captions = write(model, a, method="greedy")
    np.testing.assert_array_equal(captions.tokens[:, 0], targets)
