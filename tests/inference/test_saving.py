"""A saved pipeline captions as the pipeline does, from files that stand alone."""

import shutil

import pytest
from tiny_pipeline import photo_bytes, tiny_pipeline

from show_attend_tell.inference.confidence import calibration_path
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.models.pretrained import SHIPPED
from show_attend_tell.reference.reranker import reranker_beside
from show_attend_tell.runtime.errors import CaptionError


def test_a_saved_pipeline_gives_the_same_caption_and_replaces_what_was_there(tmp_path):
    pipeline, file = tiny_pipeline(), tmp_path / "new" / "mine.keras"
    file.parent.mkdir()
    for old in (file, reranker_beside(file), calibration_path(file)):
        old.write_text("of an earlier model")
    pipeline.save(file)
    assert [path.name for path in file.parent.iterdir()] == ["mine.keras"]
    caption, again = (p.caption(photo_bytes()) for p in (pipeline, load(file)))
    assert again.text == caption.text
    assert again.log_prob == pytest.approx(caption.log_prob, abs=1e-5)


def test_reranker_and_calibration_go_with_the_model_until_its_weights_change(tmp_path):
    source, file = tmp_path / "source.keras", tmp_path / "mine.keras"
    for path in (SHIPPED, reranker_beside(SHIPPED), calibration_path(SHIPPED)):
        shutil.copyfile(path, tmp_path / path.name.replace(SHIPPED.stem, "source"))
    pipeline = load(source)
    pipeline.save(file)
    for beside in (reranker_beside, calibration_path):
        assert beside(file).read_bytes() == beside(source).read_bytes()
    caption, again = (p.caption(photo_bytes()) for p in (pipeline, load(file)))
    assert (again.text, again.confidence) == (caption.text, caption.confidence)
    weight = pipeline.captioner.weights[0]
    weight.assign(weight + 0.01)
    pipeline.save(file)
    assert reranker_beside(file).is_file()
    assert not calibration_path(file).exists()
    assert load(file).calibration is None
    pipeline.save(source)  # over its own file
    assert reranker_beside(source).is_file()
    assert not calibration_path(source).exists()


def test_several_models_and_other_endings_are_refused(tmp_path):
    several = CaptioningPipeline(load([SHIPPED, SHIPPED]).engine)
    for pipeline, name in ((several, "mine.keras"), (tiny_pipeline(), "mine")):
        with pytest.raises(CaptionError, match=r"one model .* Received: \d model"):
            pipeline.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
