"""The captioner as a whole: the paper recomputed, and the habits of a Keras model."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import oracle
import pytest
import tiny_captioner as tiny
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tiny_captioner import MODES, TOLERANCE, B, D, K, L, T, arrays, in_mode, n

from show_attend_tell.captioner import Captioner
from show_attend_tell.vocabulary import Vocabulary

LENGTHS = (4, 2, 3)
VARIANTS = {
    "the default": {},
    "two layers each": {"attention_layers": 2, "init_layers": 2},
    "nothing but h": {"prev2out": False, "ctx2out": False, "selector": False},
    "relu": {"activation": "relu", "ctx2out": False},
}


@pytest.fixture(scope="module")
def seeded():
    return np.random.default_rng(1502_03044)


@pytest.fixture(scope="module")
def batch(seeded):
    """Annotations, inputs, targets."""
    return tiny.photos(seeded), *tiny.captions(seeded, LENGTHS)


@pytest.fixture(scope="module")
def model(seeded):
    return tiny.build(seeded)


def run(model, annotations, tokens, mode="eager"):
    inputs = {"annotations": annotations, "tokens": tokens}
    inputs = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    return arrays(in_mode(lambda x: model(x), mode)(inputs))


def told(model, annotations, tokens, scale=1.0):
    """What the oracle says of a batch: dict of (B, T, ...)."""
    p = tiny.weights(model)
    rows = [
        oracle.run(p, a.astype(float) * scale, words, model.settings)
        for a, words in zip(annotations, tokens, strict=True)
    ]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def loss_of(model, annotations, inputs, targets, training=False):
    """The loss of a batch as ``fit`` and ``evaluate`` compute it."""
    outputs = run(model, annotations, inputs)
    return float(model.compute_loss(y=targets, y_pred=outputs, training=training))


@pytest.mark.parametrize("mode", MODES)
def test_call_recomputes_the_paper_in_every_mode(model, batch, mode):
    found, expected = run(model, *batch[:2], mode), told(model, *batch[:2])
    assert found["logits"].shape == (B, T, K)
    for name in ("logits", "alpha", "beta"):
        np.testing.assert_allclose(found[name], expected[name], **TOLERANCE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_call_recomputes_every_variant(rng, batch, variant):
    model = tiny.build(rng, **VARIANTS[variant])
    found, expected = run(model, *batch[:2]), told(model, *batch[:2])
    for name in ("logits", "alpha", "beta"):
        np.testing.assert_allclose(found[name], expected[name], **TOLERANCE)


def test_annotations_are_divided_by_their_deviation(rng, batch):
    model = tiny.build(rng)
    model.set_annotation_scale(4.0)
    found, expected = run(model, *batch[:2]), told(model, *batch[:2], scale=0.25)
    np.testing.assert_allclose(found["logits"], expected["logits"], **TOLERANCE)
    with pytest.raises(ValueError, match="`deviation` must be positive. Received: 0"):
        model.set_annotation_scale(0)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_over_captions_of_the_oracles(rng, batch, smoothing):
    changes = {"label_smoothing": smoothing, "doubly_stochastic": 0.7}
    model = tiny.build(rng, changes)
    outputs = told(model, *batch[:2])
    losses = [
        oracle.caption_loss(
            outputs["logits"][b, :length],
            outputs["alpha"][b, :length],
            batch[2][b, :length],
            smoothing,
            strength=0.7,
        )
        for b, length in enumerate(LENGTHS)
    ]
    expected = np.sum(losses) / B
    assert loss_of(model, *batch, training=True) == pytest.approx(expected, rel=1e-5)


def oracle_loss(p, settings, batch, smoothing, strength):
    """L_d, the mean over the captions of a batch, for weights ``p``."""
    losses = []
    for a, inputs, targets, length in zip(*batch, LENGTHS, strict=True):
        told = oracle.run(p, a.astype(float), inputs[:length], settings)
        words = targets[:length]
        parts = oracle.caption_loss(
            told["logits"], told["alpha"], words, smoothing, strength
        )
        losses.append(sum(parts))
    return np.mean(losses)


def gradients(model, batch, mode):
    """The gradient of the training loss by weight: name -> array."""
    a, inputs, targets = map(keras.ops.convert_to_tensor, batch)

    def loss():
        outputs = model({"annotations": a, "tokens": inputs}, training=True)
        return model.compute_loss(y=targets, y_pred=outputs, training=True)

    return tiny.gradients(loss, model, mode)


@pytest.mark.parametrize(
    ("variant", "mode"),
    [("the default", "eager"), ("the default", "jit")]
    + [(name, "eager") for name in VARIANTS if name != "the default"],
)
def test_the_gradient_is_the_slope_of_the_oracles_loss(rng, batch, variant, mode):
    changes = {"label_smoothing": 0.1, "doubly_stochastic": 0.7}
    model = tiny.build(rng, changes, **VARIANTS[variant])
    p, step = tiny.weights(model), 1e-5
    found = gradients(model, batch, mode)
    assert found.keys() == p.keys()
    for name, value in p.items():
        direction = rng.standard_normal(value.shape)
        ends = [
            oracle_loss(
                {**p, name: value + side * direction}, model.settings, batch, 0.1, 0.7
            )
            for side in (-step, step)
        ]
        slope = (ends[1] - ends[0]) / (2 * step)
        along = (found[name] * direction).sum()
        assert along == pytest.approx(slope, rel=1e-4, abs=1e-5), name


def test_method_names_of_the_reference_agree_with_call(model, batch):
    a, inputs, _ = batch
    first = run(model, a, inputs)
    prepared = model._prepare(a)
    projected = model._project_features(prepared)
    c, h = model._get_initial_lstm(prepared)
    z_hat, alpha, beta = model._attention_layer(prepared, projected, h)
    expected = told(model, a, inputs)
    states = [oracle.initial_state(tiny.weights(model), x.astype(float)) for x in a]
    np.testing.assert_allclose(h, [pair[0] for pair in states], **TOLERANCE)
    np.testing.assert_allclose(c, [pair[1] for pair in states], **TOLERANCE)
    np.testing.assert_allclose(alpha, first["alpha"][:, 0], **TOLERANCE)
    np.testing.assert_allclose(beta, first["beta"][:, 0], **TOLERANCE)
    np.testing.assert_allclose(z_hat, expected["z_hat"][:, 0], **TOLERANCE)
    h = expected["h"][:, 0].astype(np.float32)
    _, alpha, beta = model._attention_layer(prepared, projected, h)
    np.testing.assert_allclose(alpha, first["alpha"][:, 1], **TOLERANCE)
    np.testing.assert_allclose(beta, first["beta"][:, 1], **TOLERANCE)
    assert h.shape == (B, n)


def test_attention_without_selector_agrees_with_call(rng, batch):
    model = tiny.build(rng, selector=False)
    prepared = model._prepare(batch[0])
    _, h = model._get_initial_lstm(prepared)
    projected = model._project_features(prepared)
    _, alpha, beta = model._attention_layer(prepared, projected, h)
    first = run(model, *batch[:2])
    np.testing.assert_allclose(alpha, first["alpha"][:, 0], **TOLERANCE)
    np.testing.assert_array_equal(beta, 1)


def test_permuting_locations_permutes_alpha_and_leaves_the_logits(model, batch, rng):
    order = rng.permutation(L)
    before = run(model, *batch[:2])
    after = run(model, batch[0][:, order], batch[1])
    np.testing.assert_allclose(after["alpha"], before["alpha"][..., order], **TOLERANCE)
    np.testing.assert_allclose(after["logits"], before["logits"], **TOLERANCE)
    np.testing.assert_allclose(before["alpha"].sum(-1), 1, rtol=1e-5)


@limits(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, T), min_size=1, max_size=3),
    longer=st.integers(0, 3),
    empty=st.integers(0, 2),
)
def test_padding_never_changes_the_loss(model, seed, lengths, longer, empty):
    rng = np.random.default_rng(seed)
    a = tiny.photos(rng, len(lengths) + empty)
    inputs, targets = tiny.captions(rng, [*lengths, *[0] * empty], T + longer)
    rows = len(lengths)
    whole = loss_of(model, a, inputs, targets)
    bare = loss_of(model, a[:rows], inputs[:rows, :T], targets[:rows, :T])
    assert whole == pytest.approx(bare, rel=1e-5)


def test_the_loss_of_a_batch_is_the_mean_of_its_captions_alone(model, batch):
    alone = [loss_of(model, *(x[b : b + 1] for x in batch)) for b in range(B)]
    assert loss_of(model, *batch) == pytest.approx(np.mean(alone), rel=1e-5)


def test_a_batch_of_padding_alone_costs_nothing(model, batch):
    nothing = np.zeros((B, T), np.int32)
    assert loss_of(model, batch[0], nothing, nothing) == 0


def test_words_yet_to_come_change_nothing(model, batch):
    changed = batch[1].copy()
    changed[:, 2:] = 9
    before, after = run(model, *batch[:2]), run(model, batch[0], changed)
    np.testing.assert_allclose(after["logits"][:, :2], before["logits"][:, :2], 1e-6)
    assert np.abs(after["logits"][:, 2:] - before["logits"][:, 2:]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "attention_moves"),
    [
        ({"dropout": 0.5}, False),  # around the readout alone
        ({"dropout": 0.5, "init_layers": 2}, True),  # and behind f_init's ReLU
        ({"embedding_dropout": 0.5}, True),
        ({"channel_dropout": 0.5}, True),
    ],
)
def test_each_dropout_acts_in_training_only(rng, batch, changes, attention_moves):
    model = tiny.build(rng, **changes)
    inputs = {"annotations": batch[0], "tokens": batch[1]}
    calm = [arrays(model(inputs)) for _ in range(2)]
    noisy = [arrays(model(inputs, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(calm[0]["logits"], calm[1]["logits"])
    assert np.abs(noisy[0]["logits"] - noisy[1]["logits"]).max() > 1e-3
    moved = np.abs(noisy[0]["alpha"] - noisy[1]["alpha"]).max() > 1e-5
    assert moved == attention_moves


def test_channels_of_the_annotations_fall_as_a_whole_photo_by_photo(rng):
    model = tiny.build(rng, channel_dropout=0.5)
    ones = np.ones((20, L, D), np.float16)
    kept = np.asarray(model._prepare(ones, training=True))
    assert set(np.unique(kept)) == {0.0, 2.0}
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:, :1], kept.shape))
    assert len(np.unique(kept[:, 0], axis=0)) > 1


def test_an_unknown_number_of_words_is_refused_by_one_line(model):
    symbolic = {
        "annotations": keras.KerasTensor((B, L, D)),
        "tokens": keras.KerasTensor((B, None), "int32"),
    }
    with pytest.raises(ValueError, match="pad every batch to a fixed T"):
        model.call(symbolic)


@pytest.fixture(scope="module")
def fitted(seeded):
    """A model fitted to four captions of two words of four photos, and these."""
    wider = {"lstm_width": 16, "embedding_width": 8}
    model = tiny.build(seeded, {"doubly_stochastic": 0.0}, spread=0.3, **wider)
    a = tiny.photos(seeded, 4)
    inputs = np.array([[1, 4, 5, 0], [1, 6, 7, 0], [1, 8, 9, 0], [1, 10, 4, 0]], "i4")
    targets = np.array([[4, 5, 2, 0], [6, 7, 2, 0], [8, 9, 2, 0], [10, 4, 2, 0]], "i4")
    model.compile(optimizer=keras.optimizers.Adam(0.03), jit_compile=True)
    often = [
        np.tile(values, (40, *[1] * (values.ndim - 1)))
        for values in (a, inputs, targets)
    ]
    x = {"annotations": often[0], "tokens": often[1]}
    history = model.fit(x, often[2], batch_size=4, epochs=5, shuffle=False, verbose=0)
    return model, {"annotations": a, "tokens": inputs}, targets, history.history


def test_fit_overfits_four_captions_and_generate_writes_them(fitted):
    model, x, targets, history = fitted
    assert history["loss"][-1] < 0.05 < history["loss"][0]
    assert history["word_loss"][-1] < 0.02
    assert (np.diff(history["loss"]) < 0).all()
    written = model.generate(x["annotations"], beam=3, max_words=T)
    np.testing.assert_array_equal(written.tokens[:, 0], targets)
    assert written.finished[:, 0].all()


def test_evaluate_and_predict_agree_with_call(fitted):
    model, x, targets, _ = fitted
    values = model.evaluate(x, targets, batch_size=2, verbose=0, return_dict=True)
    assert set(values) == {"loss", "word_loss", "attention_loss"}
    outputs = told(model, x["annotations"], x["tokens"])
    parts = [
        oracle.caption_loss(outputs["logits"][b, :3], outputs["alpha"][b, :3], y[:3])
        for b, y in enumerate(targets)
    ]
    words = np.sum(parts, axis=0)[0]
    assert values["word_loss"] == pytest.approx(
        words / targets.astype(bool).sum(), 1e-3
    )
    assert values["loss"] == pytest.approx(words / 4, rel=1e-3)
    predicted = model.predict(x, batch_size=2, verbose=0)
    np.testing.assert_allclose(predicted["logits"], outputs["logits"], 1e-4, 1e-4)
    np.testing.assert_allclose(predicted["alpha"], outputs["alpha"], 1e-4, 1e-4)


def test_evaluate_smooths_no_labels(rng, batch):
    smoothed = tiny.build(rng, {"label_smoothing": 0.3})
    plain = Captioner.from_config({**smoothed.get_config(), "label_smoothing": 0.0})
    plain.set_weights(smoothed.get_weights())
    a, inputs, targets = batch
    losses = []
    for model in (smoothed, plain):
        model.compile(optimizer="sgd", run_eagerly=True)
        x = {"annotations": a, "tokens": inputs}
        losses.append(model.evaluate(x, targets, verbose=0))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert loss_of(smoothed, *batch, training=True) != pytest.approx(
        losses[0], rel=1e-3
    )


def test_metrics_are_means_per_word_and_per_caption(rng, batch):
    model = tiny.build(rng, {"doubly_stochastic": 2.0})
    empty = [np.concatenate([x, np.zeros_like(x[:2])]) for x in batch]
    model.compile(optimizer="sgd", run_eagerly=True)
    x = {"annotations": empty[0], "tokens": empty[1]}
    values = model.evaluate(x, empty[2], verbose=0, return_dict=True)
    outputs = told(model, *batch[:2])
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


def test_one_file_holds_all_that_a_caption_needs(rng, batch, tmp_path):
    identity = {"network": "VGG16", "layer": "block5_conv3", "versions": {"keras": "3"}}
    decoding = {"beam": 4, "length_normalisation": 0.7}
    arguments = {"encoder_identity": identity, "decoding": decoding, "seed": 7}
    arguments |= {"label_smoothing": 0.1, "doubly_stochastic": 0.5}
    model = tiny.build(rng, arguments, init_layers=2, channel_dropout=0.25)
    model.set_annotation_scale(3.0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.vocabulary == Vocabulary(tiny.WORDS)
    assert loaded.get_config() == model.get_config()
    for name in ("settings", "grid", *arguments):
        assert getattr(loaded, name) == getattr(model, name)
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, after = run(model, *batch[:2]), run(loaded, *batch[:2])
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])


def test_a_config_made_json_comes_back(model):
    config = json.loads(json.dumps(model.get_config()))
    again = Captioner.from_config(config)
    assert again.get_config() == model.get_config()
    assert again.settings == model.settings


def test_the_seed_decides_initial_weights_and_dropout(batch):
    def start(seed):
        chosen = tiny.settings(dropout=0.5)
        model = Captioner(tiny.WORDS, chosen, D, tiny.GRID, seed=seed)
        x = {"annotations": batch[0], "tokens": batch[1]}
        return arrays(model(x, training=True))["logits"]

    np.testing.assert_array_equal(start(3), start(3))
    assert np.abs(start(3) - start(4)).max() > 0


REPLICAS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
sys.path.insert(0, {tests!r})
import keras, numpy as np, tensorflow as tf
import tiny_captioner as tiny
device = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(device, two)
def train(strategy):
    rng = np.random.default_rng(0)
    with strategy.scope():
        model = tiny.build(rng)
        model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    inputs, targets = tiny.captions(rng, (4, 2, 3, 4))
    x = {{"annotations": tiny.photos(rng, 4), "tokens": inputs}}
    model.fit(x, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()
one = train(tf.distribute.OneDeviceStrategy("CPU:0"))
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
for a, b in zip(one, train(strategy)):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
def test_two_replicas_take_the_steps_of_one():
    code = REPLICAS.format(tests=str(Path(__file__).parent))
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
