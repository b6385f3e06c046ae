"""The console script: options, one-line errors and exit codes."""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import tiny_run
from new_process import python

from show_attend_tell import __version__
from show_attend_tell.cli import doctor
from show_attend_tell.cli import main as cli
from show_attend_tell.cli.options import in_one_line
from show_attend_tell.config import experiments
from show_attend_tell.evaluation.comparison import Comparison, ComparisonRow
from show_attend_tell.evaluation.report import EvaluationReport
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.plugins import CORE_NAMES


def test_help_names_every_verb(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(f"  {verb} " in out for verb in CORE_NAMES["command"])
    meanings = ("0 success", "1 error", "2 wrong usage", "130 interrupted", "143 term")
    assert all(meaning in " ".join(out.split()) for meaning in meanings)


def test_every_option_of_every_verb_has_a_help_text():
    for verb, command in cli.cli.commands.items():
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert all(option.help for option in options), verb


def test_help_loads_neither_tensorflow_nor_the_readers():
    code = (
        "import sys, show_attend_tell.cli.main as cli\n"
        "try: cli.main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'pydantic', 'data_prep'}\n"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_runs_as_a_module():
    done = python("-m", "show_attend_tell", "--version")
    assert done.returncode == 0
    assert __version__ in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("describe", "No such command"),
        ("train --epochs 3", "No such option"),
        ("train --seed one", "not a valid integer"),
        ("train --seed -1", "not in the range"),
        ("train --resume --overwrite", "exclude each other"),
        ("train --seeds 1,2 --workers 2", "--workers needs --cluster"),
        ("train --cluster auto", "the backend tensorflow; run pip install 'show-atten"),
        ("train --runs s3://bucket/runs", "must be a path. Received: "),
        ("features --work s3://bucket/prepared", "must be a path. Received: "),
        ("eval --split train", "--split train needs an experiment"),
        ("eval --beam 0", "not in the range"),
        ("eval --beam 3 --captions captions.json", "--captions excludes --model"),
        ("eval --boxes people.jsonl --captions c.json", "--captions excludes --model"),
        ("caption --model model.safetensors", "Missing argument"),
        ("caption a --seed -1", "not in the range"),
        ("caption a --out captions.jsonl --json", "--out cannot be combined"),
        ("caption a --out captions.jsonl --attention x", "--out cannot be combined"),
        ("caption a --out captions.jsonl --html x.html", "--out cannot be combined"),
        ("caption a --overwrite-metadata", "needs --write-metadata"),
        ("caption a --exiftool-columns", "needs --out FILE.csv"),
        ("caption a --exiftool-columns --out a.jsonl", "needs --out FILE.csv"),
        ("caption a a --region 1,1,9,9", "--region needs one photo"),
        ("caption . --region 1,1,9,9", "--region needs one photo"),
        (f"caption a --attention {__file__}", "is a file"),
        ("caption --html a.jpg b.jpg", "must end in .html. Received: a.jpg"),
        # A caption of a part does not describe the photo, so no metadata either.
        ("caption a --region 1,1,9,9 --write-metadata", "--region needs one photo"),
        ("caption a --region 1,1,9,9 --out a.csv", "--region needs one photo"),
        ("caption a --workers 2", "--workers needs --cluster"),
        ("caption a --cluster auto", "--cluster needs --out FOLDER"),
        ("caption a --cluster auto --out x --json", "--cluster needs --out FOLDER"),
        ("caption s3://bucket/photos --cluster auto --out x", "must be a path"),
        ("caption a --cluster auto --out gs://bucket/x", "must be a path"),
        ("export model.safetensors", "Missing option"),
        ("export a --out x --format saved_model --accept-imagenet", "be combined"),
        ("export a --out x --format half --encoder-weights imagenet", "be combined"),
        ("export a --out a.jpg --format half", "must end in .safetensors"),
        ("prepare --on-problem ignore", "is not one of"),
        ("download coco", "Missing option"),
        ("compare", "Missing argument"),
    ],
)
def test_wrong_usage_exits_with_2_and_makes_no_folder(
    run, arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "-e", "absent"], "`experiment` must be"),
        (["train", "--set", "training.epoch=3"], "--set: training.epoch: unknown key"),
        (["train", "--set", "training.seed=-1"], "--set: training.seed: "),
        (["train", "--name", "../outside"], "--name: name: must be the name of a fol"),
        (["eval", "--name", "../outside"], "--name: name: must be the name of a fol"),
    ],
)
def test_invalid_settings_are_one_line_that_names_the_option(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("first line\n  second line"), "first line second line"),
        (
            PermissionError(13, "Permission denied", "captions.txt"),
            "captions.txt: Permission denied",
        ),
    ],
)
def test_an_error_is_printed_as_one_line(run, prepare_raises, error, message):
    prepare_raises(error)
    assert run("prepare") == (1, "", f"error: {message}\n")


