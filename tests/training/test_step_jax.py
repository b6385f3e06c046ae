"""Training on JAX equals training on TensorFlow, on one device and on four."""

import os
import shutil
import signal
from pathlib import Path

import backend_updates
import keras
import numpy as np
import pytest
import tiny_captioner as tiny
from full_device import full_memory
from new_process import python
from refusals import refused
from tiny_run import experiment
from tiny_training import go, read_checkpoint

from show_attend_tell.config.settings import DistillationSettings
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.training.distillation import loss_of_batch
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.optimizer import make_optimizer

jax = pytest.importorskip("jax", reason="needs the packages of '.[jax]'")
step_jax = pytest.importorskip("show_attend_tell.training.step_jax")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="`make test-jax` runs it on JAX"
)

SUPPORT = Path(backend_updates.__file__).parent
PATHS = f"import sys; sys.path[:0] = [{str(SUPPORT)!r}]\n"
FLAGS = "--xla_force_host_platform_device_count=4"


def child(code, *arguments, **changes):
    """Run code in a process with other environment variables; return its output."""
    hidden = ("XLA_FLAGS",)  # of this process
    env = {k: v for k, v in os.environ.items() if k not in hidden}
    done = python("-c", PATHS + code, *arguments, env={**env, **changes})
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(folder, *cases, **changes):
    """Return the arrays of cases that a process with other variables computes."""
    out = folder / "out.npz"
    code = "import runpy; runpy.run_module('backend_updates', run_name='__main__')"
    child(code, out, *cases, **changes)
    return np.load(out)


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorflow")
    return measured(folder, KERAS_BACKEND="tensorflow")


@pytest.mark.parametrize("case", backend_updates.CASES)
def test_updates_and_captions_equal_those_of_tensorflow(on_tensorflow, case):
    for name, values in backend_updates.measure([case]).items():
        expected = on_tensorflow[name]
        if name.endswith("captions"):
            np.testing.assert_array_equal(values, expected)
        elif name.endswith("losses"):
            np.testing.assert_allclose(values, expected, rtol=1e-5)
        else:
            np.testing.assert_allclose(values, expected, atol=1e-4, err_msg=name)


def test_four_devices_compute_the_updates_of_one(tmp_path):
    cases = ("lstm", "transformer", "hard")
    on_four = measured(tmp_path, *cases, KERAS_BACKEND="jax", XLA_FLAGS=FLAGS)
    for name, values in backend_updates.measure(cases).items():
        if name.endswith("losses"):
            np.testing.assert_allclose(on_four[name], values, rtol=1e-5)


TRAIN = """
from pathlib import Path
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
import pytest
from tiny_training import go, skip_captions
with pytest.MonkeyPatch.context() as patch:
    skip_captions(patch)
    go(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "resume",
       training={"epochs": int(sys.argv[4]), "average_decay": 0.9},
       model={"dropout": 0.0})
"""


def test_a_run_of_one_backend_is_resumed_on_the_other(work, tmp_path):
    def train(backend, name, mode, epochs):
        child(TRAIN, work, tmp_path / name, mode, epochs, KERAS_BACKEND=backend)

    train("tensorflow", "back", "begin", 1)
    shutil.copytree(tmp_path / "back", tmp_path / "there")
    # In as many parts, as the average of weights depends on the number of updates.
    train("tensorflow", "there", "resume", 2)
    train("tensorflow", "there", "resume", 3)
    train("jax", "back", "resume", 2)
    train("tensorflow", "back", "resume", 3)
    one, other = (read_checkpoint(tmp_path / name) for name in ("there", "back"))
    assert one[1]["step"] == other[1]["step"] == 9
    assert one[0].keys() == other[0].keys()
    for name, values in one[0].items():
        assert values.dtype == other[0][name].dtype
        np.testing.assert_allclose(values, other[0][name], atol=1e-4, err_msg=name)


ABSENT = """
from importlib.machinery import PathFinder
real = PathFinder.find_spec
def find(name, *rest):
    return None if name.split(".")[0] == "tensorflow" else real(name, *rest)
PathFinder.find_spec = staticmethod(find)
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
from pathlib import Path
from tiny_run import experiment
from tiny_training import go
from show_attend_tell.evaluation.evaluate import evaluate
work, folder = map(Path, sys.argv[1:])
go(work, folder)
evaluate(experiment(), work, folder, "val")
assert "tensorflow" not in sys.modules
"""


