"""Compile, repeat and normalise on any backend of Keras.

Models call these functions and name no backend; :mod:`models.encoder.winograd` alone is
TensorFlow's. The step of training is in :mod:`training.step`.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

Tensor: TypeAlias = Any  # of the backend; Keras has no types

UNROLLED = 16  # steps; more take XLA too long to compile
EPSILON = 1e-3  # of batch normalisation

# (carry, the input of a step) -> (the next carry, the outputs of the step)
Step: TypeAlias = Callable[
    [tuple[Any, ...], Tensor], tuple[tuple[Any, ...], dict[str, Tensor]]
]


def compiled(
    function: Callable[..., Any], model: keras.Model, xla: bool = True
) -> Callable[..., Any]:
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


def _compiled_by_tensorflow(
    function: Callable[..., Any], xla: bool
) -> Callable[..., Any]:
    """Trace a graph for every shape of the arguments.

    A ``tf.function`` that is called itself warns of frequent retracing as soon as a
    process has used several models.
    """
    import tensorflow as tf

    traced = tf.function(function, autograph=False, jit_compile=xla)
    graphs: dict[object, Callable[..., Any]] = {}

    def spec(x: Tensor | None) -> object:
        return None if x is None else (x.shape, x.dtype)

    def call(*args: Any) -> Any:
        key = tuple(map(spec, tf.nest.flatten(args)))
        if key not in graphs:
            graphs[key] = traced.get_concrete_function(*args)
        return graphs[key](*args)

    return call


def compiled_for_batches(
    function: Callable[..., Any], model: keras.Model, shape: tuple[int, ...], dtype: str
) -> Callable[..., Any]:
    """Compile a function of a batch (B, *shape) of any size B.

    TensorFlow traces one graph for all sizes. JAX compiles each size, so there a batch
    is filled up with zeros to a power of two.

    Args:
        function: a function of a tensor (B, ...) that returns a tensor (B, ...).
        model: the owner of all variables that the function reads.
        shape: the shape of an example.
        dtype: the type of its values.

    Returns:
        A function from an array to an array.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec((None, *shape), dtype)]
        # Autograph writes temporary files, and the disk may be full.
        traced = tf.function(function, input_signature=signature, autograph=False)
        return lambda batch: traced(batch).numpy()
    compiled_function = _compiled_by_jax(function, model)

    def call(batch: np.ndarray) -> np.ndarray:
        B = len(batch)
        # Up to the next power of two, so that few sizes are compiled.
        missing = (1 << max(B - 1, 0).bit_length()) - B
        filled = np.pad(batch, [(0, missing)] + [(0, 0)] * len(shape))
        return np.asarray(compiled_function(filled))[:B]

    return call


def _compiled_by_jax(
    function: Callable[..., Any], model: keras.Model
) -> Callable[..., Any]:
    """Pass the weights as arguments, as JAX would compile their values as constants."""
    import jax

    def pure(values: list[Tensor], *args: Any) -> Any:
        pairs = zip(model.weights, values, strict=True)
        # In this scope every read of a weight returns its traced value.
        with keras.StatelessScope(state_mapping=list(pairs)):
            return function(*args)

    compiled_function = jax.jit(pure)
    return lambda *args: compiled_function(
        [weight.value for weight in model.weights], *args
    )


def without_values(build: Callable[[], Any]) -> Any:
    """Return what a function returns whose variables have shapes and no values.

    Args:
        build: builds models; its result has no tensor.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # A graph only records operations: no initial value is computed.
        with tf.Graph().as_default():
            return build()
    import jax

    # Traced with shapes alone. A traced function may return nothing but arrays, so the
    # list takes the result out.
    results = []
    jax.eval_shape(lambda: results.append(build()))
    return results[0]


def accelerators() -> list[str]:
    """Return the names of the GPUs and TPUs that the backend uses."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return [device.name for device in tf.config.list_physical_devices("GPU")]
    import jax

    devices = jax.local_devices()
    return [f"{d.device_kind} {d.id}" for d in devices if d.platform != "cpu"]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of the backend says that the device's memory is full."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return isinstance(error, tf.errors.ResourceExhaustedError)
    import jax

    # JAX has one class for all faults of the device; the text begins with the status.
    is_of_jax = isinstance(error, jax.errors.JaxRuntimeError)
    return is_of_jax and "RESOURCE_EXHAUSTED" in str(error)


