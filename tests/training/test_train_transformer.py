"""Training a Transformer from prepared data: likelihood, reward, teachers, resume."""

import numpy as np
import pytest
from tiny_run import experiment
from tiny_training import record_updates, skip_captions

from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ConfigError
from show_attend_tell.training.train import train

TRANSFORMER = {"layers": 1, "width": 8, "heads": 2, "hidden": 16, "dropout": 0.1}
TABLES = {"model": {"decoder": "transformer"}, "transformer": TRANSFORMER}


@pytest.fixture
def logged(monkeypatch):
    """The values of every update; no captions are generated for validation."""
    skip_captions(monkeypatch)
    return record_updates(monkeypatch)


def go(work, runs, name="tiny", resume=False, **changes):
    tables = {**TABLES, "distillation": changes.pop("distillation", {})}
    chosen = experiment(name, training=changes, **tables)
    return train(chosen, work, runs, resume, progress=False)


def test_the_loss_falls(work, tmp_path, logged):
    how = {"precision": "bfloat16", "average_decay": 0.9, "optimizer": "adamw"}
    go(work, tmp_path, epochs=8, **how)
    losses = [float(values["word_loss"]) for values in logged]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


@pytest.mark.slow
def test_training_by_reward_starts_from_a_model_and_changes_it(work, tmp_path, logged):
    go(work, tmp_path, epochs=2)
    logged.clear()
    reward = {"objective": "cider", "init_from": "tiny", "batch_size": 10}
    go(work, tmp_path, "rewarded", hypotheses=2, epochs=1, **reward)
    assert len(logged) == 3  # 5 photos an update
    assert all(np.isfinite(values["reward"]) for values in logged)
    models = [
        load_captioner(tmp_path / name / "model.keras") for name in ("tiny", "rewarded")
    ]
    before, after = (np.asarray(one.decoder.embedding) for one in models)
    assert np.abs(after - before).max() > 1e-5


@pytest.mark.slow
def test_a_transformer_teaches_and_learns_from_an_lstm(work, tmp_path, logged):
    go(work, tmp_path, epochs=1)
    train(experiment("lstm", training={"epochs": 1}), work, tmp_path, progress=False)
    teachers = {"distillation": {"teachers": ["tiny", "lstm"]}}
    logged.clear()
    go(work, tmp_path, "taught", objective="distil", epochs=8, **teachers)
    losses = [float(values["loss"]) for values in logged]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"attention": "hard"}}, "attention = 'hard' must go with"),
        ({"decoding": {"locations": "likeliest"}}, "decoding.locations must be"),
        ({"transformer": {"width": 30}}, "width must be a multiple of heads and of 4"),
        ({"transformer": {"width": 6}}, "width must be a multiple of heads and of 4"),
        ({"transformer": {"layers": 2, "alpha_layer": 3}}, "must be at most layers"),
        ({"transformer": {"headz": 2}}, "unknown key, nearest: transformer.heads"),
    ],
)
def test_tables_that_do_not_fit_the_decoder_are_an_error_of_one_line(tables, message):
    model = {"decoder": "transformer", **tables.get("model", {})}
    with pytest.raises(ConfigError, match=message) as caught:
        experiment(**{**tables, "model": model})
    assert "\n" not in str(caught.value)
