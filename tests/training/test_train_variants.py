"""Training a Transformer, and training hard attention, from prepared data."""

import numpy as np
import pytest
from tiny_training import (
    HARD,
    REWARD,
    TRANSFORMER,
    go,
    record_updates,
    skip_captions,
    skip_graphs,
)

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.training import train as training


@pytest.fixture
def logged(monkeypatch):
    """The values of every update; no captions are generated for validation."""
    skip_captions(monkeypatch)
    return record_updates(monkeypatch)


@pytest.mark.slow
def test_the_loss_falls(work, tmp_path, logged):
    how = {"precision": "bfloat16", "average_decay": 0.9, "optimizer": "adamw"}
    go(work, tmp_path, training={"epochs": 8, **how}, **TRANSFORMER)
    losses = [float(values["word_loss"]) for values in logged]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


def test_settings_of_a_file_without_effect_are_named(
    work, tmp_path, monkeypatch, caplog
):
    skip_graphs(monkeypatch)
    skip_captions(monkeypatch)
    go(work, tmp_path, training={"epochs": 1}, **TRANSFORMER)
    messages = [record.getMessage() for record in caplog.records]
    unused = "model.attention_width, model.dropout, model.embedding_width, "
    unused += "model.initializer, model.lstm_width: no effect with "
    assert f"{unused}model.decoder = 'transformer'" in messages


@pytest.mark.slow
def test_training_by_reward_starts_from_a_model_and_changes_it(work, tmp_path, logged):
    go(work, tmp_path, training={"epochs": 2}, **TRANSFORMER)
    logged.clear()
    reward = {**REWARD, "init_from": "tiny", "epochs": 1}
    go(work, tmp_path, name="rewarded", training=reward, **TRANSFORMER)
    assert len(logged) == 3  # 5 photos an update
    assert all(np.isfinite(values["reward"]) for values in logged)
    assert any(float(values["loss"]) for values in logged)


@pytest.mark.slow
def test_a_transformer_teaches_and_learns_from_an_lstm(work, tmp_path, logged):
    go(work, tmp_path, training={"epochs": 1}, **TRANSFORMER)
    go(work, tmp_path, name="lstm", training={"epochs": 1})
    logged.clear()
    taught = {"training": {"objective": "distil", "epochs": 8}}
    taught["distillation"] = {"teachers": ["tiny", "lstm"]}
    go(work, tmp_path, name="taught", **taught, **TRANSFORMER)
    losses = [float(values["loss"]) for values in logged]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.slow
def test_updates_log_rewards_entropy_and_the_share_of_samples(work, tmp_path, logged):
    go(work, tmp_path, training={"epochs": 2}, **HARD)
    ordinary = {"loss", "word_loss", "attention_loss", "baseline", "reward"}
    ordinary |= {"reward_variance", "entropy", "sampled", "sampled_reward"}
    assert [set(values) for values in logged] == 6 * [ordinary]
    last = {name: float(value) for name, value in logged[-1].items()}
    assert last["baseline"] < 0
    assert last["reward_variance"] > 0
    assert 0 < last["entropy"] <= np.log(6) + 1e-5
    shares = [float(values["sampled"]) for values in logged]
    assert 0 < np.mean(shares) < 1
    model = load_captioner(tmp_path / "tiny" / "model.safetensors")
    assert model.settings.attention == "hard"
    assert model.hard.samples == 2
    assert float(model.hard_attention.baseline) < 0


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_soft_start_is_validated_but_cannot_be_the_best_of_hard_training(
    work, tmp_path, monkeypatch, interrupted
):
    skip_graphs(monkeypatch)
    scores = [50.0, 90.0, 10.0]

    def validate(*arguments):
        if interrupted and len(scores) == 2:
            raise KeyboardInterrupt
        return dict.fromkeys(("BLEU-4", "CIDEr"), scores.pop(0)), {}

    monkeypatch.setattr(training, "validate", validate)
    assert go(work, tmp_path, name="soft", training={"epochs": 1}).best == 50
    changes = {"training": {"epochs": 1, "init_from": "soft"}, **HARD}
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            go(work, tmp_path, **changes)
    interrupted, resume = False, interrupted
    summary = go(work, tmp_path, resume, **changes)
    assert (summary.best, summary.best_step) == (10, 3)
    assert not scores
    assert load_captioner(summary.model).settings.attention == "hard"
