"""SIGINT and SIGTERM: one line, the exit status, and the checkpoint of training."""

import functools
import io
import os
import signal
import sys
import time
from unittest import mock

import click
import pytest
import tiny_run
import tiny_training

from show_attend_tell.cli import main as cli
from show_attend_tell.config.runs import CHECKPOINT
from show_attend_tell.config.settings import experiment_to_toml


def test_sigterm_is_one_line_and_143_and_later_ones_are_ignored(run, replace_prepare):
    ended = []

    def prepare(*arguments):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # while the last file is written
            ended.append("written")

    replace_prepare(prepare)
    before = signal.getsignal(signal.SIGTERM)
    code, out, err = run("prepare")
    assert (code, out, ended) == (143, "", ["written"])
    assert err.strip() == "terminated; run the same command again to continue"
    assert signal.getsignal(signal.SIGTERM) == before


def test_train_writes_its_checkpoint_at_sigterm(run, monkeypatch, tmp_path):
    tiny_training.skip_graphs(monkeypatch)
    stop = functools.partial(signal.raise_signal, signal.SIGTERM)
    tiny_training.interrupt_in_log(monkeypatch, 2, stop)
    work, runs, file = (tmp_path / name for name in ("work", "runs", "tiny.toml"))
    tiny_run.prepare(work)
    file.write_text(experiment_to_toml(tiny_run.experiment()))
    code, _, err = run("train", "-e", file, "--work", work, "--runs", runs)
    assert code == 143
    assert err.splitlines()[-1] == "terminated; continue with --resume"
    assert tiny_training.read_checkpoint(runs)[1]["step"] == 2


@pytest.mark.parametrize(
    ("options", "written", "line"),
    [
        ([], True, "continue with --resume"),
        ([], False, "there is no checkpoint yet; run the same command again"),
        (["--overwrite"], True, "continue with --resume in place of --overwrite"),
        (["--overwrite"], "before", "there is no checkpoint yet; run the same"),
        (["--resume"], "before", "run the same command again to continue"),
    ],
)
def test_the_line_of_training_knows_whether_there_is_a_checkpoint(
    run, monkeypatch, tmp_path, options, written, line
):
    file = tmp_path / "scenes" / CHECKPOINT
    file.parent.mkdir()
    if written == "before":
        file.touch()
        os.utime(file, (1, 1))

    def train(*arguments):
        if written is True:
            file.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("show_attend_tell.training.train.train", train)
    code, _, err = run("train", "--runs", tmp_path, *options)
    assert code == 130
    assert err.splitlines()[-1].startswith(f"interrupted; {line}")


@pytest.mark.parametrize(
    ("options", "line"), [([], "start over"), (["--out", "x.csv"], "continue")]
)
def test_captions_continue_if_they_are_written_to_a_file(
    run, monkeypatch, options, line
):
    monkeypatch.setattr(
        cli.cli.commands["caption"], "invoke", mock.Mock(side_effect=KeyboardInterrupt)
    )
    assert run("caption", "a.jpg", *options)[2].strip().endswith(line)


@pytest.mark.parametrize("verb", sorted(cli.cli.commands))
def test_the_remedy_of_an_interruption_is_that_of_the_verb(run, monkeypatch, verb):
    def interrupt(context):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli.commands[verb], "invoke", interrupt)
    needed = {
        "average": ["a.safetensors"],
        "caption": ["a.jpg"],
        "export": ["a.safetensors"],
    }
    needed["convert"] = ["a.keras"]
    needed["export"] += ["--format", "litert", "--out", "a.tflite"]
    needed |= {"download": ["coco", "--data", "coco"], "compare": ["run"]}
    code, _, err = run(verb, *needed.get(verb, []))
    assert code == 130, err
    assert err.count("interrupted; ") == 1
    assert ("--resume" in err) == (verb == "train")
    continued = {"train", "prepare", "features", "download", "demo"}
    assert ("start over" in err) == (verb not in continued)
    if verb == "features":
        last = run(verb, "--overwrite")[2].strip()
        assert last == "interrupted; run it again without --overwrite to continue"


def test_paths_that_are_no_text_are_printed(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(cli.cli, "main", lambda *_, **__: click.echo("x\udcff"))
    cli.main([])
    stream.flush()
    assert stream.buffer.getvalue() == b"x\\udcff\n"


def test_an_interruption_that_a_destructor_drops_is_raised_again(run, replace_prepare):
    class Dropping:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    class Stops(Exception):
        pass

    def prepare(*arguments):
        Dropping()
        for _ in range(1000):
            time.sleep(0.001)
        raise Stops

    replace_prepare(prepare)
    code, out, err = run("prepare")
    assert (code, out) == (143, "")
    assert err.strip() == "terminated; run the same command again to continue"


@pytest.mark.parametrize("kind", [RuntimeError, SystemError, UnboundLocalError])
def test_an_interruption_that_c_code_turns_into_another_error_is_one(
    run, replace_prepare, prepare_raises, kind
):
    def prepare(*arguments):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise kind("returned a result with an exception set") from error

    replace_prepare(prepare)
    code, _, err = run("prepare")
    assert (code, err.count("\n")) == (143, 1 + err.startswith("\n"))
    prepare_raises(kind("another"))
    with pytest.raises(kind, match="another"):
        run("prepare")


def test_an_interruption_that_is_in_the_text_of_an_error_alone_is_one(
    run, prepare_raises
):
    text = (
        "MISMATCH of original and normalized active exception types: ORIGINAL TypeError"
    )
    text += " REPLACED BY KeyboardInterrupt: <MESSAGE UNAVAILABLE>"
    prepare_raises(RuntimeError(f"pybind11::error_already_set: {text}"))
    code, out, err = run("prepare")
    assert (code, out) == (130, "")
    assert err.strip() == "interrupted; run the same command again to continue"
