"""Trainings of several seeds equal trainings of each seed alone."""

import dataclasses

import pytest
from tiny_run import experiment, prepare
from tiny_training import STEPS, assert_same_run, read_checkpoint, skip_graphs

from show_attend_tell.config import runs
from show_attend_tell.runtime.errors import ConfigError, RunError
from show_attend_tell.training.seeds import train_seeds
from show_attend_tell.training.train import train

CHOSEN = experiment(training={"epochs": 2})
NAMES = ["tiny-seed-5", "tiny-seed-2"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"))


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)


def go(work, folder, seeds=(5, 2), chosen=CHOSEN, **changes):
    return list(train_seeds(chosen, seeds, work, folder, progress=False, **changes))


@pytest.mark.usefixtures("quick")
def test_every_run_equals_a_training_of_its_seed_alone(work, tmp_path):
    results = go(work, tmp_path / "several")
    assert [run.name for run, _ in results] == NAMES
    assert [summary.steps for _, summary in results] == [2 * STEPS] * 2
    training = dataclasses.replace(CHOSEN.training, seed=2)
    alone = dataclasses.replace(CHOSEN, name=NAMES[1], training=training)
    train(alone, work, tmp_path / "alone", progress=False)
    assert_same_run(tmp_path / "several", tmp_path / "alone", NAMES[1])
    arrays = [read_checkpoint(tmp_path / "several", name)[0] for name in NAMES]
    assert any((arrays[0][key] != arrays[1][key]).any() for key in arrays[0])


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_resuming_skips_finished_runs_and_trains_the_others(work, tmp_path):
    go(work, tmp_path / "whole")
    go(work, tmp_path / "parts", seeds=[5])
    results = go(work, tmp_path / "parts", resume=True)
    assert [summary is None for _, summary in results] == [True, False]
    for name in NAMES:
        assert_same_run(tmp_path / "parts", tmp_path / "whole", name)


@pytest.mark.usefixtures("quick")
def test_resuming_continues_an_interrupted_run(work, tmp_path, monkeypatch):
    go(work, tmp_path / "whole")
    real, number = runs.open_run, []

    def interrupted(*arguments):
        number.append(0)
        if len(number) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "open_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go(work, tmp_path / "parts")
    go(work, tmp_path / "parts", resume=True)
    for name in NAMES:
        assert_same_run(tmp_path / "parts", tmp_path / "whole", name)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_earlier_run_is_refused_before_any_training(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    with pytest.raises(RunError, match="tiny-seed-2: a run is already present"):
        go(work, tmp_path)
    assert not (tmp_path / NAMES[0]).exists()
    results = go(work, tmp_path, overwrite=True)
    assert all(summary.steps == 2 * STEPS for _, summary in results)


@pytest.mark.usefixtures("quick")
def test_finished_runs_of_other_settings_or_damaged_ones_are_one_line(work, tmp_path):
    go(work, tmp_path, seeds=[2])
    other = experiment(training={"epochs": 2, "batch_size": 4})
    with pytest.raises(RunError, match="other settings .training.batch_size was 8"):
        go(work, tmp_path, seeds=[2], chosen=other, resume=True)
    (tmp_path / "tiny-seed-2" / runs.CHECKPOINT).write_bytes(b"PK damaged")
    with pytest.raises(RunError, match="checkpoint is damaged") as caught:
        go(work, tmp_path, seeds=[2], resume=True)
    assert "\n" not in str(caught.value)


def test_a_seed_out_of_range_is_one_line(work, tmp_path):
    with pytest.raises(ConfigError, match=r"--seeds: training\.seed"):
        go(work, tmp_path, seeds=[1, 2**31])
    assert list(tmp_path.iterdir()) == []
