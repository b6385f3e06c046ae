"""The four forms of Eq. (4) agree: written out, by hand, in a search and in NumPy.

``models.lstm.attention.attention_scores``, ``models.lstm.fast_gradient``,
``models.lstm.attention.tanh_scores`` and ``reference.lstm.attention_scores``.
"""

import dataclasses

import numpy as np
import pytest
import tiny_captioner as tiny
from keras import ops
from nightly import nightly
from tiny_captioner import TOLERANCE, arrays

from show_attend_tell.models.lstm import attention, decoder, fast_gradient
from show_attend_tell.models.lstm.attention import ExponentialProjection

VARIANTS = {
    "soft": {},
    "two layers of f_att": {"attention_layers": 2},
    "no gate": {"selector": False},
    "no attention": {"attention": "none"},
}


def as_written(model):
    """Return a model of the same weights that trains the step as it is written."""
    changed = dataclasses.asdict(model.settings) | {"fast_gradient": False}
    copy = type(model).from_config(model.get_config() | {"settings": changed})
    copy.set_weights(model.get_weights())
    return copy


def searched(model, photos, tokens):
    """Return alpha and logits of the steps of a search over given words."""
    memory = model.decoder.search_memory(model.scaled_annotations(photos), None)
    state = model.decoder.start(memory, tokens.shape[1])
    # A beam of one hypothesis, (B, n) -> (B, 1, n).
    state = {name: ops.expand_dims(value, 1) for name, value in state.items()}
    steps = []
    for t in range(tokens.shape[1]):
        out = model.decoder.next_word(tokens[:, t : t + 1], state, memory)
        state = out.state
        steps.append(
            arrays({"alpha": model.alpha_of_locations(out.alpha), "logits": out.logits})
        )
    # T of (B, 1, ...) -> (B, T, ...)
    return {
        name: np.concatenate([step[name] for step in steps], axis=1)
        for name in ("alpha", "logits")
    }


def assert_same(found, expected):
    for name in ("alpha", "logits"):
        np.testing.assert_allclose(
            found[name], expected[name], **TOLERANCE, err_msg=name
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_four_implementations_of_attention_agree(rng, variant):
    model = tiny.build(rng, **VARIANTS[variant])
    photos = tiny.photos(rng)
    tokens, _ = tiny.captions(rng, lengths=(4, 4, 4))
    expected = tiny.expected(model, photos, tokens)
    assert isinstance(
        model.decoder.search_memory(model.scaled_annotations(photos), None).projected,
        ExponentialProjection,
    )
    assert_same(tiny.outputs_of(model, photos, tokens), expected)
    assert_same(tiny.outputs_of(as_written(model), photos, tokens), expected)
    assert_same(searched(model, photos, tokens), expected)
    assert_same(searched(as_written(model), photos, tokens), expected)


@pytest.mark.parametrize("layers", [2, *nightly(1)])
def test_relu_in_f_att_is_the_references_in_training_and_search(rng, layers):
    model = tiny.build(rng, activation="relu", attention_layers=layers)
    photos = tiny.photos(rng)
    tokens, _ = tiny.captions(rng, lengths=(4, 4, 4))
    expected = tiny.expected(model, photos, tokens)
    assert_same(tiny.outputs_of(model, photos, tokens), expected)
    assert_same(searched(model, photos, tokens), expected)
    tanh = tiny.build(np.random.default_rng(0), attention_layers=layers)
    tanh.set_weights(model.get_weights())
    different = tiny.outputs_of(tanh, photos, tokens)
    assert np.abs(different["alpha"] - expected["alpha"]).max() > 1e-3


def test_without_the_fast_gradient_training_and_search_run_attention_scores(
    rng, monkeypatch
):
    """Changing one function changes the method."""
    model = as_written(tiny.build(rng))
    photos = tiny.photos(rng)
    tokens, _ = tiny.captions(rng, lengths=(4, 4, 4))
    before = tiny.outputs_of(model, photos, tokens)

    def halved(projected, state, w_att, activation="tanh"):
        return original(projected, state, w_att, activation) / 2

    original = attention.attention_scores
    monkeypatch.setattr(attention, "attention_scores", halved)
    monkeypatch.setattr(
        fast_gradient, "unroll", lambda *args: pytest.fail("runs the fast gradient")
    )
    trained = tiny.outputs_of(model, photos, tokens)
    assert np.abs(trained["alpha"] - before["alpha"]).max() > 1e-3
    assert_same(searched(model, photos, tokens), trained)


@pytest.mark.parametrize("kind", [{"attention": "hard"}, *nightly({})])
def test_both_ways_of_training_have_the_same_gradients(rng, kind):
    model = tiny.build(rng, **kind)
    photos = tiny.photos(rng)
    inputs, targets = tiny.captions(rng)
    found = []
    for candidate in (model, as_written(model)):

        def loss(candidate=candidate):
            outputs = candidate({"annotations": photos, "tokens": inputs})
            return candidate.compute_loss(y=targets, y_pred=outputs)

        found.append(tiny.gradients(loss, candidate))
    for name, gradient in found[0].items():
        np.testing.assert_allclose(found[1][name], gradient, **TOLERANCE, err_msg=name)


def test_relu_has_no_gradient_by_hand():
    assert decoder.ACTIVATIONS.keys() == {"tanh", "relu"}
    assert not tiny.settings(activation="relu").has_fast_gradient
    assert not tiny.settings(fast_gradient=False).has_fast_gradient
    assert tiny.settings().has_fast_gradient
