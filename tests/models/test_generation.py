"""Generated captions agree with the oracle reading them word by word."""

from unittest import mock

import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_hypotheses_are_read
from full_device import full_memory
from nightly import nightly
from refusals import refused
from tiny_captioner import PAD, START, UNKNOWN, K, L, write

from show_attend_tell.models import generator
from show_attend_tell.models.generator import PHOTOS_FOR_XLA
from show_attend_tell.reference import lstm
from show_attend_tell.reference.generator import uniform_noise
from show_attend_tell.runtime.errors import SetupError

PHOTOS, WORDS = 5, 4  # of the fixture `photos`, and of `write`


@pytest.fixture(scope="module")
def model():
    return tiny.build(np.random.default_rng(8), spread=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["beam", "sample"])
def test_xla_compiles_the_search_of_many_photos_which_gives_the_same_captions(
    photos, monkeypatch, method
):
    compiled = mock.Mock(wraps=generator.compiled)
    monkeypatch.setattr(generator, "compiled", compiled)
    model = tiny.build(np.random.default_rng(8), spread=1.0)
    how = {"method": method, "beam": 3, "seed": 5}
    counts = (None, PHOTOS_FOR_XLA, PHOTOS_FOR_XLA - 1)
    few, many, _ = (write(model, photos, run=n, **how) for n in counts)
    calls = [(call.args[0].__name__, call.args[2]) for call in compiled.call_args_list]
    assert [xla for name, xla in calls if name == "search"] == [False, True]
    assert not any(xla for name, xla in calls if name != "search")  # the preparation
    for name, one, other in zip(few._fields, few, many, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6, err_msg=name)


def test_gates_of_all_words_or_of_those_read_are_the_same(rng, photos):
    decoder = tiny.build(rng, spread=1.0).decoder
    a = photos.astype("f4")
    few, many = (decoder.search_memory(a, words) for words in (K, K + 1))
    assert few.word_gates is None
    assert many.word_gates.shape == (K, 4 * tiny.n)
    tokens = rng.integers(0, K, (PHOTOS, 2))
    h, c = rng.standard_normal((2, PHOTOS, 2, tiny.n)).astype("f4")
    state = {"h": h, "c": c}
    one, other = (decoder.next_word(tokens, state, memory) for memory in (few, many))
    for name in ("logits", "alpha", "beta"):
        values = tiny.arrays([getattr(one, name), getattr(other, name)])
        np.testing.assert_allclose(*values, **tiny.TOLERANCE, err_msg=name)


@pytest.fixture(scope="module")
def written(model, photos):
    """Hypotheses by method, each compiled once."""
    methods = {
        "beam": {"beam": 3, "length_normalisation": 0.7},
        "greedy": {"method": "greedy"},
        "sample": {"method": "sample", "seed": 5},
    }
    return {name: write(model, photos, **how) for name, how in methods.items()}


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_a_caption_has_the_numbers_of_teacher_forcing(model, photos, written, method):
    p = tiny.weights(model)

    def read(b, w, inputs):
        return lstm.read(p, model.settings, photos[b].astype(float), inputs)

    assert_hypotheses_are_read(written[method], read)
    assert (written[method].locations == -1).all()  # of the expected context


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_photos_one_by_one_get_the_captions_of_the_batch(
    model, photos, written, method
):
    how = {"length_normalisation": 0.7, "beam": 3} if method == "beam" else {}
    for b in range(PHOTOS):
        alone = write(model, photos[b : b + 1], method=method, **how)
        np.testing.assert_array_equal(alone.tokens[0], written[method].tokens[b])
        for one, many in zip(alone, written[method], strict=True):
            np.testing.assert_allclose(one[0], many[b], 1e-5, 1e-6)


def test_a_seed_fixes_the_sampled_captions_whatever_the_type_of_features(
    model, photos, written
):
    again = write(model, photos.astype(np.float32), method="sample", seed=5)
    np.testing.assert_array_equal(again.tokens, written["sample"].tokens)
    others = [write(model, photos, method="sample", seed=seed) for seed in range(4)]
    assert any((other.tokens != again.tokens).any() for other in others)


