"""Run folders: new, resumed, replaced, and the model file of a run."""

import functools
import json

import pytest
from refusals import refusal
from tiny_run import experiment

from show_attend_tell.config.runs import (
    CHECKPOINT,
    MODEL,
    SETTINGS,
    open_run,
    write_json,
)
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.runtime.errors import TrainingError


def open_tiny(folder, resume=False, overwrite=False, **changes):
    return open_run(experiment(**changes), folder, resume, overwrite)


def begin(runs, *files, **changes):
    """Start a run and write some of its files; returns its folder."""
    folder = open_tiny(runs, **changes)
    for file in files:
        (folder / file).write_bytes(b"kept")
    return folder


message_of = functools.partial(refusal, TrainingError, open_tiny)


def test_a_new_run_starts_with_its_resolved_settings(tmp_path):
    folder = begin(tmp_path / "runs")
    assert folder == tmp_path / "runs" / "tiny"
    assert read_experiment_file(folder / SETTINGS) == experiment()


def test_a_run_with_a_checkpoint_is_refused_without_overwrite(tmp_path):
    begin(tmp_path, CHECKPOINT)
    message = message_of(tmp_path)
    assert "continue it with --resume, replace it with --overwrite" in message


def test_a_run_with_only_a_model_cannot_be_resumed_nor_replaced_silently(tmp_path):
    folder = begin(tmp_path, MODEL)
    assert "cannot be resumed, replace it with --overwrite" in message_of(tmp_path)
    assert "nothing to resume; train without --resume but with --overwrite" in (
        message_of(tmp_path, True)
    )
    assert (folder / MODEL).read_bytes() == b"kept"


def test_resume_returns_the_folder_as_it_was_left(tmp_path):
    folder = begin(tmp_path, CHECKPOINT)
    assert open_tiny(tmp_path, resume=True) == folder
    assert (folder / CHECKPOINT).read_bytes() == b"kept"


@pytest.mark.parametrize("files", [(CHECKPOINT, MODEL), ("events.out.tfevents",)])
def test_overwrite_and_a_kill_before_the_first_checkpoint_start_over(tmp_path, files):
    folder, overwrite = begin(tmp_path, *files), CHECKPOINT in files
    if not overwrite:
        message = message_of(tmp_path, True)
        assert message.endswith("nothing to resume; train without --resume")
    changed = {"training": {"seed": 9}}
    assert open_tiny(tmp_path, overwrite=overwrite, **changed) == folder
    assert [file.name for file in folder.iterdir()] == [SETTINGS]
    assert read_experiment_file(folder / SETTINGS) == experiment(**changed)


def test_a_run_that_is_linked_to_another_disk_is_replaced_there(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "tiny").symlink_to(tmp_path / "disk", target_is_directory=True)
    begin(tmp_path, MODEL, CHECKPOINT)
    folder = open_tiny(tmp_path, overwrite=True)
    assert folder.is_symlink()
    assert [file.name for file in (tmp_path / "disk").iterdir()] == [SETTINGS]


def test_a_folder_that_is_no_run_keeps_its_files(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "notes.txt").write_text("mine")
    assert (open_tiny(tmp_path) / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("file", [CHECKPOINT, MODEL])
def test_a_model_without_settings_is_neither_resumed_nor_replaced(tmp_path, file):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / file).write_bytes(b"mine")
    for resume, overwrite in [(False, False), (False, True), (True, False)]:
        message = message_of(tmp_path, resume, overwrite)
        assert message.startswith(f"{tmp_path / 'tiny'}: must hold {SETTINGS}")
        assert message.endswith("name another run with --name")
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == [file]


def test_resume_with_changed_settings_names_each_in_one_line(tmp_path):
    begin(tmp_path, CHECKPOINT)
    changed = {"training": {"learning_rate": 0.5}, "model": {"dropout": 0.1}}
    message = message_of(tmp_path, True, **changed)
    old = experiment()
    assert f"training.learning_rate was {old.training.learning_rate}" in message
    assert f"model.dropout was {old.model.dropout}" in message


def test_resume_takes_more_epochs_and_refuses_fewer(tmp_path):
    folder = begin(tmp_path, CHECKPOINT)
    assert open_tiny(tmp_path, resume=True, training={"epochs": 9}) == folder
    assert read_experiment_file(folder / SETTINGS) == experiment()
    message = message_of(tmp_path, True, training={"epochs": 2})
    assert "other settings (training.epochs was 3)" in message
    changes = {"epochs": 9, "batch_size": 4}
    message = message_of(tmp_path, True, training=changes)
    assert "other settings (training.batch_size was 8)" in message


def test_json_is_written_whole_and_as_text(tmp_path):
    path = tmp_path / "scores.json"
    write_json(path, {"name": "été", "BLEU-4": 21.0})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"name": "été", "BLEU-4": 21.0}
    assert "été" in text
    assert text.endswith("}\n")
    assert {file.name for file in tmp_path.iterdir()} == {"scores.json"}
