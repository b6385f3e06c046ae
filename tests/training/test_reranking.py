"""A reranker of prepared data, and the evaluation of a run with it."""

import json

import pytest
from refusals import refused
from shell import exit_code
from tiny_run import IDENTITY, experiment, prepare
from tiny_training import go

from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_generator
from show_attend_tell.reference.reranker import load_reranker
from show_attend_tell.runtime.errors import ConfigError, EvaluationError
from show_attend_tell.training import reranking
from show_attend_tell.training.reranking import fit_reranker, reranker_path

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
    by_file = "reranked-by-reranker-Tiny-last"
    saved = json.loads((done.folder / f"scores-{by_file}.json").read_text())
    assert saved["reranker"] == str(file)
    assert saved["rerank_weight"] == experiment().decoding.rerank_weight
    assert saved["CIDEr"] == pytest.approx(report.scores["CIDEr"])
    assert (done.folder / "scores.json").read_bytes() == own
    assert (done.folder / f"captions-val-{by_file}.json").exists()
    model = done.folder / "model.safetensors"
    assert (
        exit_code("fit-reranker", "-e", settings, "--work", work, "--out", model) == 0
    )
    evaluate(experiment(), work, runs, reranker="none", **QUIET)
    assert not (done.folder / "scores-reranked.json").exists()
    found = evaluate(experiment(), work, runs, **QUIET)  # finds its own
    assert (done.folder / "scores-reranked.json").exists()
    assert found.scores["CIDEr"] == report.scores["CIDEr"]
    with pytest.raises(ConfigError, match="several hypotheses"):
        evaluate(experiment(), work, runs, beam=1, reranker=file, **QUIET)
    evaluate(experiment(), work, runs, beam=3, reranker=file, **QUIET)
    assert (done.folder / f"scores-beam-3-{by_file}.json").exists()
    other = tmp_path / file.name
    other.write_bytes(file.read_bytes())
    with refused(EvaluationError, "of the same name as .*rename one of the two files"):
        evaluate(experiment(), work, runs, reranker=other, **QUIET)


@pytest.fixture
def experiment_file(tmp_path):
    """The file of the tiny experiment."""
    path = tmp_path / "tiny.toml"
    path.write_text(experiment_to_toml(experiment()))
    return path


def make_model(work, *further_words, identity=IDENTITY):
    """Return a captioner with the words of the prepared data, reversed, and more."""
    words = Vocabulary.load(work / "made-up" / "vocabulary.json").words
    return Captioner(
        (*words[:4], *further_words, *reversed(words[4:])),
        experiment().model,
        annotation_width=5,
        grid=(2, 3),
        encoder_identity=identity,
        decoding=experiment().decoding,
    )


def spelled_ngrams(reranker):
    words = reranker.vocabulary
    return {" ".join(words[k] for k in n) for n in reranker.vectors.ngrams}


def test_a_model_with_words_of_its_own_gets_a_reranker_of_these_words(
    work, tmp_path, experiment_file
):
    model = tmp_path / "model.safetensors"
    captioner = make_model(work, "extra")
    captioner.save(model)
    command = ["fit-reranker", "-e", experiment_file, "--work", work, "--out", model]
    assert exit_code(*command) == 0
    generator = load_generator([model])  # refuses a reranker of other words
    assert generator.reranker.vocabulary == captioner.vocabulary.words
    expected = spelled_ngrams(fit_reranker(experiment(), work))
    assert spelled_ngrams(generator.reranker) == expected
    assert "circle" in expected


def refuse_to_describe(*arguments):
    raise AssertionError("the features were read")


def test_a_model_of_another_encoder_is_refused_before_the_features_are_read(
    work, tmp_path, experiment_file, capsys, monkeypatch
):
    monkeypatch.setattr(reranking, "describe_split", refuse_to_describe)
    model = tmp_path / "model.safetensors"
    make_model(work, identity={**IDENTITY, "layer": "first"}).save(model)
    before = model.read_bytes()
    command = ["fit-reranker", "-e", experiment_file, "--work", work, "--out", model]
    assert exit_code(*command) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{model}: must read the features of the experiment" in line
    assert "layer first instead of last" in line
    assert model.read_bytes() == before


def test_another_file_is_kept_and_refused_before_the_features_are_read(
    work, experiment_file, capsys, monkeypatch
):
    monkeypatch.setattr(reranking, "describe_split", refuse_to_describe)
    for out in (work / "made-up" / "features-Tiny-last.h5", experiment_file):
        before = out.read_bytes()
        command = ["fit-reranker", "-e", experiment_file, "--work", work, "--out", out]
        assert exit_code(*command) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"{out}: must be the file of a reranker or of a model" in line
        assert out.read_bytes() == before


def test_a_damaged_reranker_is_written_again_at_the_default_path(work, experiment_file):
    path = reranker_path(experiment(), work)
    path.write_bytes(b"damaged")
    assert exit_code("fit-reranker", "-e", experiment_file, "--work", work) == 0
    assert len(load_reranker(path).landmarks) == 12


def test_absent_features_are_one_line(work, experiment_file, capsys):
    (work / "made-up" / "features-Tiny-last.h5").unlink()
    assert exit_code("fit-reranker", "-e", experiment_file, "--work", work) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "features-Tiny-last.h5: no such feature file; run `prepare`, then" in line
