"""Trainings that are interrupted, fail or start again."""

import dataclasses
import functools
import shutil
from pathlib import Path

import numpy as np
import pytest
from nightly import nightly
from refusals import refusal
from tiny_run import experiment, write_features
from tiny_training import (
    HARD,
    REWARD,
    STEPS,
    TRANSFORMER,
    assert_resumes,
    assert_same_run,
    change_position,
    go,
    interrupt_in_log,
    interrupted,
    read_checkpoint,
    skip_captions,
    skip_graphs,
)

from show_attend_tell.config.runs import CHECKPOINT, MODEL, SETTINGS, lock_run
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.data import manifest
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.training import train as training
from show_attend_tell.training.maximum_likelihood import Likelihood

AVERAGED = {"average_decay": 0.9}


@pytest.fixture(scope="module")
def whole(work, tmp_path_factory):
    """The folder of an uninterrupted training with quick steps; not changed."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        skip_graphs(patch)
        go(work, folder, training=AVERAGED)
    return folder


def interrupt_in_update(patch, step):
    """Raise KeyboardInterrupt as Ctrl-C does: as the compiled update returns."""
    real_update = Likelihood._update

    def update(self, *batch):
        values = real_update(self, *batch)
        if int(self.model.optimizer.iterations) == step:
            raise KeyboardInterrupt
        return values

    patch.setattr(Likelihood, "_update", update)


def interrupt_in_validation(patch, number, error=KeyboardInterrupt):
    """Raise an error in a validation, from 1; training does not catch OSError."""
    real_validate, calls = training.validate, []

    def interrupted(*rest):
        calls.append(1)
        if len(calls) == number:
            raise error
        return real_validate(*rest)

    patch.setattr(training, "validate", interrupted)


fail_in_validation = functools.partial(interrupt_in_validation, error=OSError)


def test_a_training_interrupted_anywhere_and_resumed_equals_an_uninterrupted_one(
    whole, work, tmp_path, quick
):
    interruptions = [
        (interrupt_in_log, 2),
        (interrupt_in_log, STEPS),  # the epoch's last update, before its validation
        (interrupt_in_update, 5),
        (interrupt_in_validation, 1),
        (fail_in_validation, 1),  # once more the validation of update 6
        (fail_in_validation, 2),  # and that of the last one, which ends training
    ]
    positions = []
    for number, (interrupt, when) in enumerate(interruptions):
        with interrupted(interrupt, when):
            go(work, tmp_path, resume=number > 0, training=AVERAGED)
        position = read_checkpoint(tmp_path)[1]
        positions.append((position["step"], position["validated"]))
    assert positions == [(2, -1), (3, -1), (5, 3), (6, 3), (6, 3), (9, 6)]
    summary = go(work, tmp_path, resume=True, training=AVERAGED)
    assert summary.steps == 3 * STEPS
    assert_same_run(whole, tmp_path)


@pytest.mark.parametrize("interrupt", [interrupt_in_update, *nightly(interrupt_in_log)])
def test_a_training_interrupted_in_its_first_update_starts_again(
    whole, work, tmp_path, quick, interrupt
):
    """Its loss, the measure of divergence, is not known: nothing is kept.

    The second start is also a whole training of the same seed.
    """
    with interrupted(interrupt, 1):
        go(work, tmp_path, training=AVERAGED)
    assert not (tmp_path / "tiny" / CHECKPOINT).exists()
    go(work, tmp_path, training=AVERAGED)
    assert_same_run(whole, tmp_path)


def test_a_second_process_on_the_run_is_refused(work, tmp_path, quick):
    with lock_run(experiment(), tmp_path), pytest.raises(TrainingError) as caught:
        go(work, tmp_path, training=AVERAGED)
    assert str(caught.value).startswith(f"{tmp_path / 'tiny'}: another process is")
    assert not (tmp_path / "tiny").exists()


COMPILED = {
    "soft": {"encoder": {"mirror": True}, "training": AVERAGED},
    "hard": HARD,
    "transformer": TRANSFORMER,
    "cider": {"training": REWARD},
    "distil": {"training": {"objective": "distil"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_resume_to_the_byte(whole, work, tmp_path, monkeypatch, name):
    skip_captions(monkeypatch)
    changes = {**COMPILED[name]}
    changes["training"] = {**changes.get("training", {}), "epochs": 2}
    start = str(whole / "tiny" / MODEL)
    if name == "cider":
        changes["training"]["init_from"] = start
    if name == "distil":
        changes["distillation"] = {"teachers": [start]}
    assert_resumes(functools.partial(go, work, **changes), tmp_path, 4)


def test_another_seed_gives_another_model(whole, work, tmp_path, quick):
    go(work, tmp_path, training={**AVERAGED, "seed": 2})
    ours, theirs = (read_checkpoint(folder)[0] for folder in (whole, tmp_path))
    different = [name for name in ours if not np.array_equal(ours[name], theirs[name])]
    assert len(different) > len(ours) / 2


def test_resuming_a_finished_training_changes_nothing(whole, work, tmp_path, quick):
    copied = Path(shutil.copytree(whole, tmp_path / "copied"))
    summary = go(work, copied, resume=True, training=AVERAGED)
    assert summary.steps == 3 * STEPS
    assert_same_run(whole, copied)


@pytest.mark.nightly
@pytest.mark.parametrize("interrupt", [interrupt_in_validation, fail_in_validation])
def test_an_interrupted_validation_of_the_start_model_is_done_on_resuming(
    whole, work, tmp_path, quick, interrupt
):
    folders = [tmp_path / name for name in ("whole", "parts")]
    for folder in folders:
        shutil.copytree(whole, folder)
    further = {"init_from": "tiny", "epochs": 1, **AVERAGED}
    go(work, folders[0], name="further", training=further)
    with interrupted(interrupt, 1):
        go(work, folders[1], name="further", training=further)
    position = read_checkpoint(folders[1], "further")[1]
    assert (position["step"], position["validated"]) == (0, -1)
    shutil.rmtree(folders[1] / "tiny")  # resuming does not need it
    scored = []
    with pytest.MonkeyPatch.context() as patch:
        real = training.validate
        patch.setattr(
            training, "validate", lambda model, *rest: scored.append(1) or real(model)
        )
        go(work, folders[1], name="further", resume=True, training=further)
    assert len(scored) == 2  # the start model and the end of the epoch
    assert_same_run(*folders, name="further")


@pytest.mark.nightly
def test_more_epochs_extend_a_finished_run_and_its_settings(
    work, whole, tmp_path, quick
):
    shutil.copytree(whole / "tiny", tmp_path / "tiny")
    longer = {**AVERAGED, "epochs": 5}
    assert go(work, tmp_path, resume=True, training=longer).steps == 5 * STEPS
    settings = read_experiment_file(tmp_path / "tiny" / SETTINGS)
    assert settings.training.epochs == 5
    assert go(work, tmp_path, resume=True, training=longer).steps == 5 * STEPS
    message = refused_resumption(work, tmp_path)
    assert "training.epochs was 5" in message


def refused_resumption(work, folder):
    return refusal(TrainingError, go, work, folder, resume=True, training=AVERAGED)


@pytest.mark.parametrize("words", ["reversed", "replaced"])
def test_resuming_with_another_vocabulary_is_refused(work, whole, tmp_path, words):
    other = Path(shutil.copytree(work, tmp_path / "work"))
    path = other / "made-up" / "vocabulary.json"
    vocabulary = Vocabulary.load(path)
    special = vocabulary.words[:4]
    rest = vocabulary.words[4:]
    new = rest[::-1] if words == "reversed" else [f"{word}s" for word in rest]
    Vocabulary((*special, *new)).save(path)
    before = (whole / "tiny" / CHECKPOINT).read_bytes()
    assert "another vocabulary" in refused_resumption(other, whole)
    assert (whole / "tiny" / CHECKPOINT).read_bytes() == before


def rewrite_manifest(work, change):
    """Write the manifest again with changed photos."""
    path = work / "made-up" / "manifest.jsonl"
    manifest.write_manifest(path, change(manifest.read_manifest(path)))


def exchange_captions(work):
    """Give each photo the captions of another photo: the same words, as often."""

    def change(photos):
        captions = [photo.captions for photo in photos]
        turned = captions[2:12] + captions[:2] + captions[12:]  # 2: as many captions
        pairs = zip(photos, turned, strict=True)
        return [dataclasses.replace(photo, captions=texts) for photo, texts in pairs]

    rewrite_manifest(work, change)


def exchange_splits(work):
    """Let the second validation photo train in place of the second training photo."""

    def change(photos):
        splits = [photo.split for photo in photos]
        splits[1], splits[13] = splits[13], splits[1]
        pairs = zip(photos, splits, strict=True)
        return [dataclasses.replace(photo, split=split) for photo, split in pairs]

    rewrite_manifest(work, change)


def extract_again(work):
    """Write features of the same encoder with other weights."""
    path = next((work / "made-up").glob("features-*.h5"))
    with FeatureReader(path) as reader:
        ids, values = reader.image_ids, reader.read(range(len(reader.image_ids)))
    path.unlink()
    write_features(path.parent, ids, 0.5 * values)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (exchange_captions, "captions have changed"),
        (exchange_splits, "splits and captions have changed"),
        (extract_again, "features have changed"),
    ],
)
def test_resuming_with_other_data_is_refused(work, whole, tmp_path, change, named):
    other = Path(shutil.copytree(work, tmp_path / "work"))
    change(other)
    before = (whole / "tiny" / CHECKPOINT).read_bytes()
    message = refused_resumption(other, whole)
    assert "started with other training data: " in message
    assert named in message
    assert (whole / "tiny" / CHECKPOINT).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "many"}, "damaged"),
        ({"epoch": -1}, "damaged"),
        ({"best": "high"}, "damaged"),
        ([1, 2], "damaged"),
        ({"step_in_epoch": 10**6}, "other training data"),
        ({"step": 10**6}, "other training data"),
    ],
)
def test_an_impossible_position_is_refused(work, whole, tmp_path, change, message):
    copied = Path(shutil.copytree(whole, tmp_path / "copied"))
    path = copied / "tiny" / CHECKPOINT
    change_position(path, change)
    assert message in refused_resumption(work, copied)


def test_a_checkpoint_of_version_0_3_is_one_line_and_is_kept(work, whole, tmp_path):
    copied = Path(shutil.copytree(whole, tmp_path / "copied"))
    old = copied / "tiny" / "checkpoint.npz"
    (copied / "tiny" / CHECKPOINT).rename(old)
    (copied / "tiny" / MODEL).unlink()
    assert "only show-attend-tell 0.3 resumes" in refused_resumption(work, copied)
    with pytest.raises(TrainingError, match="a run is already present"):
        go(work, copied)
    assert old.exists()
