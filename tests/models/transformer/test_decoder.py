"""A Transformer reads captions as the oracle does, in parallel and word by word."""

import keras
import numpy as np
import pytest
import tiny_captioner
import tiny_transformer as tiny
from checks import assert_same_outputs
from keras import ops
from nightly import nightly, others_nightly
from refusals import refused
from tiny_captioner import GRID, START, TOLERANCE, B, D, K, L, T, arrays, outputs_of
from tiny_transformer import VARIANTS, H, N, d

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.models.transformer.decoder import TransformerDecoder
from show_attend_tell.reference.lstm import region_bias
from show_attend_tell.runtime.errors import ConfigError


@pytest.fixture(scope="module")
def model():
    return tiny.build(np.random.default_rng(3762))


def test_later_words_change_no_earlier_output_to_the_last_bit(model, batch):
    before = outputs_of(model, *batch[:2])
    for k in range(1, T):
        changed = batch[1].copy()
        changed[:, k] = 9
        after = outputs_of(model, batch[0], changed)
        for name in ("logits", "alpha"):
            np.testing.assert_array_equal(after[name][:, :k], before[name][:, :k])
        assert np.abs(after["logits"][:, k:] - before["logits"][:, k:]).max() > 1e-3


def written(model, annotations, words, bias=None):
    """Return (B, W, T, ...) logits, alpha and beta of words (B, W, T) one by one."""
    decoder = model.decoder
    memory = decoder.memory(model.scaled_annotations(annotations))
    state = keras.tree.map_structure(
        lambda x: ops.repeat(ops.expand_dims(x, 1), words.shape[1], axis=1),
        decoder.start(memory, T + 2),
    )
    steps = []
    for t in range(words.shape[2]):
        given = None if bias is None else bias[:, :, t]
        out = decoder.next_word(words[:, :, t], state, memory, bias=given)
        state = out.state
        steps.append((out.logits, out.alpha, out.beta))
    return [np.stack(arrays(list(each)), axis=2) for each in zip(*steps, strict=True)]


@pytest.mark.parametrize(
    "variant", others_nightly(VARIANTS, kept=("encoder layers, post",))
)
def test_cached_steps_are_the_full_read(rng, variant):
    model = tiny.build(rng, **VARIANTS[variant])
    a, words = tiny_captioner.photos(rng), rng.integers(1, K, (B, 2, T))
    logits, alpha, beta = written(model, a, words)
    for w in range(2):
        for t in range(1, T + 1):  # a prefix of every length
            whole = outputs_of(model, a, words[:, w, :t])
            np.testing.assert_allclose(logits[:, w, :t], whole["logits"], **TOLERANCE)
            np.testing.assert_allclose(alpha[:, w, :t], whole["alpha"], **TOLERANCE)
    np.testing.assert_array_equal(beta, 1)


def test_a_region_changes_the_scores_of_every_head_and_layer(rng, model):
    a, words = tiny_captioner.photos(rng), rng.integers(1, K, (B, 1, T))
    shares = rng.choice([0, 0.5, 1], (B, L)).astype("f4")
    bias = np.repeat(region_bias(shares, 0.7)[:, None, None], T, axis=2)
    bias[:, :, 2:] = 0  # the words from the third on look at the whole photo
    expected = tiny.expected(model, a, words[:, 0], bias[:, 0].astype(float))
    logits, alpha, _ = written(model, a, words, bias)
    np.testing.assert_allclose(logits[:, 0], expected["logits"], **TOLERANCE)
    np.testing.assert_allclose(alpha[:, 0], expected["alpha"], **TOLERANCE)
    memory = model.decoder.memory(model.scaled_annotations(a))
    found = model.decoder.head_weights(words[:, 0], memory, bias[:, 0])
    np.testing.assert_allclose(found, expected["heads"], **TOLERANCE)


def test_alpha_is_a_head_or_the_mean_over_the_heads_of_the_chosen_layer(rng, batch):
    model = tiny.build(rng)
    memory = model.decoder.memory(model.scaled_annotations(batch[0]))
    heads = arrays(model.decoder.head_weights(batch[1], memory))
    assert heads.shape == (B, N, H, T, L)
    for layer, shown in ((0, N), (1, 1), (2, 2)):
        model.set_alpha_layer(layer)
        alpha = outputs_of(model, *batch[:2])["alpha"]
        np.testing.assert_allclose(alpha, heads[:, shown - 1].mean(axis=1), **TOLERANCE)
        model.set_alpha_layer(layer, head=2)
        alpha = outputs_of(model, *batch[:2])["alpha"]
        np.testing.assert_allclose(alpha, heads[:, shown - 1, 1], **TOLERANCE)
    # Also of a search that was traced before.
    held, quick = model.generator, DecodingSettings(method="greedy", max_words=2)
    found = held.generate(batch[0], quick).alpha
    model.set_alpha_layer(1, head=1)
    again = held.generate(batch[0], quick).alpha
    assert np.abs(np.asarray(again) - np.asarray(found)).max() > 1e-3
    for choice in ((N + 1, 0), (1, H + 1)):
        with pytest.raises(ValueError, match="alpha_layer must be at most layers"):
            model.set_alpha_layer(*choice)


