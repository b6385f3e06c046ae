"""The reader's own parts of a training: batches, statistics, and words by heart."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tiny_reader import experiment, prepare_words

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.siblings.words import training
from show_attend_tell.siblings.words.convolutions import convolve
from show_attend_tell.siblings.words.data import PAD, WordData, encode_words
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.reading import best_readings
from show_attend_tell.siblings.words.training import LENGTHS, ReadTask, split_targets


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare_words(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def data(work):
    return WordData.open(work / "made-up", "train")


def task_of(data, **changes):
    task = ReadTask(experiment(training=changes), data, data)
    task.compile(10)
    return task


def test_an_epoch_has_every_word_once_and_shorter_ones_first_in_a_batch(data):
    task, found = task_of(data), []
    for batch in task.objective.batches(0):
        words = [row for part in batch.parts for row in part]
        lengths = [np.sum(row != PAD) for row in words]
        assert lengths == sorted(lengths)
        found += [row[:n].tobytes() for row, n in zip(words, lengths, strict=True)]
    wanted = (row[: np.sum(row != PAD)].tobytes() for row in task.targets)
    assert sorted(found) == sorted(wanted)


@pytest.mark.nightly
def test_photos_of_words_continue_the_packaged_reader(work, tmp_path):
    given = load_experiment("read_iiit5k")
    tables = {"reader": dataclasses.asdict(given.reader)}
    tables["training"] = {"init_from": given.training.init_from}
    model = ReadTask.open(experiment("made-up", **tables), work, tmp_path).model
    packaged = READERS.load_shipped()
    for one, other in zip(model.weights, packaged.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parts_of_a_batch_are_as_long_as_their_words():
    words = ["a"] * 5 + ["abcdefg", "abcdefgh", "a" * 23]

    def shapes(words):
        return [part.shape for part in split_targets(encode_words(words))]

    assert shapes(words) == [(6, 8), (2, 24)]
    assert shapes(["a"] * 8) == [(6, 8), (2, 8)]
    assert shapes(["abcdefgh"]) == [(1, 16)]
    assert LENGTHS[-1] == encode_words(words).shape[1]


@pytest.mark.slow
def test_parts_do_not_change_the_update(data, monkeypatch):
    """A batch of words of every length, compiled, and the same batch in one part."""
    found = []
    long = WordData(data.images[:8], ["a" * 23, "b" * 12, *data.words[:6]])
    for split in (split_targets, lambda targets: (targets,)):
        monkeypatch.setattr(training, "split_targets", split)
        task = task_of(long, augment=False, jit_compile=split is split_targets)
        next(task.objective.updates(0))
        found.append([np.asarray(w) for w in task.model.trainable_weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.slow
def test_statistics_of_averaged_weights_are_those_of_their_own_sums(data):
    """They are the mean over the crops themselves, whatever was stored before."""
    task = task_of(data, batch_size=40)  # 40 crops are one batch
    model, found = Reader(task.experiment.reader, seed=9), []
    for before in (50.0, -3.0):
        stored = [one for pair in model.encoder.statistics for one in pair]
        for one in stored:
            one.assign(np.full(one.shape, before))
        task.estimate_statistics(model)
        found.append([np.asarray(one) for one in stored])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    layer, crops = model.encoder.convolutions[0], np.asarray(data.images, np.float32)
    images = tf.constant(np.asarray(training.normalised(crops))[..., None])
    sums = np.asarray(convolve(images, layer.feedforward[0]))
    np.testing.assert_allclose(layer.means[0], sums.mean((0, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(layer.variances[0], sums.var((0, 1, 2)), rtol=1e-3)


FEATURES = {"feature_width": 128, "feature_dropout": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "epochs"),
    [
        ({"attention_width": 32}, 220),
        ({**FEATURES, "decoder": "independent"}, 150),
        ({**FEATURES, "decoder": "rnn2_factored"}, 260),
    ],
)
def test_a_reader_learns_64_words_by_heart(tmp_path, reader, epochs):
    work = prepare_words(tmp_path, train=64, val=2, longest=7)
    settings = {"epochs": epochs, "batch_size": 64, "augment": False}
    settings |= {"average_decay": 0.0, "label_smoothing": 0.0, "learning_rate": 5e-3}
    settings |= {"validate_every": 10_000, "warmup_steps": 20}
    reader = {"channels": [16, 16, 32, 32], "width": 64, **reader}
    chosen = experiment(training=settings, reader=reader)
    done = training.train(chosen, work, tmp_path / "runs", progress=False)
    data = WordData.open(work / "made-up", "train")
    readings = best_readings(Searcher(READERS.load(done.model)), data.images)
    assert [reading.word for reading in readings] == data.words


def test_the_digest_depends_on_words_and_pixels(data):
    other = WordData(data.images, [*data.words[:-1], "other"])
    brighter = WordData(data.images[:] ^ 1, data.words)
    assert len({one.digest() for one in (data, other, brighter)}) == 3
