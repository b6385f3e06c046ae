import json
import subprocess

import pytest
from tiny_run import experiment

from show_attend_tell.config import runs
from show_attend_tell.config import settings as config
from show_attend_tell.config.runs import CHECKPOINT, SETTINGS, open_run
from show_attend_tell.runtime.errors import RunError


def begin(folder, **changes):
    return open_run(experiment(**changes), folder, resume=False, overwrite=False)


def test_a_new_run_starts_with_its_resolved_settings(tmp_path):
    folder = begin(tmp_path / "runs")
    assert folder == tmp_path / "runs" / "tiny"
    assert config.load(folder / SETTINGS) == experiment()


def test_an_existing_run_is_refused_without_overwrite(tmp_path):
    begin(tmp_path)
    with pytest.raises(
        RunError, match="--resume, replace it with --overwrite"
    ) as caught:
        begin(tmp_path)
    assert "\n" not in str(caught.value)


def test_overwrite_leaves_nothing_of_the_earlier_run(tmp_path):
    folder = begin(tmp_path)
    (folder / CHECKPOINT).write_bytes(b"old")
    changed = experiment(training={"seed": 9})
    again = open_run(changed, tmp_path, resume=False, overwrite=True)
    assert again == folder
    assert [file.name for file in folder.iterdir()] == [SETTINGS]
    assert config.load(folder / SETTINGS) == changed


def test_resume_returns_the_folder_as_it_was_left(tmp_path):
    folder = begin(tmp_path)
    (folder / CHECKPOINT).write_bytes(b"kept")
    assert open_run(experiment(), tmp_path, resume=True, overwrite=False) == folder
    assert (folder / CHECKPOINT).read_bytes() == b"kept"


def test_resume_without_checkpoint_is_refused(tmp_path):
    begin(tmp_path)
    with pytest.raises(RunError, match="no checkpoint to resume"):
        open_run(experiment(), tmp_path, resume=True, overwrite=False)


def test_resume_with_changed_settings_names_each_in_one_line(tmp_path):
    folder = begin(tmp_path)
    (folder / CHECKPOINT).write_bytes(b"kept")
    changed = experiment(training={"learning_rate": 0.5}, model={"dropout": 0.1})
    with pytest.raises(RunError) as caught:
        open_run(changed, tmp_path, resume=True, overwrite=False)
    message = str(caught.value)
    assert "\n" not in message
    assert (
        f"training.learning_rate was {experiment().training.learning_rate}" in message
    )
    assert f"model.dropout was {experiment().model.dropout}" in message


def test_json_is_written_whole_and_as_text(tmp_path):
    path = tmp_path / "scores.json"
    runs.write_json(path, {"name": "été", "BLEU-4": 21.0})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"name": "été", "BLEU-4": 21.0}
    assert "été" in text
    assert text.endswith("}\n")
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]


def test_provenance_names_versions_and_revision():
    told = runs.provenance()
    assert {"python", "tensorflow", "keras", "numpy", "h5py"} <= told["versions"].keys()
    assert told["cores"] >= 1
    json.dumps(told)


def test_a_source_outside_git_has_no_revision(monkeypatch, tmp_path):
    def no_git(*arguments, **settings):
        raise OSError("no such program")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert runs.revision() is None
