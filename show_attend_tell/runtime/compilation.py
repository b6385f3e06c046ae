"""Compile by XLA, the only code of the models that depends on the backend."""

from collections.abc import Callable

import keras


def compiled(function: Callable, model: keras.Model, xla: bool = True) -> Callable:
    """Compile a function of tensors that reads a model's weights.

    The compiled function reads the current weights at every call, and is traced again
    for every shape of its arguments.

    Args:
        function: a function of positional tensors, or of nests of tensors and None;
            its assignments to variables may be lost.
        model: the owner of all variables that the function reads.
        xla: whether TensorFlow compiles by XLA too, which takes several times as long
            as tracing a graph; JAX always does.

    Returns:
        The compiled function; on a backend without a compiler the function itself.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _compiled_by_tensorflow(function, xla)
    return _compiled_by_jax(function, model) if backend == "jax" else function


def _compiled_by_tensorflow(function: Callable, xla: bool) -> Callable:
    """Trace a graph for every shape of the arguments.

    A ``tf.function`` that is called itself warns of frequent retracing as soon as a
    process has used several models.
    """
    import tensorflow as tf

    traced = tf.function(function, autograph=False, jit_compile=xla)
    graphs = {}

    def spec(x):
        return None if x is None else (x.shape, x.dtype)

    def call(*args):
        key = tuple(map(spec, tf.nest.flatten(args)))
        if key not in graphs:
            graphs[key] = traced.get_concrete_function(*args)
        return graphs[key](*args)

    return call


def _compiled_by_jax(function: Callable, model: keras.Model) -> Callable:
    """Pass the weights as arguments, as JAX would compile their values as constants."""
    import jax

    @jax.jit
    def pure(values, *args):
        pairs = zip(model.weights, values, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)):
            return function(*args)

    return lambda *args: pure([weight.value for weight in model.weights], *args)
