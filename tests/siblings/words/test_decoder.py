"""The decoder's variants against NumPy, and its steps against the whole word."""

import numpy as np
import pytest
from keras import ops
from oracle import lstm_update
from tiny_reader import VARIANTS, name_of, settings_of

from show_attend_tell.reference.beam import softmax
from show_attend_tell.siblings.words.data import END, STEPS, TOKENS
from show_attend_tell.siblings.words.decoder import WordDecoder

B, T, C, L, F = 2, 4, 10, 6, 9
K = len(TOKENS)


def cell_step(w, name, kind, x, state):
    """One step of a recurrent layer; the first of the state is its output."""
    total = x + state[0] @ w[f"{name}/recurrent"]
    if kind == "rnn":
        return (np.tanh(total),)
    return lstm_update(total, state[1])


def attention(w, settings, s, a):
    """Attention of one crop and one character: a loop over what is weighed."""
    if settings.attend == "places":
        e = [w["w"][:, 0] @ np.tanh(w["w_a"].T @ a_i + w["w_s"].T @ s + w["b"])
             for a_i in a]  # fmt: skip
        alpha = softmax(np.array(e))
        return sum(p * a_i for p, a_i in zip(alpha, a, strict=True)), alpha
    query = w["w_s"].T @ s
    e = [w["w"][i] * np.tanh(w["u"][i] * a[i] + query[i] + w["b"][i])
         for i in range(len(a))]  # fmt: skip
    alpha = softmax(np.array(e))
    return len(a) * alpha * a, alpha


def expected(settings, w, tokens, a):
    """Logits and alpha of one crop by the table of the module's docstring."""
    kind, name = settings.cell, settings.decoder
    if name == "independent":
        logits = (a @ w["output_kernel"] + w["output_bias"]).reshape(STEPS, K)
        return logits[: len(tokens)], np.ones((len(tokens), 1))
    n, found, alphas = settings.width, [], []
    s1 = s2 = (np.zeros(n), np.zeros(n))
    for t, token in enumerate(tokens):
        x = w["embedding"][token] @ w["first/kernel"] + w["first/bias"]
        if name in ("rnn1", "rnn2") or (name == "rnn1_start" and t == 0):
            x = x + a @ w["feed"]
        s1 = cell_step(w, "first", kind, x, s1)
        top, alpha = s1[0], np.ones(1)
        if name in ("rnn2", "rnn2_factored", "attention"):
            x = top @ w["second/kernel"] + w["second/bias"]
            if name == "rnn2_factored":
                x = x + a @ w["feed"]
            if name == "attention":
                z, alpha = attention(w, settings, top, a)
                x = x + z @ w["feed"]
            s2 = cell_step(w, "second", kind, x, s2)
            top = s2[0]
        found.append(top @ w["output_kernel"] + w["output_bias"])
        alphas.append(alpha)
    return np.array(found), np.array(alphas)


def decoder_of(variant, seed=0):
    settings = settings_of(variant)
    decoder = WordDecoder(settings, C if settings.reads_places else F, name="decoder")
    rng = np.random.default_rng(seed)
    for weight in decoder.weights:
        weight.assign(0.5 * rng.standard_normal(weight.shape))
    weights = {
        w.path.removeprefix("decoder/"): np.asarray(w, np.float64)
        for w in decoder.weights
    }
    return decoder, settings, weights


def annotations_of(settings, rows=B, seed=1):
    shape = (rows, L, C) if settings.reads_places else (rows, F)
    return np.random.default_rng(seed).standard_normal(shape).astype("f")


def some_tokens(rows=B, length=T, seed=2):
    tokens = np.random.default_rng(seed).integers(END + 1, K, (rows, length))
    tokens[:, 0] = 1
    return tokens.astype("int32")


def teacher_force(decoder, tokens, a):
    found = decoder.teacher_force(
        ops.convert_to_tensor(tokens), decoder.memory(ops.convert_to_tensor(a))
    )
    return [np.asarray(x) for x in found]


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_given_characters_are_read_as_in_numpy(variant):
    decoder, settings, weights = decoder_of(variant)
    tokens, a = some_tokens(), annotations_of(settings)
    logits, alpha = teacher_force(decoder, tokens, a)
    for row in range(B):
        wanted = expected(settings, weights, tokens[row], a[row].astype("d"))
        np.testing.assert_allclose(logits[row], wanted[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(alpha[row], wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_steps_equal_the_whole_word_for_every_hypothesis(variant):
    decoder, settings, _ = decoder_of(variant)
    a, W = annotations_of(settings), 3
    tokens = np.stack([some_tokens(seed=k) for k in range(W)], axis=1)  # (B, W, T)
    memory = decoder.memory(ops.convert_to_tensor(a))
    state = decoder.start(memory)

    def repeated(x):
        return ops.repeat(ops.expand_dims(x, 1), W, axis=1)

    state = {
        name: tuple(map(repeated, x)) if isinstance(x, tuple) else repeated(x)
        for name, x in state.items()
    }
    whole = [teacher_force(decoder, tokens[:, k], a) for k in range(W)]
    for t in range(T):
        logits, state, alpha = decoder.step(tokens[:, :, t], state, memory)
        for k in range(W):
            for found, wanted in zip((logits, alpha), whole[k], strict=True):
                np.testing.assert_allclose(found[:, k], wanted[:, t], atol=1e-5)


def test_permuting_places_permutes_alpha_and_leaves_the_logits():
    decoder, settings, _ = decoder_of({})
    tokens, a = some_tokens(), annotations_of(settings)
    order = np.random.default_rng(4).permutation(L)
    logits, alpha = teacher_force(decoder, tokens, a)
    moved = teacher_force(decoder, tokens, a[:, order])
    np.testing.assert_allclose(moved[1], alpha[:, :, order], atol=1e-6)
    np.testing.assert_allclose(moved[0], logits, atol=1e-5)
    assert np.ptp(alpha) > 0.01
