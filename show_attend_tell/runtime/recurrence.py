"""Repeat a step of a network, as a loop that every backend can differentiate."""

from collections.abc import Callable

import keras
from keras import ops

UNROLLED = 16  # steps; more take XLA too long to compile


def scan(step: Callable, carry: tuple, inputs, steps: int):
    """Apply a step again and again, and stack what it returns.

    Up to :data:`UNROLLED` steps are written out, which is the fastest. More are a loop
    of the backend: ``keras.ops.scan`` on JAX. On TensorFlow that has no gradient under
    XLA, so the loop is one whose number of iterations is known.

    Args:
        step: function of the carry and of an input (B, ...); it returns the next carry
            and a dict of tensors (B, ...).
        carry: a tuple of tensors (B, ...), which may be nested.
        inputs: (B, T, ...), whose part [:, t] is the input of step t.
        steps: T.

    Returns:
        The last carry, and the dict of the steps' tensors, (B, T, ...).
    """
    if steps <= UNROLLED:
        found = []
        for t in range(steps):
            carry, outputs = step(carry, inputs[:, t])
            found.append(outputs)
        return carry, {
            name: ops.stack([one[name] for one in found], axis=1) for name in found[0]
        }
    inputs = ops.swapaxes(inputs, 0, 1)  # (B, T, ...) -> (T, B, ...)
    loop = _tensorflow_loop if keras.backend.backend() == "tensorflow" else ops.scan
    carry, outputs = loop(step, carry, inputs)
    return carry, {name: ops.swapaxes(x, 0, 1) for name, x in outputs.items()}


def _tensorflow_loop(step: Callable, carry: tuple, inputs):
    """Return the last carry, and the dict of stacked tensors (T, B, ...)."""
    import tensorflow as tf

    T = inputs.shape[0]
    # Its values are not used: without a step the shapes are not known.
    shapes = step(carry, inputs[0])[1]
    arrays = {
        name: tf.TensorArray(x.dtype, T, element_shape=x.shape)
        for name, x in shapes.items()
    }

    def body(t, carry, arrays):
        carry, outputs = step(carry, inputs[t])
        return t + 1, carry, {k: arrays[k].write(t, x) for k, x in outputs.items()}

    _, carry, arrays = tf.while_loop(
        lambda t, *_: t < T,
        body,
        (tf.constant(0), carry, arrays),
        maximum_iterations=T,
    )
    return carry, {name: array.stack() for name, array in arrays.items()}