def test_an_unexpected_error_keeps_its_traceback(run, prepare_raises):
    prepare_raises(ValueError("a mistake of ours"))
    with pytest.raises(ValueError, match="a mistake of ours"):
        run("prepare")


def test_the_command_line_runs_outside_of_the_main_thread(run):
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run("--version")[0]))
    thread.start()
    thread.join()
    assert codes == [0]


@pytest.fixture
def received(monkeypatch):
    """Replace the use-cases; returns the list of the arguments of their calls."""
    calls = []

    def replace(name: str, result):
        def use_case(*arguments, **named):
            calls.append((*arguments, named))
            return result

        monkeypatch.setattr(name, use_case)

    monkeypatch.setattr(experiments, "load_experiment", lambda *arguments: SETTINGS)
    replace("data_prep.prepare.prepare", SimpleNamespace(lines=lambda: ["done"]))
    replace("data_prep.extract.extract", [SimpleNamespace(lines=lambda: ["extracted"])])
    replace("show_attend_tell.training.train.train", summary())
    replace("show_attend_tell.evaluation.evaluate.evaluate", REPORT)
    replace("show_attend_tell.evaluation.evaluate.score_file", REPORT)
    return calls


SETTINGS = SimpleNamespace(
    task="caption", name="mine", training=SimpleNamespace(metric="CIDEr")
)


def summary():
    """Return the summary of a training; its module imports TensorFlow."""
    from show_attend_tell.training.loop import Summary

    return Summary(
        Path("run"), Path("run/model.safetensors"), 52.5, "CIDEr", 40, 50, 61.2, "done"
    )


REPORT = EvaluationReport(
    label="beam 5",
    scores={"BLEU-4": 21.0},
    split="val",
    photos=2,
    mean_length=10,
    distinct=1.0,
    repeated_nouns=0.0,
    made={"tokenizer": "simple"},
)
WHERE = ("--work", "w", "--runs", "r")
PLACES = (SETTINGS, Path("w"), Path("r"))


def test_prepare_passes_its_options_and_prints_its_report(run, received):
    options = ["--work", "w", "--data", "photos", "--on-problem", "refuse"]
    assert run("prepare", *options)[:2] == (0, "done\n")
    (call,) = received
    expected = (SETTINGS, Path("photos"), Path("w"), "refuse", False, None)
    assert call[:-1] == expected


@pytest.fixture
def tiny(received, monkeypatch):
    """Replace the use-cases, and the experiment by the tiny one."""
    monkeypatch.setattr(
        experiments, "load_experiment", lambda *rest: tiny_run.experiment()
    )
    return received


@pytest.mark.parametrize("verb", ["prepare", "features", "train", "eval"])
def test_a_limit_is_stated_and_gives_data_and_run_folders_of_their_own(run, tiny, verb):
    code, out, _ = run(verb, "--limit", "7", "--work", "w")
    assert code == 0
    assert "first 7 items of each split, in the order of the data set" in out
    ((settings, *rest, _),) = tiny
    assert (settings.name, settings.data.name) == ("tiny-first-7", "made-up-first-7")
    assert (7 in rest) == (verb == "prepare")


def test_a_limit_names_all_data_sets(run, received, monkeypatch):
    sets = tiny_run.experiment(data={"also": {"more": 0.5}})
    monkeypatch.setattr(experiments, "load_experiment", lambda *rest: sets)
    code, out, _ = run("features", "--limit", "7")
    assert code == 0
    assert "data made-up-first-7 and more-first-7, run tiny-first-7" in out
    assert received[0][0].data.also == {"more-first-7": 0.5}


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_the_name_is_that_of_the_run_folder_before_the_suffix_of_a_limit(
    run, tiny, verb
):
    for limit, name in (((), "mine-2"), (("--limit", "7"), "mine-2-first-7")):
        assert run(verb, "--name", "mine-2", *limit)[0] == 0
        assert tiny[-1][0].name == name
    assert tiny[0][0].data.name == "made-up"


def test_features_passes_its_options(run, received):
    options = ["--encoder-weights", "vgg.h5", "--overwrite", "--work", "w"]
    assert run("features", *options)[:2] == (0, "extracted\n")
    (call,) = received
    assert call[:2] == (SETTINGS, Path("w"))
    passed = {"encoder_weights": Path("vgg.h5"), "overwrite": True}
    assert passed.items() <= call[2].items()