def backend_version() -> tuple[str, str]:
    """Return the name and the version of the backend."""
    name = keras.backend.backend()
    return name, importlib.import_module(name).__version__


def scan(
    step: Step, carry: tuple[Any, ...], inputs: Tensor, steps: int
) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
    """Apply a step to each input, and stack its outputs.

    Up to :data:`UNROLLED` steps are written out, which is the fastest. More are a loop
    of the backend: ``keras.ops.scan`` on JAX; on TensorFlow, where that has no
    gradient under XLA, a loop with a known number of iterations.

    Args:
        step: function of the carry and an input (B, ...) that returns the next carry
            and a dict of tensors (B, ...).
        carry: a tuple of tensors (B, ...), which may be nested.
        inputs: (B, T, ...); step t reads [:, t].
        steps: T.

    Returns:
        The last carry, and the dict of the steps' tensors, (B, T, ...).
    """
    if steps <= UNROLLED:
        steps_outputs = []
        for t in range(steps):
            carry, outputs = step(carry, inputs[:, t])
            steps_outputs.append(outputs)
        return carry, {
            name: ops.stack([outputs[name] for outputs in steps_outputs], axis=1)
            for name in outputs
        }
    inputs = ops.swapaxes(inputs, 0, 1)  # (B, T, ...) -> (T, B, ...)
    loop = _tensorflow_loop if keras.backend.backend() == "tensorflow" else ops.scan
    carry, outputs = loop(step, carry, inputs)
    return carry, {name: ops.swapaxes(x, 0, 1) for name, x in outputs.items()}


def _tensorflow_loop(
    step: Step, carry: tuple[Any, ...], inputs: Tensor
) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
    """Return the last carry, and the dict of stacked tensors (T, B, ...)."""
    import tensorflow as tf

    T = inputs.shape[0]
    # A step that is not used otherwise: it gives the shapes.
    _, shapes = step(carry, inputs[0])
    # TensorArrays, as a graph's loop cannot append to a list.
    arrays = {
        name: tf.TensorArray(x.dtype, T, element_shape=x.shape)
        for name, x in shapes.items()
    }

    def body(
        t: Tensor, carry: tuple[Any, ...], arrays: dict[str, Any]
    ) -> tuple[Tensor, tuple[Any, ...], dict[str, Any]]:
        carry, outputs = step(carry, inputs[t])
        return t + 1, carry, {k: arrays[k].write(t, x) for k, x in outputs.items()}

    _, carry, arrays = tf.while_loop(
        lambda t, *_: t < T,
        body,
        (tf.constant(0), carry, arrays),
        # Without a bound XLA cannot compile the gradient of the loop.
        maximum_iterations=T,
    )
    return carry, {name: array.stack() for name, array in arrays.items()}


def normalise_batch(
    x: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise each channel by its mean and variance in the batch.

    y = scale (x - mean) / sqrt(variance + epsilon) + offset, with the biased variance.
    TensorFlow has a fused operation. ``keras.layers.BatchNormalization`` computes mean
    and variance separately, with which a training step of small convolutions takes 1.7
    times as long on a processor.

    Args:
        x: (B, H, W, C), float32 or bfloat16.
        scale: (C,) float32.
        offset: (C,) float32.

    Returns:
        y of the shape and type of x; the mean (C,); and the unbiased variance (C,), an
        estimate for all data.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # In training this operation returns the unbiased variance.
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, epsilon=EPSILON, is_training=True
        )
        return y, mean, variance
    return normalise_by_moments(x, scale, offset)


def normalise_by_moments(
    x: Tensor, scale: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`normalise_batch` by the operations that every backend has."""
    # Sums of many bfloat16 values would lose digits.
    wide = ops.cast(x, "float32")
    mean, variance = ops.moments(wide, axes=[0, 1, 2])  # (B, H, W, C) -> (C,)
    count = ops.cast(ops.size(wide), "float32") / x.shape[-1]
    y = normalise_by(wide, scale, offset, mean, variance)
    # Bessel's correction makes the biased variance the unbiased one.
    return ops.cast(y, x.dtype), mean, variance * count / (count - 1)


def normalise_by(
    x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Normalise each channel by the mean and variance in the arguments, all (C,)."""
    # One product and one sum for each value: y = x f + (offset - mean f).
    factor = scale / ops.sqrt(variance + EPSILON)
    return x * ops.cast(factor, x.dtype) + ops.cast(offset - mean * factor, x.dtype)
