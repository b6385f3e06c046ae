"""The error of the backend that a full memory of the device raises."""

import keras


def full_memory(*arguments):
    """Raise what a computation raises that does not fit."""
    if keras.backend.backend() == "jax":
        import jax

        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
    import tensorflow as tf

    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
