"""Photos captioned with a reranker: the order, the files, the command line."""

import shutil

import numpy as np
import pytest
from refusals import refused
from tensor_files import repack
from tiny_pipeline import photo_bytes

from show_attend_tell.inference.batch import caption_into_file, made_by
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.models.pretrained import reranker_file, shipped_model
from show_attend_tell.reference.reranker import (
    descriptors,
    load_reranker,
    save_reranker,
)
from show_attend_tell.runtime.errors import (
    CaptionError,
    ConfigError,
    ModelFileError,
)
from show_attend_tell.training import reranking

IMAGES = 8


@pytest.fixture(scope="module")
def file(tmp_path_factory, pipeline):
    """A reranker fitted to captions that the model generates for other photos."""
    rng = np.random.default_rng(4)
    engine = pipeline.engine
    squares = rng.integers(0, 256, (IMAGES, engine.side, engine.side, 3), np.uint8)
    features = engine.encoder.encode(squares)
    words = engine.vocabulary.words
    captions = [[rng.integers(4, len(words), 5).tolist()] * 2 for _ in range(IMAGES)]
    path = tmp_path_factory.mktemp("reranker") / "reranker.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranking, "MIN_PHOTOS", 1)
        found = reranking.fit(
            descriptors(features),
            captions,
            words,
            engine.encoder.identity(),
        )
    save_reranker(found, path)
    return path


@pytest.fixture(scope="module")
def reranked(pipeline, file):
    return load(pipeline.file, reranker=file)


def test_the_reranker_of_the_default_model_ranks_the_captions_of_the_lstm(tmp_path):
    photo = tmp_path / "photo.png"
    photo.write_bytes(photo_bytes(3))
    alone = load("shipped-lstm").caption(photo, beam=10)
    ranked = load("shipped-lstm", reranker="shipped").caption(photo, beam=10)
    found = {one.text: one.score for one in (alone, *alone.alternatives)}
    again = {one.text: one.score for one in (ranked, *ranked.alternatives)}
    assert found.keys() == again.keys()
    assert all(again[text] > found[text] for text in found)  # by w E
    assert alone.confidence is not None
    assert ranked.confidence is None  # it is calibrated without a reranker
    with refused(ModelFileError, "another vocabulary"):
        load("flickr8k-lstm", reranker="shipped")


@pytest.mark.parametrize("options", [{"tags": True}, {"min_confidence": 0.5}])
@pytest.mark.parametrize(
    ("model", "reranker"), [("shipped", "none"), ("shipped-lstm", "shipped")]
)
def test_another_ranking_than_that_of_the_calibration_names_the_reranker(
    model, reranker, options
):
    pipeline = load(model, reranker=reranker)
    with refused(CaptionError, "another `reranker`, or none; leave out `reranker`"):
        pipeline.require_calibration(CaptionRequest(**options))


def test_names_of_packaged_models_name_rerankers_and_other_names_stay():
    assert reranker_file("shipped") == str(shipped_model())
    assert reranker_file("reranker.safetensors") == "reranker.safetensors"
    assert reranker_file("none") == "none"
    assert reranker_file(None) is None


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(6):
        (folder / f"{seed}.png").write_bytes(photo_bytes(seed))
    return folder


def test_the_same_captions_are_found_in_another_order(pipeline, reranked, photos):
    plain = list(pipeline.caption_photos([photos]))
    found = list(reranked.caption_photos([photos]))
    assert [one.text for one in found] != [one.text for one in plain]
    for ours, theirs in zip(found, plain, strict=True):
        texts = [
            {one.text, *(a.text for a in one.alternatives)} for one in (ours, theirs)
        ]
        assert texts[0] == texts[1]
        assert ours.confidence is None
        (alone,) = reranked.caption_photos([ours.path])
        assert alone.text == ours.text


def test_captions_of_both_orders_are_not_mixed_in_a_file(
    pipeline, reranked, file, photos, tmp_path
):
    out = tmp_path / "captions.jsonl"
    caption_into_file(reranked, [photos], out, CaptionRequest())
    assert "reranker.safetensors" in made_by(reranked, CaptionRequest())
    with pytest.raises(CaptionError):
        caption_into_file(pipeline, [photos], out, CaptionRequest())
    with pytest.raises(CaptionError, match="needs a calibration"):
        list(reranked.caption_photos([photos], CaptionRequest(min_confidence=0.5)))


@pytest.mark.nightly
def test_the_command_line_captions_with_a_reranker(
    pipeline, reranked, file, photos, command
):
    _, lines, _ = command("--model", pipeline.file, "--reranker", file, photos)
    texts = [caption.sentence for caption in reranked.caption_photos([photos])]
    assert [line.split(": ", 1)[1] for line in lines] == texts


def test_a_region_is_captioned_with_a_reranker(reranked, photos):
    caption = reranked.caption(photos / "1.png", region=(0, 0, 40, 30))
    assert caption.words
    assert caption.region is not None


@pytest.fixture
def model(pipeline, file, tmp_path):
    """A copy of the model with the reranker as a part of it."""
    path = tmp_path / "copy" / "model.safetensors"
    path.parent.mkdir()
    for one in (pipeline.file, pipeline.file.with_name("net.safetensors")):
        shutil.copy(one, path.parent)
    save_reranker(load_reranker(file), path)
    return path


@pytest.mark.nightly
def test_the_reranker_of_a_single_model_is_used(model, reranked, photos):
    found = load(model)
    assert found.generator.reranker_file(found.decoding()) == model
    for ours, theirs in zip(
        found.caption_photos([photos]), reranked.caption_photos([photos]), strict=True
    ):
        assert ours.text == theirs.text
    assert load(model, reranker="none").generator.reranker is None
    assert load([model, model]).generator.reranker is None
    mirrored = load(model, mirror=True)
    assert mirrored.generator.reranker.file == model


@pytest.mark.nightly
def test_a_reranker_that_is_found_leaves_one_hypothesis_as_it_is(
    model, pipeline, reranked, photos
):
    found = load(model)
    for ours, theirs in zip(
        found.caption_photos([photos], CaptionRequest(beam=1)),
        pipeline.caption_photos([photos], CaptionRequest(beam=1)),
        strict=True,
    ):
        assert ours.text == theirs.text
        # Rounding depends on the threads of a product.
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-5)
    assert "ranked by" not in made_by(found, CaptionRequest(beam=1))
    assert "ranked by" in made_by(found, CaptionRequest())
    with pytest.raises(ConfigError, match="several hypotheses"):
        list(reranked.caption_photos([photos], CaptionRequest(beam=1)))


def test_a_damaged_reranker_of_the_model_is_one_line(model):
    repack(model, arrays={"reranker/mean": None})
    with refused(ModelFileError, "cannot be read as a reranker .*mean` is missing"):
        load(model)
