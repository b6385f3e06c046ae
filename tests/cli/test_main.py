"""The console script: options, one-line errors and exit codes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import data_prep.prepare
from show_attend_tell import __version__
from show_attend_tell.cli import doctor
from show_attend_tell.cli import main as cli
from show_attend_tell.config import experiments as experiment
from show_attend_tell.evaluation.report import EvaluationReport
from show_attend_tell.runtime.errors import ConfigError, DataError
from show_attend_tell.training.train import Summary

VERBS = ["average", "prepare", "features", "train", "eval", "caption", "export", "demo"]
VERBS += ["download", "doctor"]


@pytest.fixture
def run(capsys):
    """Run the command line; returns exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            cli.main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def prepare_raises(monkeypatch):
    """Make the verb ``prepare`` end with a given error."""

    def arm(error: BaseException):
        def raise_it(*arguments):
            raise error

        monkeypatch.setattr(experiment, "load", lambda *arguments: None)
        monkeypatch.setattr(data_prep.prepare, "prepare", raise_it)

    return arm


def test_help_names_every_verb(run):
    code, out, _ = run("--help")
    assert code == 0
    assert sorted(cli.cli.commands) == sorted(VERBS)
    assert all(f"  {verb} " in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb_is_explained(verb):
    options = [p for p in cli.cli.commands[verb].params if isinstance(p, click.Option)]
    assert all(option.help for option in options)


def test_the_version_is_that_of_the_package(run):
    assert run("--version")[1].strip().endswith(__version__)


def test_help_loads_neither_tensorflow_nor_the_readers():
    code = (
        "import sys, show_attend_tell.cli.main as cli\n"
        "try: cli.main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'pydantic', 'data_prep'}\n"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "show_attend_tell", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert __version__ in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["train", "--epochs", "3"],
        ["train", "--seed", "one"],
        ["train", "--resume", "--overwrite"],
        ["eval", "--split", "train"],
        ["eval", "--beam", "0"],
        ["eval", "--beam", "3", "--captions", "captions.json"],
        ["caption", "--model", "model.keras"],
        ["caption", "photo.jpg", "--out", "captions.jsonl", "--json"],
        ["export", "model.keras"],
        ["prepare", "--on-problem", "ignore"],
        ["download", "coco"],
    ],
)
def test_wrong_usage_exits_with_2(run, arguments):
    code, out, err = run(*arguments)
    assert code == 2
    assert "Error: " in err
    assert out == ""


def test_an_unknown_experiment_is_one_line(run):
    code, out, err = run("prepare", "--experiment", "absent")
    assert (code, out) == (1, "")
    assert err.startswith("error: `experiment` must be")
    assert err.count("\n") == 1


def test_an_unknown_setting_is_one_line(run):
    code, _, err = run("train", "-e", "flickr8k_soft", "--set", "training.epoch=3")
    assert code == 1
    assert "training.epoch: unknown key" in err
    assert err.count("\n") == 1


def test_an_error_over_several_lines_is_printed_as_one(run, prepare_raises):
    prepare_raises(DataError("first line\n  second line"))
    assert run("prepare") == (1, "", "error: first line second line\n")


def test_an_error_of_the_system_names_the_file(run, prepare_raises):
    prepare_raises(PermissionError(13, "Permission denied", "captions.txt"))
    assert run("prepare") == (1, "", "error: captions.txt: Permission denied\n")


def test_an_error_nobody_foresaw_keeps_its_traceback(run, prepare_raises):
    prepare_raises(ValueError("a mistake of ours"))
    with pytest.raises(ValueError, match="a mistake of ours"):
        run("prepare")


def test_an_interruption_is_one_line_and_130(run, prepare_raises):
    prepare_raises(KeyboardInterrupt())
    code, out, err = run("prepare")
    assert (code, out) == (130, "")
    assert err.strip() == "interrupted; run again (train: with --resume)"


def test_prepare_prints_its_report(run, monkeypatch, tmp_path):
    received = []

    def prepare(settings, data, work, on_problem, progress):
        received.append((settings, str(data), work, on_problem))
        return SimpleNamespace(lines=lambda: ["done"])

    monkeypatch.setattr(experiment, "load", lambda name, changes: (name, changes))
    monkeypatch.setattr(data_prep.prepare, "prepare", prepare)
    options = ["--work", tmp_path, "--data", "photos", "--on-problem", "refuse"]
    code, out, _ = run("prepare", "-e", "mine", "--set", "a.b=1", *options)
    assert (code, out) == (0, "done\n")
    assert received == [(("mine", ("a.b=1",)), "photos", tmp_path, "refuse")]


