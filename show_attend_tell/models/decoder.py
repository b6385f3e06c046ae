"""One step of the paper: attention, gate, LSTM and deep output.

Notation and shapes: :mod:`show_attend_tell.models.attention`.
"""

from typing import NamedTuple

import keras
from keras import ops

from show_attend_tell.models import decoder_custom_gradient as recurrence
from show_attend_tell.models.attention import attention_scores, context, gate
from show_attend_tell.models.initializers import OrthogonalGates


class StepOutput(NamedTuple):
    """What one step computes; every field leads with (B,) or (B, W)."""

    h: object  # (B, n)
    c: object  # (B, n)
    z_hat: object  # (B, D)
    alpha: object  # (B, L)
    looked: object  # (B, L), the weights of phi: alpha, or one-hot s
    beta: object  # (B,)


def lstm_update(gates, c):
    """Advance the LSTM, Eq. (1)-(3): c' = f*c + i*g, h' = o*tanh(c').

    Args:
        gates: the affine map of [E y, h, z_hat] in the order i, f, o, g; (..., 4n).
        c: (..., n).

    Returns:
        h' and c', (..., n).
    """
    n = c.shape[-1]
    i, f, o = (ops.sigmoid(gates[..., k * n : (k + 1) * n]) for k in range(3))
    c = f * c + i * ops.tanh(gates[..., 3 * n :])
    return o * ops.tanh(c), c


