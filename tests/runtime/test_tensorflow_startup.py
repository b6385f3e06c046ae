"""TensorFlow starts without its banner, with flags for XLA and retained memory."""

import os
import platform
from types import SimpleNamespace

import pytest
from new_process import python

from show_attend_tell.runtime import tensorflow_startup


def test_standard_error_is_suppressed_unless_the_body_raises(capfd):
    with tensorflow_startup._suppress_stderr():
        os.write(2, b"a banner\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ImportError):
        _fail_with_a_reason()
    assert capfd.readouterr().err == "the reason\n"


CLOSED = """
import os, sys
from show_attend_tell.runtime.tensorflow_startup import _suppress_stderr
os.close(2)
sys.stderr = None
with _suppress_stderr():
    print("inside")
"""


def test_a_program_without_standard_error_starts():
    assert python("-c", CLOSED).stdout == "inside\n"


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


@pytest.mark.nightly
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
