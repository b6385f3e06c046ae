"""Captions from a captioner: the model's step function, compiled with its decoding."""

import keras
import numpy as np
from keras import ops

from show_attend_tell import decoding
from show_attend_tell.vocabulary import END, PAD, START, UNKNOWN

METHODS = ("beam", "greedy", "sample")
_SPECIAL = {"start_id": START, "end_id": END, "pad_id": PAD}


def start_state(model, annotations):
    """Return a decoding step for these photos and the state it begins with.

    Args:
        model: a Captioner.
        annotations: prepared (cast and scaled), (B, L, D).

    Returns:
        ``step`` as :mod:`show_attend_tell.decoding` wants it, and ``{"h", "c"}`` of
        (B, n). The photos are projected once, here.
    """
    decoder = model.decoder
    projected = model._project_features(annotations)
    c, h = model._get_initial_lstm(annotations)
    kernel = decoder.state_kernel()

    def step(tokens, state):
        embedded = decoder.embed(tokens)
        gates = decoder.word_gates(embedded)
        out = decoder.step(
            gates, state["h"], state["c"], annotations, projected, kernel
        )
        logits = decoder.readout(embedded, out.h, out.z_hat, lambda value: value)
        extras = {"alpha": out.alpha, "beta": out.beta}
        return ops.log_softmax(logits), {"h": out.h, "c": out.c}, extras

    return step, {"h": h, "c": c}


def make_writer(model, method, beam, max_words, length_normalisation, allow_unknown):
    """Build the function (features, noise, temperature) -> Hypotheses, compiled.

    Args:
        model: a Captioner.
        method: one of :data:`METHODS`.
        beam: W, of ``beam`` only.
        max_words: T, ``<end>`` included.
        length_normalisation: exponent p, of ``beam`` only.
        allow_unknown: whether ``<unk>`` may be written.
    """
    forbidden = (PAD, START) if allow_unknown else (PAD, START, UNKNOWN)

    def write(features, noise, temperature):
        step, state = start_state(model, model._prepare(features))
        rows = ops.shape(features)[0]
        if method == "beam":
            return decoding.beam_search(
                step,
                state,
                rows,
                **_SPECIAL,
                beam=beam,
                max_words=max_words,
                length_normalisation=length_normalisation,
                forbidden=forbidden,
            )
        if method == "greedy":
            return decoding.greedy(
                step, state, rows, **_SPECIAL, max_words=max_words, forbidden=forbidden
            )
        return decoding.sample(
            step, state, noise, **_SPECIAL, temperature=temperature, forbidden=forbidden
        )

    if keras.backend.backend() != "tensorflow":
        return write
    import tensorflow as tf

    return tf.function(write, autograph=False, jit_compile=True)


def write_all(writer, features, noise, temperature, batch_size):
    """Run a writer over N photos in equal batches; NumPy Hypotheses of N rows.

    The last batch is filled up with zeros, so that one graph serves every batch and a
    photo's caption does not depend on how many came with it.
    """
    count, parts = len(features), []
    for start in range(0, count, batch_size):
        block = np.asarray(features[start : start + batch_size])
        draws = noise[start : start + batch_size]
        missing = batch_size - len(block)
        if missing:
            block, draws = (
                np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
                for array in (block, draws)
            )
        result = writer(
            ops.convert_to_tensor(block),
            ops.convert_to_tensor(draws),
            ops.convert_to_tensor(np.float32(temperature)),
        )
        kept = batch_size - missing
        parts.append([ops.convert_to_numpy(field)[:kept] for field in result])
    fields = [np.concatenate(field) for field in zip(*parts, strict=True)]
    return decoding.Hypotheses(*fields)
