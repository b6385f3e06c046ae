"""Cut event files: a resumed training has each step once."""

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import STEPS, go, interrupt_in_log

from show_attend_tell.training import tensorboard_log
from show_attend_tell.training.event_log import PATTERN, EventWriter, cut_events


def write_events(folder, steps):
    """Log an update and a validation at each step, and settings at step 0."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default(step=0):
        tf.summary.text("settings", "epochs = 3")
    for step in steps:
        with writer.as_default(step=step):
            tf.summary.scalar("train/loss", float(step))
            tf.summary.scalar("validation/CIDEr", float(step))
    writer.close()


def steps_of(folder, tag):
    """Return the steps of a tag as they are in the files, in their order."""
    events = EventAccumulator(
        str(folder), {"tensors": 0}, purge_orphaned_data=False
    ).Reload()
    return [event.step for event in events.Tensors(tag)]


@pytest.mark.parametrize("validated", [False, True])
def test_later_events_are_cut_and_the_others_kept(tmp_path, validated):
    write_events(tmp_path, [20, 40, 60, 80])
    cut_events(tmp_path, 40, validated)
    assert steps_of(tmp_path, "train/loss") == [20, 40]
    assert steps_of(tmp_path, "validation/CIDEr") == [20, 40][: 1 + validated]
    assert steps_of(tmp_path, "settings") == [0]


def test_the_validation_of_an_initial_model_is_cut_and_the_settings_are_kept(tmp_path):
    writer = EventWriter(tmp_path)
    writer.text(0, "settings", "epochs = 3")
    writer.settings(0, {"training.epochs": 3}, "tiny")
    writer.close()
    write_events(tmp_path, [0, 20])
    cut_events(tmp_path, 0, validated=False)
    assert steps_of(tmp_path, "settings") == [0, 0]
    assert steps_of(tmp_path, "_hparams_/session_start_info") == [0]
    with pytest.raises(KeyError, match="validation/CIDEr"):
        steps_of(tmp_path, "validation/CIDEr")


def test_a_whole_file_without_later_events_is_not_written(tmp_path):
    write_events(tmp_path, [20, 40])
    (file,) = tmp_path.glob(PATTERN)
    before = file.stat().st_ino
    cut_events(tmp_path, 40, validated=True)
    assert file.stat().st_ino == before


@pytest.mark.parametrize("lost", [1, 30])
def test_a_record_that_a_kill_cut_off_ends_the_file(tmp_path, lost):
    write_events(tmp_path, [20, 40, 60])
    (file,) = tmp_path.glob(PATTERN)
    file.write_bytes(file.read_bytes()[:-lost])
    cut_events(tmp_path, 60, validated=True)
    assert steps_of(tmp_path, "train/loss") == [20, 40, 60]
    size = file.stat().st_size
    cut_events(tmp_path, 60, validated=True)
    assert file.stat().st_size == size


@pytest.mark.nightly
def test_a_killed_and_resumed_training_logs_each_step_once(
    work, tmp_path, quick, monkeypatch
):
    class Killed(BaseException):
        """Ends a training without a checkpoint, as SIGKILL does."""

    def kill():
        raise Killed

    monkeypatch.setattr(tensorboard_log, "CHECK_INTERVAL", 1)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_log(patch, STEPS + 2, stop=kill)
        with pytest.raises(Killed):
            go(work, tmp_path)
    assert steps_of(tmp_path / "tiny", "train/loss") == [*range(1, STEPS + 3)]
    go(work, tmp_path, resume=True)
    assert steps_of(tmp_path / "tiny", "train/loss") == [*range(1, 3 * STEPS + 1)]
    assert steps_of(tmp_path / "tiny", "validation/CIDEr") == [3, 6, 9]
    assert steps_of(tmp_path / "tiny", "settings") == [0]
