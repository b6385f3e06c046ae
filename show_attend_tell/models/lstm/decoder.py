"""Compute one step of the paper's decoder: attention, gate, LSTM and deep output.

Notation and shapes: :mod:`show_attend_tell.models.lstm.attention`.
"""

from typing import NamedTuple

import keras
from keras import ops

from show_attend_tell.models.encoder.quantised_weights import dequantised
from show_attend_tell.models.initializers import OrthogonalGates
from show_attend_tell.models.lstm import fast_gradient as decoder_custom_gradient
from show_attend_tell.models.lstm.attention import Attention, attend
from show_attend_tell.models.lstm.fast_gradient import SOFT


class StepOutput(NamedTuple):
    """The result of one step; every field leads with (B,) or (B, W)."""

    h: object  # (B, n)
    c: object  # (B, n)
    z_hat: object  # (B, D)
    alpha: object  # (B, L)
    context_weights: object  # (B, L), the weights of phi: alpha, or one-hot s
    beta: object  # (B,)


def lstm_update(gates, c):
    """Advance the LSTM, Eq. (1)-(3): c' = f*c + i*g, h' = o*tanh(c').

    Args:
        gates: the affine map of [E y, h, z_hat] in the order i, f, o, g; (..., 4n).
        c: (..., n).

    Returns:
        h' and c', (..., n).
    """
    # (..., 4n) -> four of (..., n). Split, not sliced: the gradient of a slice is a sum
    # of padded tensors, which XLA computes by going through the gates again.
    i, f, o, g = ops.split(gates, 4, axis=-1)
    i, f, o, g = ops.sigmoid(i), ops.sigmoid(f), ops.sigmoid(o), ops.tanh(g)
    c = f * c + i * g
    return o * ops.tanh(c), c


def product(x, w, precision="float32"):
    """Multiply (..., p) by (p, q) in `precision`; return (..., q) in the dtype of x."""
    p, q = w.shape
    rows = ops.reshape(x, (-1, p))  # (..., p) -> (rows, p)
    rows = ops.matmul(ops.cast(rows, precision), ops.cast(w, precision))  # (rows, q)
    return ops.cast(ops.reshape(rows, (*ops.shape(x)[:-1], q)), x.dtype)


