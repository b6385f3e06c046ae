"""Training a reader: a run folder, resuming, curves, an initial model, and scores."""

import functools
import json
import time

import numpy as np
import pytest
import tensorflow as tf
from made_up_reading import experiment, prepare_words
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_reader import drawn_words
from tiny_training import assert_resumes

from show_attend_tell.cli import main as cli
from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS
from show_attend_tell.data.characters import encode_words
from show_attend_tell.data.words import WordData
from show_attend_tell.runtime.errors import ModelFileError, TrainingError, WordsError
from show_attend_tell.siblings.words import training, updates
from show_attend_tell.siblings.words.convolutions import convolve
from show_attend_tell.siblings.words.evaluation import evaluate
from show_attend_tell.siblings.words.generation import Searcher, words_of
from show_attend_tell.siblings.words.reading import Lexicon
from show_attend_tell.siblings.words.model import Reader, mask_of
from show_attend_tell.siblings.words.task import load_model
from show_attend_tell.siblings.words.training import digest_of, train
from show_attend_tell.siblings.words.updates import LENGTHS, WordUpdates, parts_of
from show_attend_tell.training import tensorboard_log

STEPS = 5  # updates per epoch: 40 training words in batches of 8


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare_words(tmp_path_factory.mktemp("work"))


def run(work, folder, resume=False, **changes):
    return train(experiment(**changes), work, folder, resume, progress=False)


@pytest.fixture(scope="module")
def real(work, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard_log, "EVERY", 1)
        patch.setattr(training, "SHOWN", 1)
        return run(work, tmp_path_factory.mktemp("real"))


def test_training_ends_with_a_run_folder_that_can_be_measured(real, work):
    assert (real.steps, real.metric) == (2 * STEPS, "word_accuracy")
    assert {SETTINGS, MODEL, CHECKPOINT} <= {p.name for p in real.folder.iterdir()}
    report = evaluate(experiment(), work, real.folder.parent)
    scores = json.loads((real.folder / "scores.json").read_text())
    assert scores["word_accuracy"] == report.word_accuracy == pytest.approx(real.best)
    assert (scores["split"], scores["words"]) == ("val", 12)
    assert scores["measured"] == "greedy, capitals as small letters, without a lexicon"
    low, high = scores["interval"]
    assert low <= scores["word_accuracy"] <= high
    assert {"similarity", "character_accuracy", "by_length", "settings"} < set(scores)
    assert sum(count for _, count in scores["by_length"].values()) == 12
    assert "word accuracy" in "\n".join(report.lines())


@pytest.mark.slow
def test_other_ways_to_measure_have_files_of_their_own(real, work):
    lexicon = Lexicon(drawn_words(12, 6, 1)[1])
    split = {"split": "train", "beam": 2, "lexicon": lexicon}
    report = evaluate(experiment(), work, real.folder.parent, **split)
    file = real.folder / "scores-made-up-train-beam-2-lexicon.json"
    assert json.loads(file.read_text())["words"] == report.words == 40


def test_tensorboard_shows_losses_scores_words_and_attention(real):
    log = EventAccumulator(str(real.folder), {"tensors": 0}).Reload()
    tags = {tag: log.Tensors(tag) for tag in log.Tags()["tensors"]}
    for name in ("loss", "word_loss", "character_loss", "gradient_norm"):
        steps = [event.step for event in tags[f"train/{name}"]]
        assert steps == list(range(1, 2 * STEPS + 1)), name
    for name in ("word_accuracy", "character_accuracy", "similarity"):
        assert [e.step for e in tags[f"validation/{name}"]] == [STEPS, 2 * STEPS]
    assert [event.step for event in tags["word/0"]] == [STEPS, 2 * STEPS]


