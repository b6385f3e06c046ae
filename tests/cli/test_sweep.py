"""The options ``--seeds`` and ``--grid`` of the verb ``train``."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_run

from show_attend_tell.config import experiments
from show_attend_tell.evaluation.comparison import Comparison, ComparisonRow
from show_attend_tell.training.sweeps.runs import Outcome
from show_attend_tell.training.train import Summary

SWEEPS = "show_attend_tell.training.sweeps"
COMPARISON = "show_attend_tell.evaluation.comparison"
SUMMARY = Summary(
    Path("run"), Path("run/model.keras"), 52.5, 40, 50, 61.2, "done", "CIDEr"
)
WHERE = ("--work", "w", "--runs", "r")


@pytest.fixture
def sweep(monkeypatch):
    """Replace the training of several runs; return outcomes to fill and the calls."""
    calls, faults = [], {}

    def train_in_turn(sweep, jobs):
        calls.append((sweep, jobs))
        for job in jobs:
            fault = faults.get(job.experiment.name)
            finished = job.experiment.name.endswith("seed-3")
            summary = None if finished or fault else SUMMARY
            yield Outcome(job.experiment, summary, fault)

    def compare_runs(folders, *places):
        calls.append(folders)
        row = ComparisonRow("tiny", (3, 1), {"CIDEr": 52.5}, {}, {})
        return Comparison("val", 2, "simple", (row,))

    monkeypatch.setattr(f"{SWEEPS}.runs.train_in_turn", train_in_turn)
    monkeypatch.setattr(f"{COMPARISON}.compare_runs", compare_runs)
    monkeypatch.setattr(
        experiments, "load_experiment", lambda *_: tiny_run.experiment()
    )
    return SimpleNamespace(calls=calls, faults=faults)


def test_seeds_train_runs_of_their_own_which_are_compared(run, sweep):
    code, out, _ = run("train", *WHERE, "--seeds", "3,1", "--resume")
    assert code == 0
    (given, jobs), folders = sweep.calls
    assert [job.experiment.training.seed for job in jobs] == [3, 1]
    assert (given.work, given.runs, given.evaluates) == (Path("w"), Path("r"), True)
    assert out.splitlines()[:2] == ["tiny-seed-3: already finished", "tiny-seed-1:"]
    assert "best CIDEr 52.50" in out
    assert folders == [Path("r/tiny-seed-3"), Path("r/tiny-seed-1")]
    assert "2 photos of val, tokenizer simple" in out


def test_a_grid_names_its_failed_runs_and_compares_the_others(run, sweep):
    sweep.faults["tiny-dropout-0.5-seed-1"] = "training has diverged"
    options = "--seeds", "3,1", "--grid", "model.dropout=0.2,0.5"
    code, out, err = run("train", *WHERE, *options)
    assert code == 1
    assert err.splitlines() == [
        "error: tiny-dropout-0.5-seed-1: training has diverged",
        "1 of 4 runs have failed",
    ]
    assert [folder.name for folder in sweep.calls[1]] == [
        "tiny-dropout-0.2-seed-3",
        "tiny-dropout-0.2-seed-1",
        "tiny-dropout-0.5-seed-3",
    ]
    assert "tokenizer simple" in out


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("training.epoch=3", "error: --grid: training.epoch: unknown key"),
        ("training.epochs=", "error: --grid: training.epochs has an empty value"),
        ("model.dropout=0.5,0.50", "have the same settings; give each value once"),
    ],
)
def test_a_malformed_grid_is_one_line_before_any_training(run, sweep, grid, message):
    code, out, err = run("train", *WHERE, "--grid", grid)
    assert (code, out, sweep.calls) == (1, "", [])
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("seeds", ["", "1,", "1;2", "-1", "1.5", "x"])
def test_malformed_seeds_are_wrong_usage(run, seeds):
    code, _, err = run("train", "--seeds", seeds)
    assert code == 2
    assert "must be seeds such as 1,2,3" in err


def test_a_repeated_seed_is_wrong_usage(run):
    code, _, err = run("train", "--seeds", "3,1,3")
    assert code == 2
    assert "must have each seed once. Received: '3,1,3'" in err
