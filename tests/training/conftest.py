"""Prepared data, a trained model, and trainings without graphs."""

import pytest
from tiny_run import prepare
from tiny_training import go, skip_captions, skip_graphs


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


@pytest.fixture(scope="module")
def started(work, tmp_path_factory):
    """The runs folder of a short training by likelihood."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        skip_captions(patch)
        changes = {"epochs": 8, "learning_rate": 0.03, "validate_every": 100}
        go(work, folder, training=changes)
    return folder


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)
