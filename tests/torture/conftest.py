"""The tiny data set of all parts, and the table at the end."""

import functools
import os
import shutil
import tempfile
from pathlib import Path

import filelock
import pytest
import stages
import tally
import world as worlds
from artefacts import Artefacts


def pytest_configure(config):
    """Make the folder that all test processes write their counts to."""
    if tally.RESULTS not in os.environ:
        os.environ[tally.RESULTS] = tempfile.mkdtemp(prefix="torture-")
        config.torture_results = Path(os.environ[tally.RESULTS])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark every test of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.torture)
            limit = 7200 + 60 * float(os.environ.get("FUZZ_MINUTES", 0))
            item.add_marker(pytest.mark.timeout(limit, method="thread"))


def pytest_terminal_summary(terminalreporter, config):
    """Print the table, in the process that started the others."""
    folder = getattr(config, "torture_results", None)
    if folder is None:
        return
    lines = tally.table(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.pop(tally.RESULTS, None)
    if len(lines) > 2:
        terminalreporter.section("torture")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> worlds.World:
    """A prepared, extracted, trained and evaluated data set; made by one process."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    with filelock.FileLock(base / "world.lock"):
        return worlds.make(base / "world")


@pytest.fixture(scope="module")
def stage_of(world, tmp_path_factory):
    """A function verb -> stage, whose reference run is made once a module."""
    return functools.cache(
        lambda verb: stages.Stage(verb, world, tmp_path_factory.mktemp(verb))
    )


@pytest.fixture
def artefacts(world, tmp_path) -> Artefacts:
    """A copy of all artefacts."""
    return Artefacts(world, tmp_path)