class Decoder(keras.layers.Layer):
    """The weights of the paper's decoder and the arithmetic of one step.

    The products of h that a step needs (W_h h for attention, U h for the LSTM,
    f_beta) are one matrix product with :meth:`state_kernel`.

    Args:
        settings: a :class:`~show_attend_tell.config.settings.ModelSettings`.
        vocabulary_size: K.
        annotation_width: D.
        seed: seed of the initial weights.
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

    def load_own_variables(self, store):
        """Set the weights to those of a model file, of 8 bits or not."""
        super().load_own_variables(dequantised(store))

    def _matrix(self, name, rows, columns):
        """Add a matrix, initialised as 0.01 N(0, 1) (the authors') or by Glorot."""
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
        s, D, K = self.settings, self.annotation_width, self.vocabulary_size
        m, n, A = s.embedding_width, s.lstm_width, s.attention_width
        # Names and order of the weights are those of saved models.
        self.embedding = self._matrix("embedding", K, m)
        # f_att: layers on the annotations, on h, and to a score
        widths = [D] + [A] * s.attention_layers
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.w_a = [self._matrix(f"w_a_{j}", i, o) for j, (i, o) in enumerate(pairs)]
        self.b_a = [self._bias(f"b_a_{j}", o) for j, (_, o) in enumerate(pairs)]
        self.w_h = self._matrix("w_h", n, A)
        self.w_att = self._matrix("w_att", A, 1)
        if s.selector:  # f_beta
            self.w_beta = self._matrix("w_beta", n, 1)
            self.b_beta = self._bias("b_beta", 1)
        # LSTM on E y, z_hat and h; columns of the gates i, f, o, g
        self.lstm_y = self._matrix("lstm_y", m, 4 * n)
        self.lstm_z = self._matrix("lstm_z", D, 4 * n)
        self.lstm_h = self.add_weight(
            shape=(n, 4 * n),
            initializer=OrthogonalGates(self.seed * 1000 + 500),
            name="lstm_h",
        )
        self.lstm_b = self._bias("lstm_b", 4 * n)
        self.init = {part: self._mlp(f"init_{part}", D, n) for part in "hc"}
        # deep output
        self.l_h, self.l_b = self._matrix("l_h", n, m), self._bias("l_b", m)
        if s.ctx2out:
            self.l_z = self._matrix("l_z", D, m)
        self.l_o, self.l_o_b = self._matrix("l_o", m, K), self._bias("l_o_b", K)

    def _mlp(self, name, D, n):
        """Add f_init: hidden layers of width D, the last of width n."""
        widths = [D] * self.settings.init_layers + [n]
        return [
            (self._matrix(f"{name}_w{j}", i, o), self._bias(f"{name}_b{j}", o))
            for j, (i, o) in enumerate(zip(widths[:-1], widths[1:], strict=True))
        ]

    def project(self, annotations, precision="float32"):
        """Return W_a a_i + b, (B, L, D) -> (B, L, A), once per photo."""
        projected = annotations
        for j, (w, b) in enumerate(zip(self.w_a, self.b_a, strict=True)):
            layer = projected if j == 0 else ops.tanh(projected)  # tanh between layers
            projected = product(layer, w, precision) + b  # (B, L, D or A) -> (B, L, A)
        return projected

    def initial_state(self, annotations, dropout, input_dropout=lambda mean: mean):
        """Return h_0 and c_0: MLPs of mean_i a_i, ReLU inside and tanh at the end.

        Args:
            annotations: (B, L, D).
            dropout: function applied after every ReLU, as in the authors' code.
            input_dropout: function applied to the mean, once for h and once for c.

        Returns:
            h_0 and c_0, (B, n).
        """
        mean = ops.mean(annotations, axis=1)  # (B, L, D) -> (B, D)
        states = []
        for part in "hc":
            value = input_dropout(mean)
            for j, (w, b) in enumerate(self.init[part]):
                if j:
                    value = dropout(ops.relu(value))
                value = ops.matmul(value, w) + b  # (B, D) -> (B, D), at last (B, n)
            states.append(ops.tanh(value))
        return tuple(states)

    def embed(self, tokens):
        """Return E y, (...) -> (..., m)."""
        return ops.take(self.embedding, tokens, axis=0)

    def word_gates(self, embedded, precision="float32"):
        """Return the words' part of the LSTM's affine map, (..., m) -> (..., 4n)."""
        return product(embedded, self.lstm_y, precision) + self.lstm_b

    def state_kernel(self):
        """Return [W_h, U, w_beta], the matrices that multiply h; (n, A + 4n + 1)."""
        matrices = [self.w_h, self.lstm_h]
        if self.settings.selector:
            matrices.append(self.w_beta)
        return ops.concatenate([ops.convert_to_tensor(w) for w in matrices], axis=1)

    def attend(
        self,
        annotations,
        projected,
        state,
        beta_logit=None,
        select_weights=None,
        bias=None,
    ) -> Attention:
        """Call :func:`models.lstm.attention.attend` with this decoder's f_att."""
        w_att = ops.reshape(self.w_att, (-1,))  # (A, 1) -> (A,)
        return attend(
            annotations,
            projected,
            state,
            w_att,
            self.activation,
            beta_logit,
            select_weights,
            bias,
        )

    def step(
        self,
        word_gates,
        h,
        c,
        annotations,
        projected,
        kernel,
        select_weights=None,
        bias=None,
    ):
        """Advance by one word, Eq. (1)-(6).

        Args:
            word_gates: gates of y_{t-1}, (B, 4n) or (B, W, 4n).
            h: (B, n) or (B, W, n).
            c: (B, n) or (B, W, n).
            annotations: (B, L, D).
            projected: (B, L, A).
            kernel: from :meth:`state_kernel`.
            select_weights: see :func:`models.lstm.attention.attend`.
            bias: (B, L) or (B, W, L), see the same function.
        """
        A, n = self.settings.attention_width, c.shape[-1]
        products = ops.matmul(h, kernel)  # (..., n) -> (..., A + 4n + 1)
        beta_logit = None
        if self.settings.selector:
            beta_logit = products[..., A + 4 * n :] + self.b_beta  # (..., 1)
        attention = self.attend(
            annotations, projected, products[..., :A], beta_logit, select_weights, bias
        )
        gates = word_gates + products[..., A : A + 4 * n]  # (..., 4n)
        gates = gates + ops.matmul(
            attention.z_hat, self.lstm_z
        )  # (..., D) -> (..., 4n)
        h, c = lstm_update(gates, c)  # (..., n)
        return StepOutput(h, c, *attention)

    def unroll(
        self,
        word_gates,
        h,
        c,
        annotations,
        projected,
        compile_fn=None,
        selection=SOFT,
    ):
        """Run the steps of given words (teacher forcing).

        Tanh attention uses the gradient of :mod:`models.lstm.fast_gradient`.

        Args:
            word_gates: (B, T, 4n), T known.
            h: h_0, (B, n).
            c: c_0, (B, n).
            annotations: (B, L, D).
            projected: (B, L, A).
            compile_fn: see :func:`models.lstm.fast_gradient.unroll`; None leaves
                compilation to the caller.
            selection: for hard attention, see the same function.

        Returns:
            h (B, T, n), z_hat (B, T, D), alpha and the context weights (B, T, L), and
            beta (B, T).
        """
        tensors = word_gates, h, c, annotations, projected
        if self.settings.activation == "tanh":
            return self._unroll_custom_gradient(*tensors, compile_fn, selection)

        def loop(*tensors):
            return self._unroll_autodiff(*tensors, selection)

        return (compile_fn(loop) if compile_fn else loop)(*tensors)

    def _unroll_custom_gradient(
        self, word_gates, h, c, annotations, projected, compile_fn, selection
    ):
        # Reshaped to tensors: a custom gradient must not be given variables.
        w_att = ops.reshape(self.w_att, (-1,))  # (A, 1) -> (A,)
        lstm_z = ops.reshape(self.lstm_z, self.lstm_z.shape)
        b_beta = ops.zeros((1,), h.dtype)
        if self.settings.selector:
            b_beta = ops.reshape(self.b_beta, (1,))
        kernel = self.state_kernel()  # (n, A + 4n + 1)
        weights = (annotations, projected, kernel, w_att, lstm_z, b_beta)
        given = weights, compile_fn, selection
        return decoder_custom_gradient.unroll(word_gates, h, c, *given)

    def _unroll_autodiff(self, word_gates, h, c, annotations, projected, selection):
        kernel, steps = self.state_kernel(), []
        for t in range(word_gates.shape[1]):  # unrolled: XLA fuses across steps
            memory = annotations, projected, kernel
            step = self.step(word_gates[:, t], h, c, *memory, selection.at(t))
            h, c = step.h, step.c
            steps.append(step)
        fields = ("h", "z_hat", "alpha", "context_weights", "beta")
        # T of (B, ...) -> (B, T, ...)
        return tuple(ops.stack([getattr(s, f) for s in steps], 1) for f in fields)

    def readout(self, embedded, h, z_hat, dropout, precision="float32"):
        """Return the logits of the deep output, Eq. (7), (..., K).

        L_o tanh(E y_{t-1} + L_h h_t + L_z z_hat_t), the tanh being the authors'.

        Args:
            embedded: E y_{t-1}, (..., m).
            h: (..., n).
            z_hat: (..., D); None for a context of zero.
            dropout: function applied to h and to the tanh.
            precision: dtype of the matrix products.
        """
        hidden = product(dropout(h), self.l_h, precision) + self.l_b  # (..., m)
        if self.settings.prev2out:
            hidden = hidden + embedded
        if self.settings.ctx2out and z_hat is not None:
            hidden = hidden + product(z_hat, self.l_z, precision)
        # (..., m) -> (..., K)
        return product(dropout(ops.tanh(hidden)), self.l_o, precision) + self.l_o_b
