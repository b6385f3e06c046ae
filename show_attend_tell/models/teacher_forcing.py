"""Reading given words with a captioner, T known when the graph is traced."""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops


class Parts(NamedTuple):
    """What training compiles by parts, see :meth:`Captioner.compile_parts`."""

    compiled: Callable | None = None  # compiles a function
    prepare: Callable | None = None  # the model's, compiled once for all lengths
    precision: str = "float32"  # of the large matrix products


def number_of_words(tokens):
    """Return T of tokens (B, T).

    Raises:
        ValueError: T is not known when the graph is traced.
    """
    length = tokens.shape[1]
    if length is None:
        raise ValueError(
            "`tokens` must have a known number of words T. Received: "
            f"shape {tuple(tokens.shape)}; pad every batch to a fixed T"
        )
    return length


def read(model, inputs, training=False, look=None, samples=1):
    """Run the decoder over given words.

    Args:
        model: a Captioner.
        inputs: ``annotations`` (B, L, D) and ``tokens`` (B, T), y_0 .. y_{T-1}.
        training: whether dropout is active.
        look: of :func:`models.decoder_custom_gradient.unroll`; None takes alpha itself.
        samples: times that each caption is read, side by side: R = B samples rows.

    Returns:
        ``logits`` (R, T, K), ``alpha`` (R, T, L), ``beta`` (R, T), and with a `look`
        the weights of phi, ``looked`` (R, T, L).
    """
    number_of_words(inputs["tokens"])
    parts = (training and model.compiled_parts) or Parts(prepare=model._prepare)
    compiled, prepare, precision = parts
    a = prepare(inputs["annotations"], training)
    projected = model._project_features(a, precision)
    c, h = model._get_initial_lstm(a, training)
    embedded = model.decoder.embed(inputs["tokens"])
    embedded = model.word_dropout(embedded, training=training)
    gates = model.decoder.word_gates(embedded, precision)
    if samples > 1:
        a, projected, c, h, embedded, gates = (
            ops.repeat(x, samples, axis=0)
            for x in (a, projected, c, h, embedded, gates)
        )
    h, z_hat, alpha, looked, beta = model.decoder.unroll(
        gates, h, c, a, projected, compiled, look
    )
    logits = model.decoder.readout(
        embedded,
        h,
        z_hat,
        lambda value: model.dropout(value, training=training),
        precision,
    )
    outputs = {"logits": logits, "alpha": alpha, "beta": beta}
    return outputs if look is None else {**outputs, "looked": looked}
