"""Run the decoder without a photo, as a language model of captions.

The context of every word is zero and so is the mean annotation, as if every annotation
of a photo were zero::

    z_t = 0,   h_0 = f_init,h(0),   c_0 = f_init,c(0)
    p(y_t | y_<t) = softmax(L_o tanh(E y_{t-1} + L_h h_t + b))

Attention then has no effect, so it is not computed, and the weights that multiply
annotations get no gradient. A learnt constant context would add nothing: its products
with the LSTM's and the readout's matrices are constants, which their biases can learn.
"""

from keras import ops

from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.lstm.decoder import Decoder, lstm_update


def text_logits(model: Captioner, tokens, training=False, precision="float32"):
    """Return the logits of each next word, given the words before it and no photo.

    Equal to those of ``model({"annotations": zeros, "tokens": tokens})``.

    Args:
        model: the captioner.
        tokens: y_0 .. y_{T-1}, (B, T), T known.
        training: whether dropout is active.
        precision: dtype of the large matrix products.

    Returns:
        (B, T, K).
    """
    decoder, dropouts = model.decoder, model.dropouts(training)
    # One location whose annotation is zero, (B, 1, D)
    nothing = ops.zeros((ops.shape(tokens)[0], 1, decoder.annotation_width))
    c, h = decoder._get_initial_lstm(nothing, dropouts)  # (B, n) each
    embedded = dropouts.words(decoder.embed(tokens))  # (B, T) -> (B, T, m)
    gates = decoder.word_gates(embedded, precision)  # (B, T, 4n)
    h = _run_lstm(gates, h, c, ops.convert_to_tensor(decoder.lstm_h))  # (B, T, n)
    return decoder.readout(embedded, h, None, dropouts.hidden, precision)  # (B, T, K)


def _run_lstm(word_gates, h, c, lstm_h):
    """Return h of every word, (B, T, n), from the words' gates, (B, T, 4n)."""
    states = []
    for t in range(word_gates.shape[1]):
        h, c = lstm_update(word_gates[:, t] + ops.matmul(h, lstm_h), c)  # (B, n)
        states.append(h)
    return ops.stack(states, axis=1)  # T of (B, n) -> (B, T, n)


def context_weights(decoder: Decoder) -> list:
    """Return the weights that :func:`text_logits` does not depend on.

    They are those of attention, and the matrices that multiply a context or a mean
    annotation.
    """
    s = decoder.settings
    weights = [*decoder.w_a, *decoder.b_a, decoder.w_h, decoder.w_att, decoder.lstm_z]
    if s.selector:
        weights += [decoder.w_beta, decoder.b_beta]
    if s.ctx2out:
        weights.append(decoder.l_z)
    first_layers = (decoder.init[part][0] for part in "hc")
    return weights + [matrix for matrix, _ in first_layers]
