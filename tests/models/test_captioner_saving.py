"""A captioner's saved file, its config and its seed."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
from checks import assert_equal_leaves
from tiny_captioner import D, arrays

from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.reference import lstm


@pytest.mark.parametrize(
    ("decoder", "changes"),
    [
        (tiny, {"init_layers": 2, "channel_dropout": 0.25}),
        (tiny_transformer, {"encoder_layers": 1, "alpha_layer": 1}),
    ],
)
def test_one_file_holds_everything_that_a_caption_needs(
    rng, batch, tmp_path, decoder, changes
):
    identity = {"network": "VGG16", "layer": "block5_conv3", "versions": {"keras": "3"}}
    decoding = {"beam": 4, "length_normalisation": 0.7}
    arguments = {"encoder_identity": identity, "decoding": decoding, "seed": 7}
    arguments |= {"label_smoothing": 0.1, "doubly_stochastic": 0.5}
    model = decoder.build(rng, arguments=arguments, **changes)
    model.set_annotation_scale(3.0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.vocabulary == Vocabulary(tiny.WORDS)
    assert loaded.get_config() == model.get_config()
    for name in ("settings", "transformer", "grid", *arguments):
        assert getattr(loaded, name) == getattr(model, name)
    assert_equal_leaves(model.get_weights(), loaded.get_weights())
    before, after = (tiny.outputs_of(m, *batch[:2]) for m in (model, loaded))
    assert_equal_leaves(before, after)


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda listed: listed[:-1], r"no more, where the layer has \('l_o_b', \(11,"),
        (lambda listed: [*listed, ("w", (2,))], r"\('w', \(2,\)\), where .* no more"),
        (lambda listed: listed[::-1], r"\('l_o_b', .* has \('embedding', "),
    ],
)
def test_equations_that_list_other_weights_are_named(
    rng, tmp_path, monkeypatch, change, received
):
    model = tiny.build(rng)
    listed = lstm.layout(model.settings, len(tiny.WORDS), D)
    monkeypatch.setattr(lstm, "layout", lambda *arguments: change(listed))
    message = rf"`layout` of reference/lstm\.py must list .* Received: {received}"
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model.safetensors")


def test_the_seed_determines_initial_weights_and_dropout(batch):
    def start(seed):
        chosen = tiny.settings(dropout=0.5)
        model = Captioner(tiny.WORDS, chosen, D, tiny.GRID, seed=seed)
        x = {"annotations": batch[0], "tokens": batch[1]}
        return arrays(model(x, training=True))["logits"]

    np.testing.assert_array_equal(start(3), start(3))
    assert np.abs(start(3) - start(4)).max() > 0