@pytest.fixture
def received(monkeypatch):
    """Replace the use-cases; what each is called with is appended."""
    calls = []

    def replace(name: str, result):
        def use_case(*arguments, **named):
            calls.append((*arguments, named))
            return result

        monkeypatch.setattr(name, use_case)

    monkeypatch.setattr(experiment, "load", lambda name, changes: SETTINGS)
    replace("data_prep.extract.extract", SimpleNamespace(lines=lambda: ["extracted"]))
    replace("show_attend_tell.training.train.train", SUMMARY)
    replace("show_attend_tell.evaluation.evaluate.evaluate", REPORT)
    replace("show_attend_tell.evaluation.evaluate.compare", [REPORT, REPORT])
    replace("show_attend_tell.evaluation.evaluate.score_file", REPORT)
    return calls


SETTINGS = SimpleNamespace(training=SimpleNamespace(metric="CIDEr"))
SUMMARY = Summary(Path("run"), Path("run/model.keras"), 52.5, 40, 50, 61.2, "done")
REPORT = EvaluationReport(
    label="beam 5",
    scores={"BLEU-4": 21.0},
    split="val",
    photos=2,
    mean_length=10,
    distinct=1.0,
    made={"tokenizer": "simple"},
)
WHERE = ("--work", "w", "--runs", "r")
PLACES = (SETTINGS, Path("w"), Path("r"))


def test_features_hands_its_options_on(run, received):
    options = ["--encoder-weights", "vgg.h5", "--overwrite", "--work", "w"]
    assert run("features", *options)[:2] == (0, "extracted\n")
    (call,) = received
    assert call[:4] == (SETTINGS, Path("w"), Path("vgg.h5"), True)


def test_train_hands_its_options_on_and_says_what_came_of_it(run, received):
    code, out, _ = run("train", *WHERE, "--resume")
    assert code == 0
    assert "50 steps in 61 s, done; best CIDEr 52.50 at step 40" in out
    assert "model: run/model.keras" in out
    assert received[0][:5] == (*PLACES, True, False)


def test_the_seed_is_a_setting(run, received, monkeypatch):
    changes = []
    monkeypatch.setattr(
        experiment, "load", lambda name, given: changes.extend(given) or SETTINGS
    )
    run("train", "--seed", "7", "--set", "training.epochs=2")
    assert changes == ["training.epochs=2", "training.seed=7"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], (*PLACES, None)),
        (["--split", "val", "--beam", "3"], (*PLACES, "val", 3)),
        (["--beam", "1", "--beam", "5"], (*PLACES, None, (1, 5))),
        (["--captions", "c.json"], (Path("c.json"), *PLACES[:2], None)),
    ],
)
def test_eval_hands_its_options_on_and_prints_a_table(
    run, received, options, arguments
):
    code, out, _ = run("eval", *WHERE, *options, "--tokenizer", "simple", "--spice")
    assert code == 0
    assert "BLEU-4" in out
    assert "21.00" in out
    ((*given, named),) = received
    assert tuple(given) == arguments
    assert named["tokenizer"] == "simple"
    assert named["spice"] is True


def test_doctor_prints_a_line_for_each_finding_and_fails_on_problems(run, monkeypatch):
    findings = [doctor.Finding("OK", "this"), doctor.Finding("note", "that")]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert run("doctor") == (0, "OK      this\nnote    that\n", "")
    findings.append(doctor.Finding("problem", "there"))
    assert run("doctor")[0] == 1


def test_train_takes_a_model_to_start_from(run, monkeypatch):
    seen = []

    def train(settings, *rest):
        seen.append(settings.training.init_from)
        return SUMMARY

    monkeypatch.setattr("show_attend_tell.training.train.train", train)
    assert run("train", "--init-from", "a b/model.keras")[0] == 0
    assert seen == ["a b/model.keras"]


def test_hypotheses_must_divide_the_batch():
    settings = ["training.objective=cider", "training.batch_size=64"]
    with pytest.raises(ConfigError, match="must be a multiple of hypotheses"):
        experiment.load("scenes", settings)
