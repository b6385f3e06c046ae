"""TensorFlow starts without its banner, with flags for XLA and retained memory."""

import os
import platform
import sys
from types import SimpleNamespace

import pytest
from new_process import python
from refusals import refused

from show_attend_tell.cli import doctor
from show_attend_tell.runtime import tensorflow_startup
from show_attend_tell.runtime.errors import SetupError


def test_standard_error_is_suppressed_unless_the_body_raises(capfd):
    with tensorflow_startup._suppress_stderr():
        os.write(2, b"a banner\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ImportError):
        _fail_with_a_reason()
    assert capfd.readouterr().err == "the reason\n"


def _fail_with_a_reason():
    with tensorflow_startup._suppress_stderr():
        os.write(2, b"the reason\n")
        raise ImportError


@pytest.mark.parametrize("own", [None, "--xla_cpu_enable_fast_math=false"])
def test_xla_flags_are_set_unless_the_user_set_some(monkeypatch, own):
    monkeypatch.setenv("XLA_FLAGS", "")  # so that it is restored afterwards
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    if own:
        monkeypatch.setenv("XLA_FLAGS", own)
    tensorflow_startup.start_tensorflow()
    assert os.environ["XLA_FLAGS"] == (own or "--xla_cpu_prefer_vector_width=512")


HALF = """
from show_attend_tell.runtime.tensorflow_startup import start_tensorflow
start_tensorflow()
import tensorflow as tf
half = tf.ones((1, 1), tf.float16)
print(tf.matmul(half, half).numpy().item())
"""


def test_tensorflow_writes_nothing_at_the_first_float16_operation():
    done = python("-c", HALF, quiet=False)
    assert (done.stdout, done.stderr) == ("1.0\n", "")


PAGES = """
import resource, numpy
from show_attend_tell.runtime.tensorflow_startup import keep_memory
assert keep_memory()
def faults():
    numpy.ones(8_000_000)  # 64 MB: 15,625 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(faults() - first)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the C library is not glibc"
)
def test_freed_memory_is_used_again():
    done = python("-c", PAGES)
    assert int(done.stdout) < 1000, done.stderr


def test_a_c_library_without_mallopt_is_not_configured(monkeypatch):
    monkeypatch.setattr(
        tensorflow_startup.ctypes, "CDLL", lambda name: SimpleNamespace()
    )
    assert not tensorflow_startup.keep_memory()


def test_another_backend_of_keras_is_refused(monkeypatch):
    message = "must be tensorflow. Received: jax; set KERAS_BACKEND=tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    tensorflow_startup.start_keras()
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SetupError, match=message):
        tensorflow_startup.start_keras()
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")  # as from keras.json
    with pytest.raises(SetupError, match=message):
        tensorflow_startup.start_keras()


def test_a_backend_that_cannot_be_imported_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    with refused(SetupError, "keras is not installed"):
        tensorflow_startup.start_keras()


STARTED = """
from show_attend_tell.runtime.tensorflow_startup import start_keras
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


def test_a_process_that_imported_keras_with_other_settings_is_refused(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    tensorflow_startup.start_keras()
    for name, value in (("floatx", "float16"), ("image_data_format", "channels_first")):
        with monkeypatch.context() as patch:
            patch.setattr(f"keras.config.{name}", lambda value=value: value)
            with refused(SetupError, f"Keras' {name} must be .* Received: {value}"):
                tensorflow_startup.start_keras()


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
    if content is not None:
        write_keras_file(tmp_path, content)
    assert tensorflow_startup.ignored_keras_settings() == ignored
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
