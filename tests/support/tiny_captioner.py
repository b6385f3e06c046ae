"""Build a captioner small enough to recompute, and captions for it."""

import keras
import numpy as np
from random_weights import randomised

from show_attend_tell.config.settings import DecodingSettings, ModelSettings
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.reference import lstm

B, L, D, T = 3, 6, 5, 4
n, m, A, K = 4, 3, 7, 11
GRID = (2, 3)
WORDS = ("<pad>", "<start>", "<end>", "<unk>", *"abcdefg")
PAD, START, END, UNKNOWN = range(4)
LENGTHS = (4, 2, 3)  # words of the captions of a batch
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
VARIANTS = {
    "the default": {},
    "two layers each": {"attention_layers": 2, "init_layers": 2},
    "nothing but h": {"prev2out": False, "ctx2out": False, "selector": False},
    "no context": {"ctx2out": False},
    "a start from zeros": {"init_layers": 0},
    "the mean annotation": {"attention": "mean"},
    "the photo once": {"attention": "none"},
}


def settings(**changes):
    """Return the settings of the tiny model, by default without dropout."""
    widths = {"embedding_width": m, "lstm_width": n, "attention_width": A}
    return ModelSettings(**{**widths, "dropout": 0.0, **changes})


def build(rng, arguments=None, spread=0.5, **changes):
    """Return a tiny captioner whose every weight, biases too, is random."""
    arguments = {"annotation_width": D, "grid": GRID, **(arguments or {})}
    return randomised(Captioner(WORDS, settings(**changes), **arguments), rng, spread)


def weights(model):
    """Return the decoder's weights in float64, under the names of the reference."""
    return {w.name: np.asarray(w, np.float64) for w in model.decoder.weights}


def photos(rng, count=B):
    """Return annotations (count, L, D), float16 as stored."""
    return rng.standard_normal((count, L, D)).astype(np.float16)


def mirrored(photos):
    """Return photos and mirror images, (N, 2, L, D)."""
    grid = photos.reshape(len(photos), *GRID, -1)
    return np.stack([photos, grid[:, :, ::-1].reshape(photos.shape)], axis=1)


def captions(rng, lengths=LENGTHS, steps=T):
    """Return inputs and targets (B, T); a length counts <end>, 0 is all padding."""
    inputs = np.zeros((len(lengths), steps), np.int32)
    targets = np.zeros_like(inputs)
    for b, length in enumerate(lengths):
        words = rng.integers(UNKNOWN, K, max(length - 1, 0))
        if length:
            inputs[b, :length] = [START, *words]
            targets[b, :length] = [*words, END]
    return inputs, targets


def batch(rng, lengths=LENGTHS, steps=T):
    """Return annotations, inputs and targets."""
    return photos(rng, len(lengths)), *captions(rng, lengths, steps)


def arrays(outputs):
    """Return NumPy arrays of a dict or tuple of tensors."""
    return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)


BACKEND = keras.backend.backend()
MODES = ("eager", "graph", "jit") if BACKEND == "tensorflow" else ("eager", "jit")


def in_mode(function, mode):
    """Return a function as it is, as a graph, or compiled by XLA."""
    if mode == "eager":
        return function
    if BACKEND == "jax":
        import jax

        def apart(*args):
            with keras.StatelessScope():  # assignments are dropped
                return function(*args)

        return jax.jit(apart)
    import tensorflow as tf

    return tf.function(function, autograph=False, jit_compile=mode == "jit")


def run_in(mode, function, *inputs):
    """Run a function of arrays in a mode; return NumPy arrays."""
    return arrays(in_mode(function, mode)(*map(keras.ops.convert_to_tensor, inputs)))


def outputs_of(model, annotations, tokens, mode="eager"):
    """Return the model's outputs for given words: dict of arrays (B, T, ...)."""

    def call(annotations, tokens):
        return model({"annotations": annotations, "tokens": tokens})

    return run_in(mode, call, annotations, tokens)


def expected(model, annotations, tokens, scale=1.0):
    """Return the reference's outputs for a batch: dict of arrays (B, T, ...)."""
    p = weights(model)
    a = annotations.astype(float) * scale
    if not model.settings.attends:
        a = a.mean(axis=1, keepdims=True)  # (B, L, D) -> (B, 1, D)
    rows = [lstm.read(p, model.settings, *pair) for pair in zip(a, tokens, strict=True)]
    outputs = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    if not model.settings.attends:
        outputs["alpha"] = np.full((*tokens.shape, L), 1 / L)
    return outputs


def write(model, photos, regions=None, seeds=None, run=None, **changes):
    """Generate captions of at most four words; three photos are a batch.

    ``run`` is the number of photos of the whole run; XLA compiles the search of many.
    """
    decoding = DecodingSettings(**{"max_words": 4, "batch_size": 3, **changes})
    return model.generate(photos, decoding, seeds, regions, photos=run)


def loss_of(model, annotations, inputs, targets, training=False, mode="eager"):
    """Return the loss of a batch as ``fit`` and ``evaluate`` compute it."""

    def loss(annotations, inputs, targets):
        outputs = model({"annotations": annotations, "tokens": inputs})
        return model.compute_loss(y=targets, y_pred=outputs, training=training)

    return float(run_in(mode, loss, annotations, inputs, targets))


def gradient(function, x):
    """Return d function(x) / dx, a tensor."""
    if BACKEND == "jax":
        import jax

        return jax.grad(function)(x)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return tape.gradient(value, x)


def gradient_function(function, model, mode="eager", key="name"):
    """Return args -> (d value / dW by weight, rest) of function(*args) -> value, rest.

    Gradients are arrays under the weights' names, or paths, zeros where there is none.
    """
    weights = model.trainable_weights
    if BACKEND == "jax":
        import jax

        def loss(values, *args):
            with keras.StatelessScope(list(zip(weights, values, strict=True))):
                return function(*args)

        slope = jax.grad(loss, has_aux=True)
        slope = jax.jit(slope) if mode != "eager" else slope

        def compute(*args):
            return slope([w.value for w in weights], *args)
    else:
        import tensorflow as tf

        def tape_gradient(*args):
            with tf.GradientTape() as tape:
                value, rest = function(*args)
            found = tape.gradient(
                value,
                [w.value for w in weights],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            return [tf.convert_to_tensor(g) for g in found], rest

        compute = in_mode(tape_gradient, mode)

    def named(*args):
        found, rest = compute(*args)
        return {
            getattr(w, key): np.asarray(g) for w, g in zip(weights, found, strict=True)
        }, rest

    return named


def gradients(function, model, mode="eager"):
    """Return d function() / dW by weight: name -> array, zeros where there is none."""
    return gradient_function(lambda: (function(), 0.0), model, mode)()[0]
