"""Training, fitting and evaluating on several data sets as on one."""

import functools
import json

import numpy as np
import pytest
from tiny_run import experiment, prepare
from tiny_training import (
    REWARD,
    QuickStep,
    assert_resumes,
    go,
    read_checkpoint,
)

from show_attend_tell.config.runs import MODEL
from show_attend_tell.data.splits import open_features, read_photos, vocabulary_path
from show_attend_tell.data.vocabulary import Vocabulary, tokenize
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.training import maximum_likelihood
from show_attend_tell.training.reranking import fit_reranker, reranker_path
from show_attend_tell.training.self_critical import SelfCritical

pytestmark = pytest.mark.usefixtures("numpy_searches", "quick", "no_java")

DATA = {"data": {"also": {"more": 0.5}}}
SETS = experiment(**DATA)
STEPS = 4  # updates per epoch: 18 + 18 / 2 captions in batches of 8


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Prepare two data sets, and the vocabulary of both."""
    work = prepare(tmp_path_factory.mktemp("work"), mirror=True)
    prepare(work, mirror=True, name="more", seed=4)
    photos = [photo for photo in read_photos(SETS, work) if photo.split == "train"]
    captions = [tokenize(text) for photo in photos for text in photo.captions]
    Vocabulary.build([*captions, ["both"]]).save(vocabulary_path(SETS, work))
    return work


@pytest.mark.nightly
@pytest.mark.parametrize("mirror", [True, False])
def test_an_interrupted_training_resumes_to_the_byte(work, tmp_path, mirror):
    options = {**DATA, "encoder": {"mirror": mirror}}
    assert_resumes(functools.partial(go, work, **options), tmp_path, 6)
    assert read_checkpoint(tmp_path / "whole")[1]["step"] == 3 * STEPS
    model = load_captioner(tmp_path / "whole" / "tiny" / MODEL)
    assert "both" in model.vocabulary


def test_a_training_is_short_by_the_captions_that_its_epochs_show(
    work, tmp_path, monkeypatch
):
    padded = set()

    class Recording(QuickStep):
        def __call__(self, x, targets, weight=None):
            padded.add(targets.shape[1])
            return super().__call__(x, targets)

    monkeypatch.setattr(maximum_likelihood, "captioner_step", Recording)
    # 3 epochs of 27 captions in batches of 8 are 10 updates, and of all 36 are 14.
    monkeypatch.setattr(maximum_likelihood, "FEW_UPDATES", 12)
    go(work, tmp_path, **DATA)
    assert padded == {12}


@pytest.mark.nightly
def test_training_by_reward_and_distillation_show_weighted_photos(
    work, tmp_path, monkeypatch
):
    go(work, tmp_path, training={"epochs": 1}, **DATA)
    shown = []

    def update(self, chosen, rng):
        shown.extend(chosen)
        x = {"annotations": self.views.readers[0].read(self.data.rows[chosen])}
        return {**QuickStep(self.model)(x, np.zeros(1)), "reward": 1.0}

    monkeypatch.setattr(SelfCritical, "_update", update)
    reward = {**REWARD, "epochs": 1, "init_from": "tiny"}
    go(work, tmp_path, name="reward", training=reward, **DATA)
    counts = np.bincount(shown, minlength=24)
    np.testing.assert_array_equal(counts[:12], np.ones(12))
    assert counts[12:].sum() == 6
    taught = {"objective": "distil", "epochs": 1}
    taught = {"training": taught, "distillation": {"teachers": ["tiny"]}}
    assert go(work, tmp_path, name="student", **taught, **DATA).steps == STEPS


def test_a_reranker_and_an_evaluation_see_the_photos_of_all_sets(work, tmp_path):
    done = go(work, tmp_path, training={"epochs": 1}, **DATA)
    reranker = fit_reranker(SETS, work)
    assert len(reranker.landmarks) == 24
    quiet = {"tokenizer": "simple", "progress": False}
    for settings, photos in ((SETS, 8), (experiment(), 4)):
        report = evaluate(settings, work, tmp_path, **quiet)
        assert report.photos == photos
        captions = json.loads((done.folder / "captions-val.json").read_text())
        assert len(captions) == photos
    ids = [caption["image_id"] for caption in captions]
    assert not any(str(name).startswith("more/") for name in ids)


def test_rerankers_of_other_weights_have_other_files(tmp_path):
    def name_with(**data):
        return reranker_path(experiment(data=data), tmp_path).name

    assert name_with() == "reranker-Tiny-last.safetensors"
    assert name_with(also={"more": 1.0}) == "reranker-Tiny-last+more.safetensors"
    assert name_with(also={"more": 0.5}) == "reranker-Tiny-last+more=0.5.safetensors"
    kept = name_with(also={"more": 2, "and": 1, "b.c": 0.1}, punctuation="keep")
    assert kept == "reranker-Tiny-last-keep+and+b.c=0.1+more=2.0.safetensors"


def test_a_training_without_the_vocabulary_of_all_sets_names_it(work, tmp_path):
    also = {"more": 1.0, "other": 1.0}
    prepare(work, name="other")
    open_features(experiment(data={"also": also}), work).close()
    with pytest.raises(DataError, match=r"vocabulary\+more\+other\.json: no suc"):
        go(work, tmp_path, data={"also": also})
