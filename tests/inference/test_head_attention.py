"""The attention of heads belongs to the caption's words, its region and its model."""

import numpy as np
import pytest
import tiny_pipeline

from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.visualization.attention_figure import heads_figure
from show_attend_tell.models.generator import Generator


@pytest.fixture(scope="module")
def pipeline():
    encoder = tiny_pipeline.make_encoder()
    captioner = tiny_pipeline.make_captioner(encoder, decoder="transformer")
    return CaptioningPipeline(captioner.generator, encoder)


@pytest.fixture(scope="module")
def photo():
    return tiny_pipeline.photo_image(size=(60, 44))


@pytest.fixture(scope="module")
def caption(pipeline, photo):
    return pipeline.caption(photo)


def test_the_mean_over_the_heads_of_the_last_layer_is_alpha(pipeline, caption):
    heads, layer, head = pipeline.engine.head_attention(caption)
    rows, columns = pipeline.captioner.grid
    assert (layer, head) == (2, 0)
    assert heads.shape == (2, 2, len(caption.words), rows, columns)
    np.testing.assert_allclose(heads[1].mean(axis=0), caption.attention, atol=1e-4)
    np.testing.assert_allclose(heads.sum(axis=(3, 4)), 1, rtol=1e-4)


@pytest.mark.nightly
def test_a_region_directs_the_heads_too(pipeline, photo, caption):
    whole, *_ = pipeline.engine.head_attention(caption)
    found = pipeline.caption(photo, region=(10, 10, 30, 30))
    heads, *_ = pipeline.engine.head_attention(found)
    np.testing.assert_allclose(heads[1].mean(axis=0), found.attention, atol=1e-4)
    assert np.abs(heads[1, :, 0] - whole[1, :, 0]).max() > 0.01


def test_an_ensemble_and_an_lstm_have_no_heads(pipeline, caption):
    lstm = tiny_pipeline.make_captioner(pipeline.encoder)
    for other in (lstm.generator, Generator([pipeline.captioner, lstm])):
        one = CaptioningPipeline(other, pipeline.encoder)
        assert heads_figure(one.engine, caption) is None
