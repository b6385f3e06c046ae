"""The backend is chosen by KERAS_BACKEND alone, and keras.json decides nothing."""

import os
import sys

import keras
import pytest
from new_process import python
from refusals import refused

from show_attend_tell.cli import doctor
from show_attend_tell.inference.pipeline import load
from show_attend_tell.runtime import jax_startup, keras_startup
from show_attend_tell.runtime.errors import SetupError

BACKEND = keras.backend.backend()
OTHER = {"tensorflow": "jax", "jax": "tensorflow"}[BACKEND]


@pytest.mark.parametrize(
    ("named", "installed", "chosen"),
    [
        ("jax", ("tensorflow", "jax"), "jax"),
        ("", ("tensorflow", "jax"), "tensorflow"),
        ("", ("jax",), "jax"),
        ("", (), "tensorflow"),
    ],
)
def test_the_backend_is_the_named_one_or_tensorflow_or_jax(
    monkeypatch, named, installed, chosen
):
    monkeypatch.setenv("KERAS_BACKEND", named)
    monkeypatch.setattr(
        keras_startup, "find_spec", lambda name: name if name in installed else None
    )
    assert keras_startup.chosen_backend() == chosen


@pytest.mark.parametrize(
    ("named", "hint"), [("torch", ""), ("tensorflo", ", nearest: tensorflow")]
)
def test_another_backend_is_refused(monkeypatch, named, hint):
    monkeypatch.setenv("KERAS_BACKEND", named)
    message = f"must be tensorflow or jax. Received: '{named}'{hint}; correct it, or"
    with refused(SetupError, f"^`KERAS_BACKEND` {message} unset it$"):
        keras_startup.start_keras()


def test_a_process_that_imported_keras_on_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras_startup, "start_backend", lambda: None)
    monkeypatch.setenv("KERAS_BACKEND", OTHER)
    with refused(SetupError, f"has imported Keras on {BACKEND}"):
        keras_startup.start_keras()


@pytest.mark.parametrize("extra", ["train", "jax"])
def test_a_package_that_is_absent_is_named_with_its_remedy(monkeypatch, extra):
    backend = "jax" if extra == "jax" else "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setattr(keras_startup, "start_backend", lambda: None)
    monkeypatch.setitem(sys.modules, "keras", None)
    with refused(SetupError, rf"keras is not installed; .*\[{extra}\]"):
        keras_startup.start_keras()


def test_jax_that_would_leave_a_gpu_unused_is_refused(tmp_path, monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(jax_startup, "_GPU_FILES", (str(tmp_path / "nvidia0"),))
    jax_startup.start_jax()
    (tmp_path / "nvidia0").touch()
    with refused(SetupError, "has an NVIDIA GPU, and JAX has no plug-in"):
        jax_startup.start_jax()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    jax_startup.start_jax()


STARTED = """
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
import keras
layer = keras.layers.Dense(1)
layer.build((1, 1))
config = keras.config
print(keras.backend.backend(), layer.kernel.dtype, config.floatx(), config.epsilon())
print(config.image_data_format())
"""


def write_keras_file(folder, content):
    (folder / "keras.json").write_text(content, encoding="utf-8")
    return {**os.environ, "KERAS_HOME": str(folder), "KERAS_BACKEND": ""}


@pytest.mark.nightly
def test_keras_json_decides_nothing(tmp_path):
    content = '{"backend": "torch", "floatx": "float16", "epsilon": 0.5, '
    content += '"image_data_format": "channels_first"}'
    done = python("-c", STARTED, env=write_keras_file(tmp_path, content))
    assert done.stdout.split() == [
        *("tensorflow", "float32", "float32", "1e-07", "channels_last")
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("content", ['{"floatx": "float8"}', "[1]"])
def test_a_keras_json_that_keras_refuses_is_named_in_one_line(tmp_path, content):
    done = python("-c", STARTED, env=write_keras_file(tmp_path, content), check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "SetupError: TensorFlow and Keras cannot be imported" in last
    assert last.endswith(f"or delete {tmp_path / 'keras.json'}")


def load_with_keras():
    load("shipped", engine="keras")


def test_a_process_that_imported_keras_with_other_settings_is_refused(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    keras_startup.start_keras()
    for name, value in (("floatx", "float16"), ("image_data_format", "channels_first")):
        with monkeypatch.context() as patch:
            patch.setattr(f"keras.config.{name}", lambda value=value: value)
            for start in (keras_startup.start_keras, load_with_keras):
                with refused(SetupError, f"Keras' {name} must be .* Received: {value}"):
                    start()


@pytest.mark.parametrize(
    ("content", "ignored"),
    [
        (None, {}),
        ('{"backend": "tensorflow", "floatx": "float32"}', {}),
        ('{"backend": "jax", "epsilon": 1, "x": 1}', {"backend": "jax", "epsilon": 1}),
    ],
)
def test_values_of_keras_json_that_are_ignored(tmp_path, monkeypatch, content, ignored):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    if content is not None:
        write_keras_file(tmp_path, content)
    assert keras_startup.ignored_keras_settings() == ignored
    lines = list(doctor._check_keras_file())
    assert len(lines) == bool(ignored)
    for level, text in lines:
        assert level == "note"
        assert text.startswith(str(tmp_path / "keras.json"))
        assert "backend = 'jax', epsilon = 1: ignored" in text


def test_a_keras_json_that_is_not_json_is_a_note_of_doctor(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    write_keras_file(tmp_path, "{")
    ((level, text),) = doctor._check_keras_file()
    assert level == "note"
    assert "keras.json: cannot be read: " in text


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("train -e scenes --seeds 1,2 --cluster auto", "--cluster needs TensorFlow"),
        ("features -e scenes --cluster auto", "--cluster needs TensorFlow"),
        ("export shipped --format litert --out a", "--format litert needs TensorFlow"),
        ("export shipped --format saved_model --out a", "needs TensorFlow"),
    ],
)
def test_what_needs_tensorflow_is_refused_on_jax(monkeypatch, run, line, needs):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    code, _, errors = run(*line.split())
    assert code == 2
    assert needs in errors
    assert "Received: the backend jax; set KERAS_BACKEND=tensorflow" in errors


def test_one_training_on_a_cluster_is_refused_on_tensorflow(monkeypatch, run):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    code, _, errors = run("train", "-e", "scenes", "--cluster", "auto")
    assert code == 2
    assert "--cluster trains one run on JAX alone" in errors
    assert "run pip install 'show-attend-tell[jax,cluster]'" in errors