def test_a_captioner_is_trained_and_scored_without_tensorflow(work, tmp_path):
    child(ABSENT, work, tmp_path, KERAS_BACKEND="")
    files = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"model.safetensors", "checkpoint.safetensors"} <= files
    assert any(name.startswith("events.out.tfevents") for name in files)
    assert any(name.startswith("scores") for name in files)


def stepping(batch_size=8):
    """Return a tiny model, its settings and its step."""
    settings = experiment(training={"batch_size": batch_size}).training
    model = tiny.build(np.random.default_rng(1))
    model.compile(optimizer=make_optimizer(settings, 10))
    model.optimizer.build(model.trainable_variables)
    return model, step_jax.captioner_step(model, settings)


def batch(rng, steps=4):
    features, tokens, targets = tiny.batch(rng, steps=steps)
    x = {"annotations": features, "tokens": tokens}
    return step_jax.to_device((x, targets))


def test_each_length_is_compiled_once(rng):
    model, step = stepping()
    for steps in (4, 5, 4, 5, 4):
        step(*batch(rng, steps))
    assert step._update._cache_size() == 2
    assert int(model.optimizer.iterations) == 5


def test_variables_that_share_an_array_are_trained_on(rng):
    """An array can be donated once."""
    model, step = stepping()
    step(*batch(rng))
    first, second = model.decoder.init["h"][0][0], model.decoder.init["c"][0][0]
    first.assign(second)
    value = second.value
    assert first.value is value
    step(*batch(rng))
    assert not np.array_equal(first, second)  # they have other gradients
    assert value.is_deleted()  # the old state


def test_the_weights_of_teachers_are_arguments_of_the_program(rng):
    """Values that are compiled in would be those of the first update for ever."""
    settings = experiment(training={"batch_size": 8}).training
    model = tiny.build(np.random.default_rng(1))
    model.compile(optimizer=make_optimizer(settings, 10))
    model.optimizer.build(model.trainable_variables)
    teacher = tiny.build(np.random.default_rng(2))
    loss_of = loss_of_batch(model, [teacher], DistillationSettings(("a",)))
    step = step_jax.captioner_step(model, settings, loss_of, [teacher])
    one = batch(rng)
    step(*one)
    weights = [np.asarray(weight) for weight in teacher.weights]
    assert all(map(np.isfinite, map(np.sum, weights)))  # present after the update
    for weight in teacher.weights:
        weight.assign(np.full(weight.shape, np.nan))
    assert np.isnan(step(*one)["loss"])


def test_an_interrupt_in_an_update_waits_for_its_end():
    done = []

    def update():
        with step_jax._interrupts_delayed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(sum(range(10_000)))

    with pytest.raises(KeyboardInterrupt):
        update()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


REFUSED = """
from pathlib import Path
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
from tiny_training import go
from show_attend_tell.runtime.errors import ConfigError
work, folder = map(Path, sys.argv[1:])
for training in (
    {"batch_size": 6}, {"batch_size": 12, "objective": "cider", "hypotheses": 6}
):
    try:
        go(work, folder, training=training)
    except ConfigError as error:
        print(error)
"""


def test_a_batch_that_the_devices_do_not_divide_writes_nothing(work, tmp_path):
    folder = tmp_path / "runs"
    printed = child(REFUSED, work, folder, KERAS_BACKEND="jax", XLA_FLAGS=FLAGS)
    likelihood, cider = printed.splitlines()
    assert likelihood.startswith(
        "`training.batch_size` must be a multiple of the 4 devices, as a batch is "
        "divided among them. Received: 6; change training.batch_size"
    )
    assert cider.startswith("`batch_size / hypotheses` must be a multiple of the 4")
    assert not folder.exists()


def test_a_full_device_is_named_with_the_batch_that_halves_it(
    work, tmp_path, monkeypatch
):
    monkeypatch.setattr(Likelihood, "_update", full_memory)
    with refused(TrainingError, "too little memory .* --set training.batch_size=4"):
        go(work, tmp_path)
