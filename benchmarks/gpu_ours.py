"""Prepare our contenders on JAX for :mod:`benchmarks.gpu`, without TensorFlow."""

import sys

import numpy as np

from benchmarks import synthetic
from benchmarks.sizes import Sizes
from benchmarks.turns import Work

ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # PyTorch needs memory too
}
_NEVER = -1e4  # added to the logit of <end>
# Photos that the encoder reads together: of 256 in float32 XLA keeps 26 GB of maps.
_AT_ONCE = 64
_PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "float32"}


def _facts() -> dict:
    import jax

    statistics = jax.local_devices()[0].memory_stats() or {}
    return {
        "peak": statistics.get("peak_bytes_in_use"),
        "device": str(jax.local_devices()[0].device_kind),
        "tensorflow": "tensorflow" in sys.modules,
    }


def _use(precision: str) -> None:
    """Set what products and convolutions round the factors of float32 numbers to."""
    import jax

    jax.config.update("jax_default_matmul_precision", _PRODUCTS[precision])


def _model(sizes: Sizes, precision: str):
    _use(precision)
    from benchmarks.ours import captioner, experiment

    stored = "bfloat16" if precision == "bfloat16" else "float32"
    model = captioner(experiment(sizes, precision=stored), sizes)
    # Keras' JAX trainer compiles the whole; this sets the products' precision.
    model.compile_parts(None, stored, recurrence=stored)
    return model


def train_step(sizes: Sizes, precision: str, steps: int) -> Work:
    """Prepare the training step of Keras' trainer for JAX."""
    import jax

    model = _model(sizes, precision)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    holder = [tuple([v.value for v in variables] for variables in groups)]
    annotations, inputs, targets = map(
        jax.numpy.asarray, synthetic.batch(np.random.default_rng(1), sizes)
    )
    data = ({"annotations": annotations, "tokens": inputs}, targets)
    step = jax.jit(model.train_step, donate_argnums=0)

    def run():
        for _ in range(steps):
            logs, holder[0] = step(holder[0], data)
        float(logs["loss"])
        jax.block_until_ready(holder[0])

    return Work(run, steps, _facts)


def decode(sizes: Sizes, precision: str, beam: int, words: int) -> Work:
    """Prepare a beam search over a batch of photos, compiled as a whole."""
    import jax

    from benchmarks import ours
    from show_attend_tell.config.captioner import static_settings
    from show_attend_tell.config.settings import DecodingSettings
    from show_attend_tell.data.vocabulary import END
    from show_attend_tell.models.generator import build_search

    model = _model(sizes, precision)
    bias = np.zeros(sizes.vocabulary, np.float32)
    bias[END] = _NEVER
    model.decoder.l_o_b.assign(bias)
    request = DecodingSettings(beam=beam, max_words=words)
    search = build_search(model.generator, static_settings(request), xla=True)
    values = [variable.value for variable in model.variables]
    features = synthetic.features(np.random.default_rng(2), sizes.batch, sizes)
    noise = np.zeros((sizes.batch, 2, words), np.float32)
    given = [jax.numpy.asarray(x) for x in (features, noise, np.float32(1))]
    write = jax.jit(ours.pure(lambda *given: tuple(search(*given)), model.variables))

    def run():
        jax.block_until_ready(write(values, *given))

    return Work(run, sizes.batch, _facts)


def extract(batch: int, side: int, precision: str) -> Work:
    """Prepare VGG19 to block5_conv4: bytes in, float16 out."""
    import jax
    import keras

    _use(precision)
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    keras.config.set_dtype_policy(policy)
    whole = keras.applications.VGG19(
        include_top=False, weights=None, input_shape=(side, side, 3)
    )
    model = keras.Model(whole.inputs, whole.get_layer("block5_conv4").output)
    weights = [v.value for v in model.trainable_variables]
    shape = (batch, side, side, 3)
    squares = np.random.default_rng(4).integers(0, 256, shape, np.uint8)
    parts = [
        jax.numpy.asarray(squares[first : first + _AT_ONCE])
        for first in range(0, batch, _AT_ONCE)
    ]

    @jax.jit
    def annotations(weights, squares):
        pixels = keras.applications.vgg19.preprocess_input(squares.astype("float32"))
        maps, _ = model.stateless_call(weights, [], pixels, training=False)
        return maps.astype("float16")

    def run():
        jax.block_until_ready([annotations(weights, part) for part in parts])

    return Work(run, batch, _facts)
