"""Training from a model that has other words than the prepared data."""

import itertools

import keras
import numpy as np
import pytest
from tiny_run import experiment, prepare
from tiny_training import (
    assert_same_run,
    go,
    interrupt,
    interrupted,
    read_checkpoint,
    skip_graphs,
)

from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.pretrained import NAMES, shipped_model
from show_attend_tell.training import initial_model
from show_attend_tell.training import train as train_module
from show_attend_tell.training.initial_model import InitialModel


@pytest.fixture
def work(tmp_path, monkeypatch):
    skip_graphs(monkeypatch)
    return prepare(tmp_path / "work")


@pytest.fixture
def start(work, tmp_path):
    """A model whose words are `extra` and those of the data but for star."""
    path = work / "made-up" / "vocabulary.json"
    words = Vocabulary.load(path).words
    kept = (*words[:4], "extra", *(w for w in reversed(words[4:]) if w != "star"))
    Vocabulary(kept).save(path)
    done = go(work, tmp_path / "start", training={"epochs": 1})
    Vocabulary(words).save(path)
    return done.model, kept


def save_last(work, folder, settings):
    """Train so that every validation is the best; return the model's path."""
    scores = itertools.count(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            train_module,
            "validate",
            lambda *rest: ({"BLEU-4": next(scores), "CIDEr": 1.0}, {}),
        )
        return go(work, folder, training=settings).model


def test_the_model_s_words_are_kept_and_new_ones_are_added(
    work, start, tmp_path, caplog
):
    caplog.set_level("INFO", initial_model.logger.name)
    model, kept = start
    settings = {"init_from": str(model), "epochs": 1, "learning_rate": 1e-9}
    done = go(work, tmp_path / "runs", training=settings)
    ours, theirs = (keras.saving.load_model(path) for path in (done.model, model))
    assert ours.vocabulary.words == (*kept, "star")
    np.testing.assert_allclose(
        ours.decoder.embedding[:-1], theirs.decoder.embedding, atol=1e-6
    )
    assert f"{len(kept)} words are kept, 1 are new: star" in caplog.text
    assert Vocabulary.load(done.folder / "vocabulary.json") == ours.vocabulary


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_resumed_training_needs_the_initial_model_no_more(
    work, start, tmp_path, share
):
    model, _ = start
    settings = {"init_from": str(model), "average_decay": 0.9, "initial_share": share}
    go(work, tmp_path / "whole", training=settings)
    with interrupted(interrupt, 5):
        go(work, tmp_path / "resumed", training=settings)
    assert read_checkpoint(tmp_path / "resumed")[1]["step"] == 5
    model.unlink()
    go(work, tmp_path / "resumed", resume=True, training=settings)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


def test_the_saved_model_has_its_share_of_the_initial_weights(work, start, tmp_path):
    model, _ = start
    settings = {"init_from": str(model), "epochs": 1, "validate_every": 1}
    half = {**settings, "initial_share": 0.5}
    models = [
        keras.saving.load_model(path)
        for path in (
            model,
            save_last(work, tmp_path / "whole", settings),
            save_last(work, tmp_path / "half", half),
        )
    ]
    old = len(models[0].vocabulary)
    initial, trained, mixed = (np.asarray(m.decoder.embedding)[:old] for m in models)
    assert np.abs(trained - initial).max() > 1e-3
    np.testing.assert_allclose(mixed, (initial + trained) / 2, rtol=1e-4, atol=1e-6)


def test_the_shipped_model_is_found_by_its_name(tmp_path):
    for name in NAMES:
        found = InitialModel.load(name, tmp_path)
        assert found.path == shipped_model(name)
        kind = type(found.captioner.decoder).__name__
        assert kind == ("TransformerDecoder" if name == "shipped" else "LstmDecoder")
    words = found.captioner.vocabulary.words
    assert found.extend(Vocabulary((*words[:9], "rex"))).words == (*words, "rex")
    assert experiment(training={"init_from": "shipped"}).training.init_from == "shipped"
