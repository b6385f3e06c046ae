"""Training hard attention from prepared data: what is logged, and how it resumes."""

import numpy as np
import pytest
from tiny_run import experiment, prepare

from show_attend_tell.evaluation import attention_diagnostics
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.training import maximum_likelihood as likelihood
from show_attend_tell.training import train as training
from show_attend_tell.training.tensorboard_log import TrainingLog
from show_attend_tell.training.train import train

HARD = {"samples": 2, "drawn_per": "caption", "baseline_decay": 0.8}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture
def told(monkeypatch):
    """What every update tells the log: (step, values)."""
    rows = []
    monkeypatch.setattr(TrainingLog, "samples", lambda *rest: None)
    monkeypatch.setattr(
        TrainingLog, "step", lambda self, step, values, *rest: rows.append(values)
    )
    return rows


def go(work, runs, name="hard", resume=False, **changes):
    tables = {"model": {"attention": "hard"}, "hard": HARD, "training": changes}
    chosen = experiment(name, **tables)
    return train(chosen, work, runs, resume=resume, progress=False)


def test_every_update_tells_of_rewards_and_some_of_the_terms(
    work, tmp_path, told, monkeypatch
):
    monkeypatch.setattr(likelihood, "EVERY", 4)
    go(work, tmp_path, epochs=2)
    ordinary = {"loss", "word_loss", "attention_loss", "baseline", "reward"}
    ordinary |= {"reward_variance", "entropy", "sampled"}
    norms = {f"gradient_norm_{name}" for name in ("words", "reinforce", "entropy")}
    assert [set(values) - ordinary for values in told] == [
        norms if step % 4 == 0 else set() for step in range(1, 7)
    ]
    last = {name: float(value) for name, value in told[-1].items()}
    assert last["baseline"] < 0
    assert last["reward_variance"] > 0
    assert 0 < last["entropy"] <= np.log(6) + 1e-5
    shares = [float(values["sampled"]) for values in told]
    assert 0 < np.mean(shares) < 1
    model = load_captioner(tmp_path / "hard" / "model.keras")
    assert model.settings.attention == "hard"
    assert model.hard.samples == 2
    assert float(model.hard_attention.baseline) < 0


def test_training_warns_once_of_attention_that_died(
    work, tmp_path, told, monkeypatch, caplog
):
    monkeypatch.setattr(attention_diagnostics, "COLLAPSED", 0.0)  # always
    go(work, tmp_path, epochs=2)
    warned = [one for one in caplog.messages if "attention has collapsed" in one]
    assert len(warned) == 1


@pytest.mark.slow
def test_an_interrupted_hard_training_goes_on_as_if_it_had_not_been(
    work, tmp_path, told, monkeypatch
):
    go(work, tmp_path, "whole", epochs=2)

    def interrupt(self, step, *rest):
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            go(work, tmp_path, "parts", epochs=2)
    summary = go(work, tmp_path, "parts", resume=True, epochs=2)
    assert summary.steps == 6
    models = [
        load_captioner(tmp_path / name / "model.keras") for name in ("whole", "parts")
    ]
    for one, other in zip(*(m.weights for m in models), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_soft_start_is_validated_but_is_no_result_of_hard_training(
    work, tmp_path, told, monkeypatch
):
    scores = iter([50.0, 90.0, 10.0])

    def score(*arguments):
        return dict.fromkeys(("BLEU-4", "CIDEr"), next(scores)), {}

    monkeypatch.setattr(training, "validate", score)
    soft = experiment("soft", training={"epochs": 1})
    assert train(soft, work, tmp_path, progress=False).best == 50
    summary = go(work, tmp_path, epochs=1, init_from="soft")
    assert (summary.best, summary.best_step) == (10, 3)
    assert load_captioner(summary.model).settings.attention == "hard"
