"""A region's bias on the attention scores agrees with the oracle, in every decoding."""

import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_hypotheses_are_read
from tiny_captioner import L, write

from show_attend_tell.models import generator
from show_attend_tell.models.generator import PHOTOS_FOR_XLA
from show_attend_tell.models.lstm import decoder
from show_attend_tell.reference import lstm

PHOTOS = 5  # of the fixture `photos`


@pytest.fixture(scope="module")
def model():
    return tiny.build(np.random.default_rng(8), spread=1.0)


@pytest.fixture(scope="module")
def shares():
    return np.random.default_rng(3).choice([0, 0.25, 1], (PHOTOS, L)).astype("f4")


@pytest.mark.parametrize(
    ("words", "s", "run"),
    [
        *((0, 0.7, None), (2, 0.7, None), (0, 4.0, None)),
        pytest.param(0, 4.0, PHOTOS_FOR_XLA, marks=pytest.mark.slow),
    ],
)
def test_a_caption_of_a_region_has_the_numbers_of_the_oracle(
    model, photos, shares, words, s, run
):
    how = {"region_strength": s, "region_words": words, "beam": 3}
    found = write(model, photos, shares, run=run, **how)

    def read(b, w, inputs):
        T = len(inputs)
        bias = np.tile(lstm.region_bias(shares[b], s), (T, 1))  # (T, L)
        bias[words or T :] = 0
        p, a = tiny.weights(model), photos[b].astype(float)
        return lstm.read(p, model.settings, a, inputs, bias=bias)

    assert_hypotheses_are_read(found, read)


def test_attention_is_the_models_own_weighted_by_the_region():
    e, m = np.random.default_rng(1).standard_normal((2, L))
    m = np.abs(np.tanh(m))
    b = lstm.region_bias(m, 2.0)
    expected = np.exp(e) * (m + 1e-3) ** 2
    np.testing.assert_allclose(
        lstm.softmax(e + b), expected / expected.sum(), rtol=1e-4
    )


@pytest.mark.nightly
def test_regions_share_one_graph_and_other_captions_have_none(
    model, photos, shares, monkeypatch
):
    traces, biased = [], []
    compiled, attend = generator.compiled, decoder.attend

    def counted(function, *arguments):
        def traced(*inputs):
            if len(inputs) > 1:  # the search, and not what it reads of photos
                traces.append(isinstance(inputs[-1], generator.RegionBias))
            return function(*inputs)

        return compiled(traced, *arguments)

    def watched(*arguments, bias, **options):
        biased.append(bias is not None)
        return attend(*arguments, bias=bias, **options)

    monkeypatch.setattr(generator, "compiled", counted)
    monkeypatch.setattr(decoder, "attend", watched)
    monkeypatch.setattr(model.generator, "_searches", {})
    for regions, s in ((shares, 1.0), (1 - shares, 2.0), (shares[::-1], 0.5)):
        write(model, photos, regions, method="greedy", region_strength=s)
    assert traces == [True]
    assert all(biased)
    biased.clear()
    write(model, photos, method="greedy", region_strength=3.0)
    assert traces == [True, False]
    assert biased
    assert not any(biased)  # no bias of zeros, with which sums may round differently


def test_regions_of_another_shape_are_refused(model, photos, shares):
    with pytest.raises(ValueError, match=r"`regions` must be \(5, 6\).*Received"):
        write(model, photos, shares[:, 1:])
