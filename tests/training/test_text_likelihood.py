"""Training on captions without photos: its loss, its run, and what starts from it."""

import gzip

import keras
import numpy as np
import oracle
import pytest
from tiny_captioner import build, weights
from tiny_run import experiment, prepare
from tiny_training import assert_same_run, go, skip_graphs

from show_attend_tell.data.splits import Split
from show_attend_tell.models.language_model import context_weights
from show_attend_tell.runtime.errors import ConfigError, DataError
from show_attend_tell.training import text_likelihood
from show_attend_tell.training.optimizer import make_optimizer
from show_attend_tell.training.text_likelihood import TextLikelihood, text_experiment
from show_attend_tell.training.train import Trainer

TEXT = "A red circle\nThe blue star.\nA green zebra, a star\n" * 4


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "text.gz").write_bytes(gzip.compress(TEXT.encode()))
    return prepare(folder)


def of_text(work, **training):
    return {"objective": "text", "text": [str(work / "text.gz")], **training}


@pytest.fixture(scope="module")
def trained(work, tmp_path_factory):
    """The summary of a whole training on text; its folder is not changed."""
    settings = of_text(work, epochs=20, average_decay=0.9)
    return go(work, tmp_path_factory.mktemp("trained"), training=settings)


def small_objective(rng, words, **training):
    """Return the objective of two photos' captions, with random weights."""
    model = build(rng)
    settings = {"objective": "text", "batch_size": 4, "clip_norm": 0.0, **training}
    chosen = experiment(training=settings)
    data = Split("train", [None], np.zeros(1, int), [words])
    objective = TextLikelihood(chosen, model, data, data)
    optimizer = make_optimizer(chosen.training, 10)
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    return objective, model


CAPTIONS = [["a", "b", "zebra"], ["c"], ["d", "zebra", "e", "f"]]  # zebra is unknown


def oracle_losses(model, smoothing=0.0):
    """Return -log p, smoothed, of the known words of CAPTIONS, a list for each."""
    p, nothing, losses = weights(model), np.zeros((6, 5)), []
    for words in CAPTIONS:
        ids = [*model.vocabulary.encode(words), 2]
        logits = oracle.run(p, nothing, [1, *ids[:-1]], model.settings)["logits"]
        log_p = [oracle.log_softmax(row) for row in logits]
        losses.append(
            [
                -(1 - smoothing) * row[k] - smoothing * row.mean()
                for row, k in zip(log_p, ids, strict=True)
                if k != 3
            ]
        )
    return losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_known_words_and_ends(rng, smoothing):
    objective, model = small_objective(rng, CAPTIONS, label_smoothing=smoothing)
    losses = oracle_losses(model, smoothing)
    (values,) = objective.updates(epoch=0)
    expected = sum(map(sum, losses)) / len(CAPTIONS)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
    expected = sum(map(sum, losses)) / sum(map(len, losses))
    np.testing.assert_allclose(values["word_loss"], expected, rtol=1e-5)


def test_the_scores_are_those_of_known_words_and_ends(rng):
    objective, model = small_objective(rng, CAPTIONS, batch_size=2, label_smoothing=0.1)
    losses = sum(oracle_losses(model), [])
    scores = objective.validate(model)
    nats = np.mean(losses)
    assert scores["nats_per_word"] == pytest.approx(nats, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(np.exp(nats), rel=1e-5)
    assert scores["word_probability"] == pytest.approx(100 / np.exp(nats), rel=1e-5)


def test_an_update_changes_every_weight_but_those_of_the_context(rng):
    objective, model = small_objective(rng, CAPTIONS, optimizer="adamw")
    before = [np.array(w) for w in model.weights]
    list(objective.updates(epoch=0))
    same = {
        weight.name
        for weight, old in zip(model.weights, before, strict=True)
        if np.array_equal(weight, old)
    }
    expected = {weight.name for weight in context_weights(model.decoder)}
    assert same == expected | {"annotation_scale"}


def test_training_lowers_the_perplexity_and_names_its_score(trained):
    assert trained.metric == "word_probability"
    assert trained.best > 30  # 100 / perplexity; that of uniform words is 9
    assert trained.steps == 20 * 4  # 12 captions of text, 18 of photos, 8 a batch


@pytest.mark.slow
def test_a_resumed_training_equals_an_uninterrupted_one(
    work, tmp_path, trained, monkeypatch
):
    settings = of_text(work, epochs=20, average_decay=0.9)
    check, seen = Trainer._after_update, []

    def interrupt(self, *arguments):
        seen.append(1)
        if len(seen) == 6:
            raise KeyboardInterrupt
        check(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            go(work, tmp_path, training=settings)
    go(work, tmp_path, resume=True, training=settings)
    assert_same_run(tmp_path, trained.folder.parent)


def test_a_training_with_photos_starts_from_the_language(
    work, tmp_path, trained, monkeypatch
):
    skip_graphs(monkeypatch)
    start = keras.saving.load_model(trained.model)
    assert all(weight.trainable for weight in start.decoder.weights)
    settings = {"init_from": str(trained.model), "learning_rate": 1e-9, "epochs": 1}
    done = go(work, tmp_path, training=settings)
    for ours, theirs in zip(
        keras.saving.load_model(done.model).decoder.weights,
        start.decoder.weights,
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_text_gives_an_experiment_with_photos_a_run_of_its_own():
    named = text_experiment(experiment(), ["a.txt"])
    assert (named.name, named.training.objective) == ("tiny-text", "text")
    assert named.training.text == ("a.txt",)
    again = text_experiment(named, ["b.txt"])
    assert (again.name, again.training.text) == ("tiny-text", ("b.txt",))


def test_files_of_text_need_the_objective_text():
    with pytest.raises(ConfigError, match="objective = 'text'"):
        experiment(training={"text": ["a.txt"]})


def test_a_missing_file_is_one_line(work, tmp_path):
    settings = {"objective": "text", "text": [str(tmp_path / "none.txt")]}
    with pytest.raises(DataError, match="no such text file"):
        go(work, tmp_path / "runs", training=settings)
    assert not (tmp_path / "runs").exists()


def test_the_vocabulary_s_share_of_the_words_is_logged(work, rng, caplog):
    caplog.set_level("INFO", text_likelihood.logger.name)
    small_objective(rng, CAPTIONS)
    assert "3 captions, 0 of text files; the vocabulary covers 75.00 %" in caplog.text
