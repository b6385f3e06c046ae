"""Training by reward: its gradient, its batches, and that the reward rises."""

import numpy as np
import pytest
import tensorflow as tf
from checks import assert_equal_leaves
from refusals import refused
from tiny_captioner import END, PAD, START, build, captions, photos
from tiny_run import experiment
from tiny_training import (
    REWARD,
    QuickStep,
    go,
    record_updates,
    score_in_turn,
    skip_captions,
    start_run,
    train_first,
)

from show_attend_tell.data.dataset import FeatureViews
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.splits import folder_of, load_splits
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ConfigError, ModelFileError
from show_attend_tell.training.self_critical import (
    SelfCritical,
    advantages,
    reward_words,
    to_batch,
)

BY_REWARD = {**REWARD, "epochs": 1}


def test_an_advantage_is_the_reward_less_the_mean_of_the_others():
    rewards = np.array([[1.0, 2.0, 6.0], [3.0, 5.0, 9.0], [4.0, 9.0, 9.0]])
    present = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], bool)
    expected = [[-3.0, -1.5, 4.5], [-2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(advantages(rewards, present), expected)


def test_captions_become_inputs_after_start_and_targets_up_to_end():
    tokens = np.array([[[5, 6, END, PAD], [7, 8, 9, 4]], [[5, END, PAD, PAD]] * 2])
    present = np.array([[True, True], [True, False]])
    inputs, targets = to_batch(tokens, present)
    rows = [[5, 6, END, PAD], [7, 8, 9, 4], [5, END, PAD, PAD], [PAD] * 4]
    np.testing.assert_array_equal(targets, rows)
    rows = [[START, 5, 6, PAD], [START, 7, 8, 9], [START, 5, PAD, PAD], [PAD] * 4]
    np.testing.assert_array_equal(inputs, rows)


def test_only_a_finished_caption_has_the_end_word(rng):
    words = build(rng).vocabulary
    assert reward_words(words, np.array([4, 5, END]), True) == ["a", "b", "<end>"]
    assert reward_words(words, np.array([4, 5, 6]), False) == ["a", "b", "c"]


def _gradients(model, x, y, weight=None):
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x, y, y_pred, weight)
    grads = tape.gradient(loss, model.trainable_variables)
    return [tf.convert_to_tensor(g).numpy() for g in grads]


def test_the_gradient_is_the_advantage_times_that_of_log_p(rng):
    model = build(rng, {"doubly_stochastic": 0.0})
    features, (tokens, targets) = photos(rng), captions(rng)
    x, weight = {"annotations": features, "tokens": tokens}, np.float32([2, -1, 0.5])
    found = _gradients(model, x, targets, weight)
    expected = [np.zeros_like(g) for g in found]
    for b in range(3):
        alone = {name: value[b : b + 1] for name, value in x.items()}
        single = _gradients(model, alone, targets[b : b + 1])
        expected = [
            e + weight[b] * s / 3 for e, s in zip(expected, single, strict=True)
        ]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def started(work, tmp_path_factory):
    """The folder of the run that training by reward starts from."""
    return start_run(work, tmp_path_factory.mktemp("runs"))


def further(work, runs, name="rewarded", overwrite=False, **changes):
    changes = {**BY_REWARD, "init_from": "tiny", **changes}
    model = {"dropout": 0.0}
    return go(work, runs, False, overwrite, name=name, training=changes, model=model)


@pytest.mark.slow
def test_training_by_reward_raises_the_reward(work, tmp_path, monkeypatch):
    started = train_first(work, tmp_path, epochs=5)
    skip_captions(monkeypatch)
    updates = record_updates(monkeypatch)
    changes = {"epochs": 10, "learning_rate": 0.01, "validate_every": 100}
    summary = further(work, started, overwrite=True, **changes)
    rewards = [values["reward"] for values in updates]
    assert len(rewards) == summary.steps == 10 * 3  # 5 photos an update
    part = len(rewards) // 5
    assert np.mean(rewards[-part:]) > 1.2 * np.mean(rewards[:part])


@pytest.mark.nightly
def test_the_initial_model_is_the_first_candidate(work, started, monkeypatch):
    def update(self, chosen, rng):
        x = {"annotations": self.views.readers[0].read(self.data.rows[chosen])}
        return QuickStep(self.model)(x, np.zeros(1))

    skip_captions(monkeypatch)
    monkeypatch.setattr(SelfCritical, "_update", update)
    score_in_turn(monkeypatch, [50.0, 40.0])
    summary = further(work, started, "worse", average_decay=0.9)
    assert (summary.best, summary.best_step) == (50.0, 0)
    names = ("worse", "tiny")
    models = [load_captioner(started / name / "model.safetensors") for name in names]
    assert_equal_leaves(*(model.get_weights() for model in models))


def test_every_photo_is_used_once_an_epoch(work, started):
    weights = {"reward_bleu": 0.5, "people_penalty": 2.0}
    chosen = experiment(training=BY_REWARD | weights)
    with FeatureReader(feature_path(folder_of(chosen, work), chosen.encoder)) as reader:
        (data,) = load_splits(chosen, work, ["train"], reader)
        model = load_captioner(started / "tiny" / "model.safetensors")
        objective = SelfCritical(chosen, model, data, FeatureViews([reader]))
        assert (objective.reward.bleu, objective.reward.people) == (0.5, 2.0)
        seen = []
        objective._update = lambda photos, rng: seen.append(photos)
        list(objective.updates(epoch=3))
        assert sorted(np.concatenate(seen)) == list(range(12))
        whole, seen[:] = list(seen), []
        list(objective.updates(epoch=3, start=1))
        assert_equal_leaves(seen, whole[1:])


def test_a_run_is_not_replaced_when_its_initial_model_is_absent_or_its_own(
    work, started
):
    folder = started / "tiny"
    before = (folder / "model.safetensors").read_bytes()
    absent = r"'absent': no such model"
    with refused(ModelFileError, absent):
        further(work, started, "tiny", overwrite=True, init_from="absent")
    with refused(ConfigError, "`training.init_from` must be a model outside of"):
        further(work, started, "tiny", overwrite=True)
    assert (folder / "model.safetensors").read_bytes() == before
