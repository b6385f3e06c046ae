"""A saved pipeline captions as the pipeline does, from files that stand alone."""

import shutil

import numpy as np
import pytest
from refusals import refused
from tensor_files import unpacked
from tiny_calibration import make_calibration, make_space
from tiny_pipeline import (
    make_captioner,
    make_encoder,
    photo_bytes,
    tiny_keras_pipeline,
    tiny_pipeline,
)

from show_attend_tell.inference.confidence import save_calibration
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.models.encoder.weights import save_weights
from show_attend_tell.models.pretrained import SHIPPED
from show_attend_tell.runtime.errors import CaptionError


def test_a_saved_pipeline_gives_the_same_caption_and_replaces_what_was_there(tmp_path):
    pipeline, file = tiny_keras_pipeline(), tmp_path / "new" / "mine.safetensors"
    file.parent.mkdir()
    file.write_text("of an earlier model")
    pipeline.save(file)
    assert [path.name for path in file.parent.iterdir()] == ["mine.safetensors"]
    caption, again = (p.caption(photo_bytes()) for p in (pipeline, load(file)))
    assert again.text == caption.text
    assert again.log_prob == pytest.approx(caption.log_prob, abs=1e-5)


@pytest.fixture
def elsewhere(tmp_path):
    """A calibrated pipeline, encoder's weights a file that is not beside the model."""
    encoder, file = make_encoder(), tmp_path / "model.safetensors"
    weights = tmp_path / "weights" / "own.safetensors"
    weights.parent.mkdir()
    save_weights(encoder._network, weights, "SceneNet")
    identity = encoder.identity() | {"weights": "net.safetensors"}
    make_captioner(encoder, identity).save(file)
    calibration = make_calibration(make_space(encoder.grid, encoder.width))
    save_calibration(calibration, file, reranked=False, measured={})
    return load(file, weights)


def test_a_changed_captioner_captions_in_a_pipeline_that_is_built_of_it(
    elsewhere, eager_searches
):
    before = elsewhere.caption(photo_bytes())
    assert before.confidence is not None
    for weight in elsewhere.captioner.weights:
        weight.assign(weight * 0.9)
    built = CaptioningPipeline(elsewhere.captioner, elsewhere.encoder)
    changed = built.caption(photo_bytes())
    assert changed.log_prob != pytest.approx(before.log_prob, abs=1e-3)
    assert changed.confidence is None
    assert elsewhere.caption(photo_bytes()).log_prob == before.log_prob


def parts(file):
    """Return the arrays of the parts of a model's file."""
    _, arrays = unpacked(file)
    return {name: arrays[name] for name in arrays if name.startswith(("rer", "conf"))}


@pytest.mark.nightly
def test_reranker_and_calibration_go_with_the_model_until_its_weights_change(tmp_path):
    source, file = tmp_path / "source.safetensors", tmp_path / "mine.safetensors"
    shutil.copyfile(SHIPPED, source)
    pipeline = load(source)
    pipeline.save(file)
    before, after = parts(source), parts(file)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(values, after[name])
    caption, again = (p.caption(photo_bytes()) for p in (pipeline, load(file)))
    assert (again.text, again.confidence) == (caption.text, caption.confidence)
    weight = pipeline.captioner.weights[0]
    weight.assign(weight + 0.01)
    for changed in (file, source, file):  # over its own file, too, and once more
        pipeline.save(changed)
        found = load(changed)
        assert found.calibration is None
        assert found.generator.reranker is not None


def test_weights_of_the_encoder_that_were_named_go_with_the_model(elsewhere, tmp_path):
    file = tmp_path / "new" / "mine.safetensors"
    elsewhere.save(file)
    caption, again = (p.caption(photo_bytes()) for p in (elsewhere, load(file)))
    assert (again.text, again.log_prob) == (caption.text, caption.log_prob)
    elsewhere.save(file)


def test_weights_of_another_model_are_not_replaced(elsewhere, tmp_path):
    other = tmp_path / "net.safetensors"
    other.write_bytes(b"of another model")
    with refused(CaptionError, "net.safetensors: must be absent, or the weights of"):
        elsewhere.save(tmp_path / "mine.safetensors")
    assert other.read_bytes() == b"of another model"
    assert not (tmp_path / "mine.safetensors").exists()


def test_a_list_of_one_model_is_that_model(elsewhere, tmp_path):
    alone = load([elsewhere.file], tmp_path / "weights" / "own.safetensors")
    assert alone.file == elsewhere.file
    assert alone.calibration is not None


def test_several_models_and_other_endings_are_refused(tmp_path):
    one = tiny_pipeline()
    several = CaptioningPipeline(load([one.file, one.file]).engine)
    for pipeline, name in ((several, "mine.safetensors"), (one, "mine")):
        with pytest.raises(CaptionError, match=r"one model .* Received: \d model"):
            pipeline.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
