"""What a training on TensorFlow says of the machine's devices."""

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow's step", allow_module_level=True)
import tensorflow as tf

from show_attend_tell.training.step import describe_devices


@pytest.mark.parametrize(
    ("gpus", "line"),
    [
        ([], "1 device (cpu)"),
        (["a"], "1 device (GPU)"),
        (
            ["a", "b"],
            "1 of 2 GPUs; to train on all, run pip install 'show-attend-tell[jax]' and "
            "'jax[cuda12]', and set KERAS_BACKEND=jax",
        ),
    ],
)
def test_unused_gpus_are_named_with_what_uses_them(monkeypatch, gpus, line):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert describe_devices() == line
