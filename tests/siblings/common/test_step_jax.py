"""RAM, DRAW and the reader are trained on JAX as on TensorFlow; see `make test-jax`."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import sibling_updates
import tiny_captioner
from new_process import python

pytest.importorskip("jax", reason="needs the packages of '.[jax]'")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="`make test-jax` runs it on JAX"
)

FOLDERS = [str(Path(m.__file__).parent) for m in (sibling_updates, tiny_captioner)]
PATHS = f"import sys; sys.path[:0] = {FOLDERS!r}\n"
UPDATES = "import runpy; runpy.run_module('sibling_updates', run_name='__main__')"


FLAGS = "--xla_force_host_platform_device_count=4"


def child(code, *arguments, backend, **changes):
    """Run code in a process whose Keras runs on a backend."""
    env = {**os.environ, "KERAS_BACKEND": backend, **changes}
    done = python("-c", PATHS + code, *arguments, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", sibling_updates.CASES)
def test_updates_equal_those_of_tensorflow(tmp_path, case):
    out = tmp_path / "out.npz"
    child(UPDATES, out, case, backend="tensorflow")
    expected = np.load(out)
    for name, values in sibling_updates.measure(case).items():
        if name.endswith("losses"):
            np.testing.assert_allclose(values, expected[name], rtol=1e-5)
        else:
            # Adam divides a gradient of nearly 0 by its size.
            np.testing.assert_allclose(values, expected[name], atol=1e-3, err_msg=name)


@pytest.mark.parametrize("case", sibling_updates.CASES)
def test_four_devices_compute_the_updates_of_one(tmp_path, case):
    out = tmp_path / "out.npz"
    child(UPDATES, out, case, backend="jax", XLA_FLAGS=FLAGS)
    name = f"{case} losses"
    losses = sibling_updates.measure(case)[name]
    np.testing.assert_allclose(np.load(out)[name], losses, rtol=1e-5)


TRAIN = """
from importlib.machinery import PathFinder
from pathlib import Path
name, work, folder, mode, hidden = sys.argv[1:]
if hidden:
    real = PathFinder.find_spec
    PathFinder.find_spec = staticmethod(
        lambda name, *rest: None if name.split(".")[0] == hidden else real(name, *rest)
    )
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
from tiny_siblings import SIBLINGS
sibling = SIBLINGS[name]
epochs = {"begin": 1, "resume": 2}[mode]
experiment = sibling.experiment(training={"epochs": epochs})
sibling.train(experiment, Path(work), Path(folder), mode == "resume", progress=False)
sibling.evaluate(experiment, Path(work), Path(folder), "val")
assert not hidden or hidden not in sys.modules
"""


@pytest.mark.parametrize("name", sibling_updates.CASES)
def test_a_run_begins_without_tensorflow_and_is_resumed_on_it(work, tmp_path, name):
    child(TRAIN, name, work, tmp_path, "begin", "tensorflow", backend="")
    files = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"model.safetensors", "checkpoint.safetensors", "scores.json"} <= files
    assert any(each.startswith("events.out.tfevents") for each in files)
    child(TRAIN, name, work, tmp_path, "resume", "", backend="tensorflow")
    # The other way, in a folder of its own.
    other = tmp_path / "other"
    child(TRAIN, name, work, other, "begin", "", backend="tensorflow")
    child(TRAIN, name, work, other, "resume", "tensorflow", backend="jax")
