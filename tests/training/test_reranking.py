"""A reranker of prepared data, and the evaluation of a run with it."""

import json

import pytest
from shell import exit_code
from tiny_run import experiment, prepare
from tiny_training import go

from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.runtime.errors import ConfigError
from show_attend_tell.training.reranking import reranker_path

QUIET = {"tokenizer": "simple", "progress": False}


@pytest.fixture
def work(tmp_path, quick, no_java):
    return prepare(tmp_path / "work")


@pytest.mark.nightly
def test_a_run_is_evaluated_with_a_reranker(work, tmp_path, capsys):
    runs = tmp_path / "runs"
    done = go(work, runs, training={"epochs": 2})
    settings = done.folder / "experiment.toml"
    assert exit_code("fit-reranker", "-e", settings, "--work", work) == 0
    file = reranker_path(experiment(), work)
    assert file.name == "reranker-Tiny-last.safetensors"
    assert f"{file}: 12 photos, " in capsys.readouterr().out
    evaluate(experiment(), work, runs, **QUIET)
    own = (done.folder / "scores.json").read_bytes()
    report = evaluate(experiment(), work, runs, reranker=file, **QUIET)
    saved = json.loads((done.folder / "scores-reranked.json").read_text())
    assert saved["reranker"] == str(file)
    assert saved["rerank_weight"] == experiment().decoding.rerank_weight
    assert saved["CIDEr"] == pytest.approx(report.scores["CIDEr"])
    assert (done.folder / "scores.json").read_bytes() == own
    assert (done.folder / "captions-val-reranked.json").exists()
    model = done.folder / "model.safetensors"
    assert (
        exit_code("fit-reranker", "-e", settings, "--work", work, "--out", model) == 0
    )
    (done.folder / "scores-reranked.json").unlink()
    evaluate(experiment(), work, runs, reranker="none", **QUIET)
    assert not (done.folder / "scores-reranked.json").exists()
    found = evaluate(experiment(), work, runs, **QUIET)  # finds its own
    assert (done.folder / "scores-reranked.json").exists()
    assert found.scores["CIDEr"] == report.scores["CIDEr"]
    with pytest.raises(ConfigError, match="several hypotheses"):
        evaluate(experiment(), work, runs, beam=1, reranker=file, **QUIET)
    evaluate(experiment(), work, runs, beam=3, reranker=file, **QUIET)
    assert (done.folder / "scores-beam-3-reranked.json").exists()


def test_absent_features_are_one_line(tmp_path, capsys):
    assert exit_code("fit-reranker", "-e", "scenes", "--work", tmp_path) == 1
    error = capsys.readouterr().err
    assert "vocabulary" in error
    assert "Traceback" not in error
