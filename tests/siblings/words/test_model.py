"""A whole reader: its parts together, its loss, and what it saves."""

import numpy as np
import pytest
from keras import ops
from tiny_reader import TINY, drawn_words, settings_of

from show_attend_tell.siblings.words.data import PAD, START, encode_words, normalise
from show_attend_tell.siblings.words.model import Reader, shifted, word_losses


def inputs_of(count=3):
    crops, words = drawn_words(count)
    targets = encode_words(words)[:, :8]
    image = ops.convert_to_tensor(normalise(crops)[..., None])
    return {"image": image, "tokens": shifted(ops.convert_to_tensor(targets))}, targets


CONVOLUTIONS = ("plain", "recursive_tied", "recursive_untied", "recurrent")


@pytest.mark.parametrize(
    ("changes", "grid"),
    [
        *(({"convolution": kind}, (4, 12)) for kind in CONVOLUTIONS),
        ({"attend": "features"}, None),
    ],
)
def test_logits_and_alpha_have_their_shapes(changes, grid):
    model = Reader(settings_of(changes))
    outputs, wide = model(inputs_of()[0]), 48 if grid else TINY.feature_width
    assert tuple(outputs["logits"].shape) == (3, 8, 39)
    assert tuple(outputs["alpha"].shape) == (3, 8, wide)
    assert model.grid == grid


def test_an_annotation_has_embeddings_of_its_row_and_column():
    model, (inputs, _) = Reader(TINY), inputs_of()
    encoder, without = model.encoder, []
    for embedding in (encoder.row_embedding, encoder.column_embedding):
        values = np.asarray(embedding)
        without.append(values)
        embedding.assign(np.zeros_like(values))
    plain = np.asarray(model.encoder(inputs["image"]))
    rng = np.random.default_rng(0)
    row, column = (rng.standard_normal(x.shape) for x in without)
    encoder.row_embedding.assign(row)
    encoder.column_embedding.assign(column)
    found = np.asarray(model.encoder(inputs["image"])) - plain
    wanted = (row[:, None] + column).reshape(48, -1)
    np.testing.assert_allclose(found, np.repeat(wanted[None], 3, 0), atol=1e-4)


def test_the_loss_is_the_sum_over_characters_and_the_end():
    rng = np.random.default_rng(0)
    targets = encode_words(["ab", "z"])[:, :5]
    logits = rng.standard_normal((2, 5, 39)).astype("f")
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = [
        -sum(np.log(p[row, t, token]) for t, token in enumerate(tokens) if token)
        for row, tokens in enumerate(targets)
    ]
    found = word_losses(ops.convert_to_tensor(logits), ops.convert_to_tensor(targets))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_padding_never_changes_the_loss():
    model, (inputs, _) = Reader(TINY), inputs_of()
    targets = encode_words(drawn_words(3)[1])
    losses = []
    for T in (7, 8, 16, 24):
        tokens = ops.convert_to_tensor(targets[:, :T])
        given = {"image": inputs["image"], "tokens": shifted(tokens)}
        losses.append(word_losses(model(given)["logits"], tokens, 0.1))
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-5)


def test_inputs_are_the_characters_before_the_targets():
    tokens = np.asarray(shifted(ops.convert_to_tensor([[5, 6, 2, PAD]])))
    assert tokens.tolist() == [[START, 5, 6, 2]]
