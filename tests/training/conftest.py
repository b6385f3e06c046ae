"""Prepared data, and trainings without graphs."""

import pytest
from tiny_run import prepare
from tiny_training import skip_graphs


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("work"), mirror=True)


@pytest.fixture
def quick(monkeypatch):
    skip_graphs(monkeypatch)