def test_a_decoder_without_heads_refuses_a_layer_and_keeps_its_settings(rng):
    model = tiny_captioner.build(rng)
    before = model.decoder.settings
    with pytest.raises(ValueError, match="must be 'transformer'"):
        model.set_alpha_layer(1)
    assert model.decoder.settings is before


def test_padding_and_other_rows_change_nothing(model, batch):
    a, inputs, _ = batch
    whole = outputs_of(model, a, inputs)
    wider = np.pad(inputs, ((0, 0), (0, 3)))
    padded = outputs_of(model, a, wider)
    np.testing.assert_allclose(padded["logits"][:, :T], whole["logits"], **TOLERANCE)
    for b in range(B):
        alone = outputs_of(model, a[b : b + 1], inputs[b : b + 1])
        np.testing.assert_allclose(alone["logits"][0], whole["logits"][b], **TOLERANCE)


@pytest.mark.parametrize("mode", ["eager", pytest.param("jit", marks=pytest.mark.slow)])
def test_captions_that_share_a_photo_read_it_as_captions_with_a_copy_each(
    model, rng, mode
):
    a, inputs = tiny_captioner.photos(rng, 2), rng.integers(1, K, (6, T)).astype("i4")
    shared = outputs_of(model, a, inputs, mode)
    copied = outputs_of(model, np.repeat(a, 3, axis=0), inputs)
    assert_same_outputs(shared, copied)


def test_without_positions_no_order_of_locations_matters(rng, batch):
    model, order = tiny.build(rng, positions="none"), rng.permutation(L)
    before = outputs_of(model, *batch[:2])
    after = outputs_of(model, batch[0][:, order], batch[1])
    np.testing.assert_allclose(after["logits"], before["logits"], **TOLERANCE)
    np.testing.assert_allclose(after["alpha"], before["alpha"][..., order], **TOLERANCE)


def test_initial_weights_are_glorots_and_unit_embedded_words():
    wide = tiny.settings(width=64, hidden=256)
    one, again, other = (TransformerDecoder(wide, 500, D, GRID, s) for s in (1, 1, 2))
    assert np.std(one._embed(np.arange(500))) == pytest.approx(1, rel=0.02)
    for a, b, c in zip(one.weights, again.weights, other.weights, strict=True):
        values = np.asarray(a)
        np.testing.assert_array_equal(values, b)
        if values.ndim == 1:
            np.testing.assert_array_equal(values, float("gamma" in a.path))
        else:
            assert np.abs(values - np.asarray(c)).max() > 0
            if "embedding" not in a.path:
                limit = np.sqrt(6 / sum(values.shape))
                assert 0.9 * limit < np.abs(values).max() <= limit


@pytest.mark.parametrize("words", [T, *nightly(30)])
def test_every_weight_has_a_gradient(rng, words):
    """Few words read locations that are not projected, and many read their keys."""
    model = tiny.build(rng, encoder_layers=1, tie_output=False)
    a, inputs = tiny_captioner.photos(rng), rng.integers(1, K, (B, words))
    projects = not model.decoder._is_read_unprojected(inputs, np.zeros((B, L, d)))
    assert projects == (words == 30)

    def loss():
        logits = model({"annotations": a, "tokens": inputs}, training=True)["logits"]
        return ops.mean(ops.square(logits[..., 0])) + ops.mean(logits[..., 1])

    found = tiny_captioner.gradient_function(
        lambda: (loss(), 0.0), model, key="path"
    )()[0]
    without = {path for path, gradient in found.items() if not np.any(gradient)}
    assert not without


def test_bfloat16_changes_little(rng, batch):
    model = tiny.build(rng, spread=0.3)
    x = {"annotations": batch[0], "tokens": batch[1]}
    exact = arrays(model(x, training=True))
    model.compile_parts(lambda function: function, "bfloat16")
    rounded = arrays(model(x, training=True))
    difference = np.abs(rounded["logits"] - exact["logits"]).max()
    assert 0 < difference < 0.05
    assert rounded["logits"].dtype == np.float32


def test_single_locations_are_refused_in_one_line(model, photos):
    message = r"`locations` must be 'expected' .* Received: 'likeliest'"
    with refused(ConfigError, message):
        tiny_captioner.write(model, photos, locations="likeliest", method="greedy")


def test_attention_in_heads_is_that_of_the_chosen_words_and_an_lstm_has_none(
    model, photos
):
    inputs = np.array([[START, 4, 5]] * len(photos))
    heads = model.attention_heads(photos, inputs)
    expected = tiny.expected(model, photos, inputs)["heads"]
    np.testing.assert_allclose(heads, expected, rtol=1e-3, atol=1e-5)
    lstm = tiny_captioner.build(np.random.default_rng(4))
    assert lstm.attention_heads(photos, inputs) is None
