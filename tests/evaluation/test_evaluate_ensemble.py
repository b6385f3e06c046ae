"""Evaluation of several models, and over mirrored photos."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from sealed_features import edited
from tiny_evaluation import EXPERIMENT, IDENTITY, make_place

from show_attend_tell.config.runs import model_digest
from show_attend_tell.data.features import feature_path
from show_attend_tell.runtime.errors import DataError, EvaluationError

pytestmark = pytest.mark.usefixtures("numpy_searches", "no_java")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Prepared data and a run; the mirrored views are those of mirrored locations."""
    place = make_place(tmp_path_factory.mktemp("ensemble"))
    path = feature_path(place.data, EXPERIMENT.encoder)
    mirrored = feature_path(place.data, EXPERIMENT.encoder, "val")
    mirrored.write_bytes(path.read_bytes())
    with edited(mirrored) as file:
        features = file["features"][:]
        grid = features.reshape(len(features), *IDENTITY["grid"], -1)
        file["features"][:] = grid[:, :, ::-1].reshape(features.shape)
        file.attrs["mirrored"] = True
    return place


def test_copies_of_a_model_over_equal_views_are_that_model(place):
    place.evaluate()
    model = place.run / "model.safetensors"
    report = place.evaluate(model=[model, model], mirror=True)
    expected = place.saved("captions-val.json")
    found = place.saved("captions-val-ensemble-2-mirror.json")
    assert [one["caption"] for one in found] == [one["caption"] for one in expected]
    np.testing.assert_allclose(
        [one["log_prob"] for one in found],
        [one["log_prob"] for one in expected],
        atol=1e-4,
    )
    scores = place.saved("scores-ensemble-2-mirror.json")
    assert scores["model"] == f"{model}, {model}"
    digest = model_digest(model)
    assert scores["model_digest"] == f"{digest}, {digest}"
    assert scores["mirror"] is True
    assert scores["BLEU-4"] == pytest.approx(report.scores["BLEU-4"])
    assert place.saved("scores.json")["model"] == str(model)


def test_absent_mirrored_features_are_named_in_one_line(place):
    path = feature_path(place.data, EXPERIMENT.encoder, "val")
    moved = path.rename(path.with_suffix(".away"))
    try:
        with refused(DataError, r"mirror-val\.h5.*--mirror-split val"):
            place.evaluate(mirror=True)
    finally:
        moved.rename(path)


@pytest.mark.nightly
def test_another_model_and_another_beam_leave_the_runs_own_scores(place):
    place.evaluate()
    own = (place.run / "scores.json").read_bytes()
    other = shutil.copy(
        place.run / "model.safetensors", place.runs / "other.safetensors"
    )
    place.evaluate(model=other)
    place.evaluate(model=place.run / "model.safetensors", beam=1)
    (place.runs / "another").mkdir()
    third = shutil.copy(place.run / "model.safetensors", place.runs / "another")
    place.evaluate(model=third)
    assert place.saved("scores-model-another.json")["model"] == str(third)
    assert place.saved("scores-model-other.json")["model"] == str(other)
    assert place.saved("scores-beam-1.json")["beam"] == 1
    assert (place.run / "captions-val-model-other.json").exists()
    assert (place.run / "scores.json").read_bytes() == own


def test_models_whose_names_differ_after_a_dot_have_their_own_scores(place):
    for rate in ("lr-0.1", "lr-0.2"):
        (place.runs / rate).mkdir()
        model = shutil.copy(place.run / "model.safetensors", place.runs / rate)
        place.evaluate(model=model)
        assert place.saved(f"scores-model-{rate}.json")["model"] == str(model)


def test_scores_of_a_copied_run_are_replaced_while_the_run_is_present(place):
    original = place.runs / "original.safetensors"
    shutil.copy(place.run / "model.safetensors", original)
    scores = {"model": str(original)}
    (place.run / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    own = place.run / "model.safetensors"
    place.evaluate(model=own)
    assert place.saved("scores.json")["model"] == str(own)


def test_scores_of_another_ensemble_are_kept(place):
    own = place.run / "model.safetensors"
    pairs = [
        [own, shutil.copy(own, place.runs / f"{name}.safetensors")] for name in "ab"
    ]
    place.evaluate(model=pairs[0])
    place.evaluate(model=pairs[0])
    with refused(EvaluationError, "scores-ensemble-2.json: has the scores of .*a.safe"):
        place.evaluate(model=pairs[1])


def test_scores_of_a_model_of_the_same_name_in_another_folder_are_kept(place):
    models = []
    for folder in ("first", "second"):
        (place.runs / folder).mkdir()
        copy = place.runs / folder / "same.safetensors"
        models.append(shutil.copy(place.run / "model.safetensors", copy))
    place.evaluate(model=models[0])
    before = (place.run / "scores-model-same.json").read_bytes()
    with refused(EvaluationError, "scores-model-same.json: has the scores of"):
        place.evaluate(model=models[1])
    assert (place.run / "scores-model-same.json").read_bytes() == before
    Path(models[0]).unlink()  # whose scores nobody can compute again
    place.evaluate(model=models[1])
    assert place.saved("scores-model-same.json")["model"] == str(models[1])