def skip_words(patch):
    """Score weights and statistics in place of words, and show none, to save time."""

    def validate(self, model, step):
        self.objective.estimate_statistics(model)
        return {"word_accuracy": float(sum(np.abs(w).sum() for w in model.weights))}

    patch.setattr(training.ReadTask, "validate", validate)
    patch.setattr(training.ReadTask, "show", lambda *arguments: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reader",
    [{"decoder": "independent"}, {}],
    ids=["features with dropout", "places"],
)
def test_a_resumed_training_equals_an_uninterrupted_one(
    work, tmp_path, monkeypatch, reader
):
    changes = {"reader": reader, "training": {"average_decay": 0.9}}
    skip_words(monkeypatch)
    train_here = functools.partial(run, work, **changes)
    assert_resumes(train_here, tmp_path, 7)


@pytest.mark.slow
def test_training_continues_from_the_model_of_another_run(real, work, tmp_path):
    source = str(real.folder / MODEL)
    changes = {"init_from": source, "learning_rate": 1e-9, "warmup_steps": 0}
    done = run(work, tmp_path, training={**changes, "weight_decay": 0.0})
    ours, theirs = load_model(done.model), load_model(real.model)
    pairs = zip(ours.trainable_weights, theirs.trainable_weights, strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert done.best >= real.best


def test_an_initial_model_of_other_settings_is_an_error(real, work, tmp_path):
    changes = {"reader": {"width": 17}, "training": {"init_from": str(real.model)}}
    with pytest.raises(ModelFileError, match=r"settings of \[reader\]"):
        run(work, tmp_path, **changes)


def test_a_loss_that_is_not_finite_stops_training(work, tmp_path, monkeypatch):
    def not_finite(self, *position):
        yield {"loss": np.nan, "character_loss": np.nan}

    monkeypatch.setattr(WordUpdates, "updates", not_finite)
    with pytest.raises(TrainingError, match="the crops may be damaged"):
        run(work, tmp_path)


def test_a_split_that_is_not_prepared_is_an_error(real, work):
    with pytest.raises(WordsError, match="'train' or 'val'"):
        evaluate(experiment(), work, real.folder.parent, split="test")


def test_the_digest_is_that_of_words_and_pixels(work):
    data = WordData.open(work / "made-up", "train")
    other = WordData(data.images, [*data.words[:-1], "other"], data.paths)
    brighter = WordData(data.images[:] ^ 1, data.words, data.paths)
    digests = {digest_of(one) for one in (data, other, brighter)}
    assert len(digests) == 3
    assert digest_of(data) in digests


def word_updates(work, **changes):
    data = WordData.open(work / "made-up", "train")
    return WordUpdates(experiment(training=changes), None, data)


def test_batches_depend_on_seed_epoch_and_number_alone(work):
    one = list(word_updates(work).batches(1))
    resumed = list(word_updates(work).batches(1, 3))
    for a, b in zip(one[3:], resumed, strict=True):
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
            np.testing.assert_array_equal(x, y)
    other = next(word_updates(work, seed=2).batches(1))
    assert not np.array_equal(other.targets, one[0].targets)


def test_an_epoch_has_every_word_once_and_shorter_ones_first_in_a_batch(work):
    updates = word_updates(work)
    batches = list(updates.batches(0))
    found = np.concatenate([batch.targets for batch in batches])
    assert sorted(map(bytes, found)) == sorted(map(bytes, updates.targets))
    for batch in batches:
        lengths = np.asarray(mask_of(batch.targets)).sum(axis=1)
        assert (np.diff(lengths) >= 0).all()


def test_parts_of_a_batch_are_as_long_as_their_words():
    words = ["a"] * 5 + ["abcdefg", "abcdefgh", "a" * 23]
    assert parts_of(encode_words(words)) == ((6, 8), (2, 24))
    assert parts_of(encode_words(["a"] * 8)) == ((6, 8), (2, 8))
    assert parts_of(encode_words(["abcdefgh"])) == ((1, 16),)
    assert LENGTHS[-1] == encode_words(words).shape[1]


@pytest.mark.slow
def test_parts_do_not_change_the_update(work):
    """A batch read in parts gives the weights of the same batch in one part."""
    data = WordData.open(work / "made-up", "train")
    found = []
    for parts in (((6, 8), (2, 8)), ((8, 24),)):
        settings = experiment(training={"augment": False})
        task = training.ReadTask(settings, data, data)
        task.compile(10)
        step = updates.compiled_step(task.model, task.settings)
        batch = next(task.objective.batches(0))
        step(tf.nest.map_structure(tf.constant, batch), parts)
        found.append([np.asarray(w) for w in task.model.trainable_weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.slow
def test_words_of_every_length_are_trained_when_compiled(work):
    data = WordData.open(work / "made-up", "train")
    long = WordData(data.images[:8], ["a" * 23, "b" * 12, *data.words[:6]], [""] * 8)
    task = training.ReadTask(experiment(training={"jit_compile": True}), long, long)
    task.compile(10)
    (values,) = task.objective.updates(0)
    assert np.isfinite(float(values["loss"]))


@pytest.mark.slow
def test_statistics_of_averaged_weights_are_those_of_their_own_sums(work):
    """They are the mean over the crops themselves, whatever was stored before."""
    task = training.ReadTask(
        experiment(training={"batch_size": 40}),  # 40 crops are one batch
        *(WordData.open(work / "made-up", split) for split in ("train", "val")),
    )
    model = Reader(task.experiment.reader, seed=9)
    found = []
    for before in (50.0, -3.0):
        stored = [one for pair in model.encoder.statistics for one in pair]
        for one in stored:
            one.assign(np.full(one.shape, before))
        task.objective.estimate_statistics(model)
        found.append([np.asarray(one) for one in stored])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    layer = model.encoder.convolutions[0]
    crops = np.asarray(task.objective.data.images[:40], np.float32)
    images = np.asarray(updates.normalised(crops))[..., None]
    sums = np.asarray(convolve(tf.constant(images), layer.feedforward[0]))
    np.testing.assert_allclose(layer.means[0], sums.mean((0, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(layer.variances[0], sums.var((0, 1, 2)), rtol=1e-3)


FEATURES = {"feature_width": 128, "feature_dropout": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "epochs", "seconds"),
    [
        ({"attention_width": 32}, 150, 60),
        ({**FEATURES, "decoder": "independent"}, 150, None),
        ({**FEATURES, "decoder": "rnn2_factored"}, 260, None),
    ],
)
def test_a_reader_learns_64_words_by_heart(tmp_path, reader, epochs, seconds):
    work = prepare_words(tmp_path, train=64, val=2, longest=7)
    settings = {"epochs": epochs, "batch_size": 64, "augment": False}
    settings |= {"average_decay": 0.0, "label_smoothing": 0.0, "learning_rate": 5e-3}
    settings |= {"validate_every": 10_000, "warmup_steps": 20}
    reader = {"channels": [16, 16, 32, 32], "width": 64, **reader}
    started = time.process_time()
    done = run(work, tmp_path / "runs", training=settings, reader=reader)
    assert seconds is None or time.process_time() - started < seconds
    data = WordData.open(work / "made-up", "train")
    assert words_of(Searcher(load_model(done.model))(data.images)) == data.words


@pytest.mark.slow
def test_train_and_eval_are_verbs(work, tmp_path, capsys):
    from show_attend_tell.config.settings import experiment_to_toml

    file = tmp_path / "tiny.toml"
    file.write_text(experiment_to_toml(experiment(training={"epochs": 1})))
    places = ["--work", str(work), "--runs", str(tmp_path / "runs")]
    cli.main(["train", "-e", str(file), *places])
    cli.main(["eval", "-e", str(file), *places, "--split", "all"])
    printed = capsys.readouterr().out
    assert "best word_accuracy" in printed
    assert "tiny, made-up, all, 52 words" in printed
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", "-e", str(file), *places, "--spice"])
    assert ended.value.code == 2