def product(x, w, precision="float32"):
    """Multiply (..., p) by (p, q) in a precision; (..., q) of the type of `x`."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    rows = ops.matmul(ops.cast(rows, precision), ops.cast(w, precision))
    return ops.cast(ops.reshape(rows, (*ops.shape(x)[:-1], w.shape[-1])), x.dtype)


class Decoder(keras.layers.Layer):
    """The weights of the paper's decoder and the arithmetic of one step.

    The products of h that a step needs (W_h h for attention, U h for the LSTM,
    f_beta) are one matrix product with :meth:`state_kernel`.

    Args:
        settings: a :class:`~show_attend_tell.config.settings.ModelSettings`.
        vocabulary_size: K.
        annotation_width: D.
        seed: of the initial weights.
    """

    def __init__(self, settings, vocabulary_size, annotation_width, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.vocabulary_size = vocabulary_size
        self.annotation_width = annotation_width
        self.seed = seed
        self.activation = keras.activations.get(settings.activation)
        self._create_weights()
        self.built = True

    def _matrix(self, name, rows, columns):
        """Add a matrix: 0.01 N(0, 1) as the authors, or Glorot's uniform."""
        self._matrices = getattr(self, "_matrices", -1) + 1
        seed = self.seed * 1000 + self._matrices
        if self.settings.initializer == "normal":
            initializer = keras.initializers.RandomNormal(stddev=0.01, seed=seed)
        else:
            initializer = keras.initializers.GlorotUniform(seed=seed)
        return self.add_weight(
            shape=(rows, columns), initializer=initializer, name=name
        )

    def _bias(self, name, width):
        return self.add_weight(shape=(width,), initializer="zeros", name=name)

    def _create_weights(self):
        s, d, k = self.settings, self.annotation_width, self.vocabulary_size
        m, n, a = s.embedding_width, s.lstm_width, s.attention_width
        self.embedding = self._matrix("embedding", k, m)
        widths = [d] + [a] * s.attention_layers
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.w_a = [self._matrix(f"w_a_{j}", i, o) for j, (i, o) in enumerate(pairs)]
        self.b_a = [self._bias(f"b_a_{j}", o) for j, (_, o) in enumerate(pairs)]
        self.w_h = self._matrix("w_h", n, a)
        self.w_att = self._matrix("w_att", a, 1)
        if s.selector:
            self.w_beta = self._matrix("w_beta", n, 1)
            self.b_beta = self._bias("b_beta", 1)
        self.lstm_y = self._matrix("lstm_y", m, 4 * n)
        self.lstm_z = self._matrix("lstm_z", d, 4 * n)
        self.lstm_h = self.add_weight(
            shape=(n, 4 * n),
            initializer=OrthogonalGates(self.seed * 1000 + 500),
            name="lstm_h",
        )
        self.lstm_b = self._bias("lstm_b", 4 * n)
        self.init = {part: self._mlp(f"init_{part}", d, n) for part in "hc"}
        self.l_h, self.l_b = self._matrix("l_h", n, m), self._bias("l_b", m)
        if s.ctx2out:
            self.l_z = self._matrix("l_z", d, m)
        self.l_o, self.l_o_b = self._matrix("l_o", m, k), self._bias("l_o_b", k)

    def _mlp(self, name, d, n):
        """Add f_init: hidden layers of width D, the last of width n."""
        widths = [d] * self.settings.init_layers + [n]
        return [
            (self._matrix(f"{name}_w{j}", i, o), self._bias(f"{name}_b{j}", o))
            for j, (i, o) in enumerate(zip(widths[:-1], widths[1:], strict=True))
        ]

    def project(self, annotations, precision="float32"):
        """Return W_a a_i + b, (B, L, D) -> (B, L, A), once per photo."""
        projected = annotations
        for j, (w, b) in enumerate(zip(self.w_a, self.b_a, strict=True)):
            layer = projected if j == 0 else ops.tanh(projected)
            projected = product(layer, w, precision) + b
        return projected

    def initial_state(self, annotations, dropout, input_dropout=lambda mean: mean):
        """Return h_0 and c_0: MLPs of mean_i a_i, ReLU inside and tanh at the end.

        Args:
            annotations: (B, L, D).
            dropout: a function applied behind every ReLU, as in the authors' code.
            input_dropout: a function applied to the mean, once for h and once for c.
        """
        mean = ops.mean(annotations, axis=1)  # (B, L, D) -> (B, D)
        states = []
        for part in "hc":
            value = input_dropout(mean)
            for j, (w, b) in enumerate(self.init[part]):
                if j:
                    value = dropout(ops.relu(value))
                value = ops.matmul(value, w) + b
            states.append(ops.tanh(value))
        return tuple(states)

    def embed(self, tokens):
        """Return E y, (...) -> (..., m)."""
        return ops.take(self.embedding, tokens, axis=0)

    def word_gates(self, embedded, precision="float32"):
        """Return the words' share of the LSTM's affine map, (..., m) -> (..., 4n)."""
        return product(embedded, self.lstm_y, precision) + self.lstm_b

    def state_kernel(self):
        """Return [W_h, U, w_beta], the three matrices that multiply h."""
        matrices = [self.w_h, self.lstm_h]
        if self.settings.selector:
            matrices.append(self.w_beta)
        return ops.concatenate([ops.convert_to_tensor(w) for w in matrices], axis=1)

    def attend(self, annotations, projected, state, beta_logit=None, look=None):
        """Return z_hat, alpha, the weights of phi and beta for one step, Eq. (4)-(6).

        Args:
            annotations: a, (B, L, D).
            projected: from :meth:`project`.
            state: W_h h_{t-1}, (B, A) or (B, W, A).
            beta_logit: f_beta(h_{t-1}), (B, 1) or (B, W, 1); None without selector.
            look: hard attention's choice, alpha -> weights of phi of the same shape;
                None takes alpha itself, as soft attention does.
        """
        scores = attention_scores(
            projected, state, ops.reshape(self.w_att, (-1,)), self.activation
        )
        alpha = ops.softmax(scores, axis=-1)
        looked = alpha if look is None else look(alpha)
        z_hat = context(annotations, looked)
        if beta_logit is None:
            return z_hat, alpha, looked, ops.ones_like(alpha[..., 0])
        beta = gate(beta_logit)
        return beta * z_hat, alpha, looked, beta[..., 0]

    def step(self, word_gates, h, c, annotations, projected, kernel, look=None):
        """Advance by one word, Eq. (1)-(6).

        Args:
            word_gates: of y_{t-1}, (B, 4n) or (B, W, 4n).
            h: (B, n) or (B, W, n).
            c: likewise.
            annotations: (B, L, D).
            projected: (B, L, A).
            kernel: from :meth:`state_kernel`.
            look: of :meth:`attend`.
        """
        width, n = self.settings.attention_width, c.shape[-1]
        products = ops.matmul(h, kernel)
        beta_logit = None
        if self.settings.selector:
            beta_logit = products[..., width + 4 * n :] + self.b_beta
        z_hat, alpha, looked, beta = self.attend(
            annotations, projected, products[..., :width], beta_logit, look
        )
        gates = word_gates + products[..., width : width + 4 * n]
        h, c = lstm_update(gates + ops.matmul(z_hat, self.lstm_z), c)
        return StepOutput(h, c, z_hat, alpha, looked, beta)

    def unroll(
        self, word_gates, h, c, annotations, projected, compiled=None, look=None
    ):
        """Take the steps of given words.

        Tanh attention takes the gradient of :mod:`models.decoder_custom_gradient`.

        Args:
            word_gates: (B, T, 4n), T known.
            h: h_0, (B, n).
            c: c_0, (B, n).
            annotations: (B, L, D).
            projected: (B, L, A).
            compiled: see :func:`models.decoder_custom_gradient.unroll`; None compiles
                with whatever surrounds it.
            look: hard attention's choice, see the same function.

        Returns:
            h (B, T, n), z_hat (B, T, D), alpha and the weights of phi (B, T, L), and
            beta (B, T).
        """
        tensors = word_gates, h, c, annotations, projected
        if self.settings.activation == "tanh":
            return self._unroll_by_hand(*tensors, compiled, look)

        def loop(*tensors):
            return self._unroll_by_steps(*tensors, look)

        return (compiled(loop) if compiled else loop)(*tensors)

    def _unroll_by_hand(self, word_gates, h, c, annotations, projected, compiled, look):
        # Reshaped to tensors: a gradient by hand must not be given variables.
        w_att = ops.reshape(self.w_att, (-1,))
        lstm_z = ops.reshape(self.lstm_z, self.lstm_z.shape)
        b_beta = ops.zeros((1,), h.dtype)
        if self.settings.selector:
            b_beta = ops.reshape(self.b_beta, (1,))
        kernel = self.state_kernel()
        weights = (annotations, projected, kernel, w_att, lstm_z, b_beta)
        given = {"compiled": compiled, "look": look}
        given = {name: function for name, function in given.items() if function}
        return recurrence.unroll(word_gates, h, c, weights, **given)

    def _unroll_by_steps(self, word_gates, h, c, annotations, projected, look):
        kernel, steps = self.state_kernel(), []
        for t in range(word_gates.shape[1]):  # unrolled: XLA fuses across steps
            chosen = None if look is None else lambda alpha, t=t: look(t, alpha)[0]
            step = self.step(
                word_gates[:, t], h, c, annotations, projected, kernel, chosen
            )
            h, c = step.h, step.c
            steps.append(step)
        fields = ("h", "z_hat", "alpha", "looked", "beta")
        return tuple(ops.stack([getattr(s, f) for s in steps], 1) for f in fields)

    def readout(self, embedded, h, z_hat, dropout, precision="float32"):
        """Return the logits of the deep output, Eq. (7), (..., K).

        L_o tanh(E y_{t-1} + L_h h_t + L_z z_hat_t), the tanh being the authors'.

        Args:
            embedded: E y_{t-1}, (..., m).
            h: (..., n).
            z_hat: (..., D).
            dropout: a function applied to h and to the tanh.
            precision: of the products.
        """
        hidden = product(dropout(h), self.l_h, precision) + self.l_b
        if self.settings.prev2out:
            hidden = hidden + embedded
        if self.settings.ctx2out:
            hidden = hidden + product(z_hat, self.l_z, precision)
        return product(dropout(ops.tanh(hidden)), self.l_o, precision) + self.l_o_b