def test_train_passes_its_options_and_prints_the_result(run, received):
    code, out, _ = run("train", *WHERE, "--resume")
    assert code == 0
    assert "50 steps in 61 s, done; best CIDEr 52.50 at step 40" in out
    assert "model: run/model.safetensors" in out
    assert received[0][:5] == (*PLACES, True, False)


def test_a_terminal_shows_what_train_does_before_its_bar(run, received, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, _, err = run("train", *WHERE)
    assert code == 0
    assert ": starting TensorFlow, reading the data" in err


@pytest.mark.parametrize(
    ("arguments", "close"),
    [
        (["captoin", "a.jpg"], "nearest: caption"),
        (["train", "-e", "flickr8k_sotf"], "nearest: flickr8k_soft"),
        (["caption", "--model", "shiped", "a.jpg"], "nearest: shipped"),
        (["caption", "--model", "shipped_lstm", "a.jpg"], "nearest: shipped-lstm"),
    ],
)
def test_a_misspelled_name_is_answered_with_the_nearest(run, arguments, close):
    code, out, err = run(*arguments)
    assert (bool(code), out) == (True, "")
    assert close in err


def test_compare_passes_its_options_and_prints_the_table(run, monkeypatch):
    row = ComparisonRow("x", (1, 2), {"BLEU-4": 20.5}, {"BLEU-4": 0.25}, {})
    calls = []

    def compare_runs(*arguments):
        calls.append(arguments)
        return Comparison("val", 5, "ptb", (row,))

    monkeypatch.setattr(
        "show_attend_tell.evaluation.comparison.compare_runs", compare_runs
    )
    options = ("--metric", "BLEU-4", "--format", "markdown")
    code, out, _ = run("compare", *WHERE, *options, "a", "b")
    assert code == 0
    assert "| x | 1 2 | 20.50 ± 0.25 |" in out
    assert calls == [(("a", "b"), *PLACES[1:], ("BLEU-4",))]


def test_the_seed_and_the_initial_model_are_settings(run, received, monkeypatch):
    changes = []
    monkeypatch.setattr(
        experiments,
        "load_experiment",
        lambda name, given: changes.append(given) or SETTINGS,
    )
    options = ("--seed", "7", "--init-from", "a b/model.safetensors")
    assert run("train", *options, "--set", "training.epochs=2")[0] == 0
    expected = ("training.seed=7", "training.init_from=a b/model.safetensors")
    assert changes[-1] == ("training.epochs=2", *expected)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ([], [(*PLACES, None, None)]),
        (["--split", "val", "--beam", "3"], [(*PLACES, "val", 3)]),
        (
            ["--beam", "1", "--beam", "5", "--beam", "1"],
            [(*PLACES, None, 1), (*PLACES, None, 5)],
        ),
        (["--captions", "c.json"], [(Path("c.json"), *PLACES[:2], None)]),
    ],
)
def test_eval_passes_its_options_and_prints_a_table(run, received, options, calls):
    code, out, _ = run("eval", *WHERE, *options, "--tokenizer", "simple", "--spice")
    assert code == 0
    assert "BLEU-4" in out
    assert "21.00" in out
    assert [call[:-1] for call in received] == calls
    assert received[0][-1]["tokenizer"] == "simple"
    assert received[0][-1]["spice"] is True


def test_eval_passes_the_boxes(run, received):
    assert run("eval", "--boxes", "people.jsonl")[0] == 0
    assert received[0][-1]["boxes"] == Path("people.jsonl")


def test_doctor_prints_a_line_for_each_finding_and_fails_on_problems(run, monkeypatch):
    findings = [("OK", "this"), ("note", "that")]
    monkeypatch.setattr(doctor, "_check_packages", lambda: findings)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)  # no other checks
    monkeypatch.setattr(plugins, "installed", lambda: ())
    out = "OK      this\nnote    that\nOK      plug-ins: none\n"
    assert run("doctor") == (0, out, "")
    findings.append(("problem", "there"))
    assert run("doctor")[0] == 1


def test_an_error_names_a_file_without_its_control_codes(run):
    code, out, err = run("compare", "a\x1b[2Jb")
    assert (code, out) == (1, "")
    assert "a\\x1b[2Jb: no such run" in err
    assert "\x1b" not in err


def test_a_line_of_the_screen_shows_what_is_no_text_by_a_sign():
    assert in_one_line("a\ud800b\udcffé") == "a\ufffdb\ufffdé"
    assert in_one_line(Path(os.fsdecode(b"\xff.jpg"))) == "\ufffd.jpg"
