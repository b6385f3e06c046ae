"""What every test shares: a quiet TensorFlow, seeds, and reasons to skip."""

import os

# Before TensorFlow is imported by any test: no banner, no remarks about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import configparser
import shutil
import signal
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Without a graph, JAX compiles each operation for each shape that an example has.
EXAMPLES = 5 if os.environ.get("KERAS_BACKEND") == "jax" else 25
# The same examples in every run, and no deadline on machines that are busy.
settings.register_profile(
    "ci",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", max_examples=EXAMPLES, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A job in the background ignores Ctrl-C, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of random numbers, the same in every test."""
    return np.random.default_rng(20150215)


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line: exit code, output, errors."""
    from shell import exit_code

    def run(*arguments: str) -> tuple[int, str, str]:
        return exit_code(*arguments), *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def pipeline():
    """A pipeline that all tests share; none may change it."""
    from tiny_pipeline import tiny_pipeline

    return tiny_pipeline()


@pytest.fixture(scope="session")
def keras_pipeline():
    """A pipeline with the engine of Keras that all tests share; none may change it."""
    from tiny_pipeline import tiny_keras_pipeline

    return tiny_keras_pipeline()


@pytest.fixture
def eager_searches(monkeypatch):
    """Search for captions step by step: compiling a search takes several times longer.

    Tests of compiled searches are in ``models/test_generation.py``. A pipeline keeps
    its searches: those of `keras_pipeline` would be slow in all later tests.
    """
    monkeypatch.setattr(
        "show_attend_tell.models.generator.compiled", lambda function, *_: function
    )


@pytest.fixture(scope="module")
def numpy_searches():
    """Search for captions in NumPy in all tests of a file, also where fixtures do.

    For tests of what becomes of captions: a search in Keras takes ten times as long
    when it is called step by step or compiled for few photos. Tests of searches in
    Keras are in ``models``.
    """
    from numpy_search import search

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("show_attend_tell.models.generator.Generator.search", search)
        yield


@pytest.fixture(scope="session")
def java() -> str:
    """The path of Java; a test that asks for it is skipped where none can run."""
    from show_attend_tell.evaluation.metrics.java import java_version
    from show_attend_tell.runtime.errors import SetupError

    try:
        java_version(120)
    except SetupError as error:  # macOS has a `java` that only asks to install Java
        pytest.skip(str(error))
    return shutil.which("java")


@pytest.fixture
def closed(monkeypatch):
    """Let no folder named ``closed`` be read, by root neither."""
    scandir = os.scandir

    def refuse(path):
        if os.path.basename(path) == "closed":
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """Take Java away, and with it METEOR, which takes seconds to start."""
    empty = tmp_path / "nothing"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.fixture(scope="session")
def nodes():
    """Two nodes of a Ray cluster; tests may kill the second."""
    pytest.importorskip("ray", reason="needs the packages of '.[cluster]'")
    from local_cluster import LocalCluster

    nodes = LocalCluster()
    yield nodes
    nodes.shutdown()


def pytest_configure():
    """Stop where the installation does not have the plug-ins of setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).resolve().parents[1] / "setup.cfg", encoding="utf-8")
    group = "show_attend_tell.plugins"
    lines = setup.get("options.entry_points", group, fallback="").split("\n")
    declared = {line.split("=")[0].strip() for line in lines if line.strip()}
    installed = {entry.name for entry in entry_points(group=group)}
    if not declared <= installed:
        raise pytest.UsageError(
            "the installation is older than setup.cfg; run .venv/bin/python -m pip "
            "install --no-deps --no-build-isolation -e ."
        )


def pytest_runtest_setup(item):
    """Skip tests marked ``gpu`` where TensorFlow sees no graphics processor."""
    if item.get_closest_marker("gpu"):
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            pytest.skip("needs a graphics processor, and TensorFlow sees none")
