"""The verbs on experiments on digits and words."""

import json

import pytest
import tiny_reader
from made_up_digits import digits, experiment, write_idx

from show_attend_tell.config.settings import experiment_to_toml


@pytest.fixture
def places(tmp_path):
    """Write an experiment and idx files; return the options that name them."""
    chosen = experiment(classifier={"widths": [4]}, training={"epochs": 1})
    file = tmp_path / "tiny.toml"
    file.write_text(experiment_to_toml(chosen), encoding="utf-8")
    write_idx(tmp_path, "train", digits(64))
    return "-e", file, "--work", tmp_path / "work"


def test_digits_are_prepared_trained_and_evaluated_by_the_same_verbs(
    run, places, tmp_path
):
    code, out, _ = run("prepare", *places, "--data", tmp_path)
    assert (code, out.splitlines()[0]) == (0, "train: 48 digits")
    code, out, _ = run("features", *places)
    assert (code, out) == (0, "tiny: nothing to do, its model reads the pictures\n")
    runs = ("--runs", tmp_path / "runs")
    code, out, _ = run("train", *places, *runs, "--seeds", "1,2")
    assert code == 0
    assert "best accuracy" in out
    again = run("train", *places, *runs, "--seeds", "1,2", "--resume")
    assert again[1].count("already finished") == 2
    code, out, _ = run("eval", *places, *runs, "--name", "tiny-seed-1")
    assert (code, out.splitlines()[0]) == (0, "tiny-seed-1, val, 16 pictures")
    scores = json.loads((tmp_path / "runs" / "tiny-seed-1" / "scores.json").read_text())
    assert f"error {scores['error']:.2f} %" in out
    model = tmp_path / "runs" / "tiny-seed-1" / "model.safetensors"
    before = model.read_bytes()
    elsewhere = (*places[:2], "--work", tmp_path / "elsewhere", *runs)
    code, _, err = run("train", *elsewhere, "--seeds", "1,2", "--overwrite")
    assert (code, "run `prepare` first" in err) == (1, True), err
    assert model.read_bytes() == before  # nothing is replaced without data


@pytest.mark.slow
def test_words_are_trained_and_evaluated_by_the_same_verbs(run, tmp_path):
    file, chosen = tmp_path / "words.toml", tiny_reader.experiment
    file.write_text(experiment_to_toml(chosen(training={"epochs": 1})))
    work = tiny_reader.prepare_words(tmp_path / "work")
    places = ("-e", file, "--work", work, "--runs", tmp_path / "runs")
    assert "best word_accuracy" in run("train", *places)[1]
    printed = run("eval", *places, "--split", "all")[1]
    assert "tiny, made-up, all, 52 words" in printed
    assert run("eval", *places, "--spice")[0] == 2


def test_words_go_to_a_file_or_to_a_page(run):
    code, _, err = run("read", "a", "--out", "a.jsonl", "--html", "a.html")
    assert code == 2
    assert "--out cannot be combined with --attention or --html" in err


def test_captions_are_not_measured_on_training_photos(run):
    code, _, err = run("eval", "--split", "train")
    assert code == 2
    assert "--split train needs an experiment that reads words" in " ".join(err.split())


@pytest.mark.parametrize(
    ("verb", "options", "message"),
    [
        ("eval", ["--beam", "3"], "needs an experiment with captions"),
        ("eval", ["--tokenizer", "ptb"], "needs an experiment with captions"),
        ("train", ["--limit", "3"], "no such file; run `prepare` first"),
        ("calibrate", [], "needs an experiment with captions. Received: tiny"),
        (
            "average",
            ["m.safetensors"],
            "needs an experiment with captions. Received: tiny",
        ),
        ("train", ["--init-from", "shipped"], "with captions or that reads words"),
        ("train", ["--cluster", "auto"], "needs an experiment with captions"),
        ("eval", ["--lexicon", "a.txt"], "needs an experiment that reads words"),
        ("eval", ["--split", "all"], "--split all needs an experiment that reads"),
        ("prepare", [], "pass the folder with --data"),
        ("train", [], "no such file; run `prepare` first"),
        ("eval", [], "no such file; run `prepare` first"),
    ],
)
def test_what_digits_do_not_have_is_refused(run, places, verb, options, message):
    places = places[:2] if verb == "average" else places
    code, _, err = run(verb, *places, *options)
    assert code == (2 if "captions" in message or "reads" in message else 1)
    assert message in " ".join(err.split())