@pytest.mark.parametrize(
    ("method", "locations"),
    [
        ("beam", "sampled"),
        *nightly(("beam", "likeliest"), ("greedy", "sampled"), ("greedy", "likeliest")),
    ],
)
def test_the_context_of_a_word_is_that_of_its_reported_location(
    model, photos, method, locations
):
    found = write(model, photos, method=method, beam=3, locations=locations, seed=3)
    noise = uniform_noise(3, PHOTOS, WORDS)[:, 1]
    p, chosen = tiny.weights(model), []

    def read(b, w, inputs):
        s = found.locations[b, w, : len(inputs)]
        a = photos[b].astype(float)
        expected = lstm.read(p, model.settings, a, inputs, locations=s)
        likeliest = expected["alpha"].argmax(1)
        if locations == "likeliest":
            np.testing.assert_array_equal(s, likeliest)
        else:
            sampled = map(lstm.sample_index, expected["alpha"], noise[b])
            assert s.tolist() == list(sampled)
        chosen.extend(zip(s, s == likeliest, strict=True))
        return expected

    assert_hypotheses_are_read(found, read)
    places, likely = map(set, zip(*chosen, strict=True))
    assert likely == ({True} if locations == "likeliest" else {True, False})
    assert len(places) > 1


def test_a_seed_fixes_the_sampled_locations_of_a_photo_in_any_batch(model, photos):
    how = {"method": "greedy", "locations": "sampled"}
    same = np.repeat(photos[:1], 12, axis=0)
    one, again, other = (write(model, same, **how, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(one.locations, again.locations)
    assert (one.locations != other.locations).any()
    assert len(set(one.locations[:, 0, 0])) > 1  # photos share none
    seeds = [(7, 1), (7, 2), (7, 3)]
    together = write(model, photos[:3], **how, seeds=seeds)
    alone = write(model, photos[2:3], **how, seeds=seeds[2:])
    np.testing.assert_array_equal(alone.locations[0], together.locations[2])
    with pytest.raises(ValueError, match="for each of the 2 photos. Received: 3 of"):
        write(model, photos[:2], method="greedy", seeds=seeds)


@pytest.fixture
def changeable(model):
    """The compiled model, whose weights are restored after the test."""
    weights = model.get_weights()
    yield model
    model.set_weights(weights)


def test_unknown_words_are_written_only_where_allowed_and_special_ones_never(
    changeable, photos
):
    bias = np.zeros(K, np.float32)
    bias[[PAD, START, UNKNOWN]] = 20
    changeable.decoder.l_o_b.assign(bias)
    tokens = {
        allowed: write(
            changeable, photos, method="greedy", allow_unknown=allowed
        ).tokens
        for allowed in (True, False)
    }
    assert (tokens[True][:, 0, 0] == UNKNOWN).all()
    assert START not in tokens[True]
    assert not np.isin(tokens[False], [START, UNKNOWN]).any()
    assert (tokens[False][:, 0, 0] != PAD).all()


def test_captions_follow_the_weights_as_they_change(changeable, photos, written):
    changeable.decoder.l_o_b.assign(np.arange(K) / 2.0)
    after = write(changeable, photos, method="greedy").log_probs
    assert np.abs(written["greedy"].log_probs - after).min() > 1e-3
    changeable.set_annotation_scale(5.0)
    scaled = write(changeable, photos, method="greedy").log_probs
    assert np.abs(after - scaled).min() > 1e-6


@pytest.mark.parametrize("shape", [(0, L, 5), (2, L, 4), (2, L + 1, 5), (L, 5)])
def test_annotations_of_another_shape_are_refused_by_one_line(model, shape):
    with pytest.raises(ValueError, match=r"`annotations` must be \(N, 6, 5\)"):
        model.generate(np.zeros(shape, np.float16))


def test_a_full_device_is_named_with_the_batch_that_halves_it(photos, monkeypatch):
    model = tiny.build(np.random.default_rng(8), spread=1.0)
    monkeypatch.setattr(generator, "build_search", lambda *rest: full_memory)
    with refused(SetupError, "beam of 3.* set decoding.batch_size = 2, or free"):
        write(model, photos, beam=3, batch_size=4)


def test_another_error_of_a_search_is_not_one_of_memory(photos, monkeypatch):
    def mistake(*rest):
        raise RuntimeError("a mistake")

    model = tiny.build(np.random.default_rng(8), spread=1.0)
    monkeypatch.setattr(generator, "build_search", lambda *rest: mistake)
    with pytest.raises(RuntimeError, match="a mistake"):
        write(model, photos, beam=3)
