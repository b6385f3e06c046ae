"""The option ``--seeds`` of the verb ``train``."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_run

from show_attend_tell.cluster.seeds import Outcome
from show_attend_tell.config import experiments
from show_attend_tell.evaluation.comparison import Comparison, ComparisonRow
from show_attend_tell.training.train import Summary

SEEDS = "show_attend_tell.cluster.seeds"
COMPARISON = "show_attend_tell.evaluation.comparison"
SUMMARY = Summary(
    Path("run"), Path("run/model.safetensors"), 52.5, "CIDEr", 40, 50, 61.2, "done"
)
WHERE = ("--work", "w", "--runs", "r")


@pytest.fixture
def series(monkeypatch):
    """Replace the training of several runs; return outcomes to fill and the calls."""
    calls, faults = [], {}

    def train_variant(series, experiment):
        calls.append((series, experiment))
        fault = faults.get(experiment.name)
        finished = experiment.name.endswith("seed-3")
        return Outcome(experiment, None if finished or fault else SUMMARY, fault)

    def compare_runs(files, *places):
        calls.append(files)
        row = ComparisonRow("tiny", (3, 1), {"CIDEr": 52.5}, {}, {})
        return Comparison("val", 2, "simple", (row,))

    monkeypatch.setattr(f"{SEEDS}.train_variant", train_variant)
    monkeypatch.setattr(f"{COMPARISON}.compare_runs", compare_runs)
    monkeypatch.setattr(
        experiments, "load_experiment", lambda *_: tiny_run.experiment()
    )
    return SimpleNamespace(calls=calls, faults=faults)


def test_seeds_train_runs_of_their_own_which_are_compared(run, series):
    code, out, _ = run("train", *WHERE, "--seeds", "3,1", "--resume")
    assert code == 0
    (several, first), (_, second), files = series.calls
    assert [first.training.seed, second.training.seed] == [3, 1]
    assert (several.work, several.runs, several.evaluates) == (
        Path("w"),
        Path("r"),
        True,
    )
    assert out.splitlines()[:2] == ["tiny-seed-3: already finished", "tiny-seed-1:"]
    assert "best CIDEr 52.50" in out
    assert files == [Path(f"r/tiny-seed-{k}/scores.json") for k in (3, 1)]
    assert "2 photos of val, tokenizer simple" in out


def test_failed_runs_are_named_and_the_others_compared(run, series):
    series.faults["tiny-seed-1"] = "training has diverged"
    code, out, err = run("train", *WHERE, "--seeds", "3,1,2")
    assert code == 1
    assert err.splitlines() == [
        "error: tiny-seed-1: training has diverged",
        "1 of 3 runs have failed",
    ]
    names = ["tiny-seed-3", "tiny-seed-2"]
    assert series.calls[-1] == [Path("r", name, "scores.json") for name in names]
    assert "tokenizer simple" in out


@pytest.mark.parametrize("seeds", ["", "1,", "1;2", "-1", "1.5", "x", "3,1,3"])
def test_malformed_or_repeated_seeds_are_wrong_usage(run, seeds):
    code, _, err = run("train", "--seeds", seeds)
    assert code == 2
    repeated = seeds == "3,1,3"
    assert ("have each seed once" if repeated else "be seeds such as 1,2,3") in err
