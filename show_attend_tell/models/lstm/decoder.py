"""Read and write captions with the paper's decoder.

A step is attention, gate, LSTM and deep output, :meth:`LstmDecoder.step`. Training runs
the steps of :mod:`models.lstm.fast_gradient`, which computes the same numbers faster,
unless ``model.fast_gradient`` is false.
``_get_initial_lstm`` and ``_project_features`` have the names of the reference
implementation.

Notation and shapes: :mod:`show_attend_tell.models.lstm.attention`.
"""

import itertools
from typing import NamedTuple

from keras import ops

from show_attend_tell.models.decoder_interface import (
    NO_DROPOUT,
    SOFT,
    WHOLE,
    MatrixLayer,
    NextWord,
    keep,
    product,
)
from show_attend_tell.models.lstm import fast_gradient
from show_attend_tell.models.lstm.attention import (
    ACTIVATIONS,
    ExponentialProjection,
    attend,
    exp_twice,
)
from show_attend_tell.models.lstm.cell import OrthogonalGates, lstm_update


class LstmMemory(NamedTuple):
    """The tensors that the LSTM reads at every step."""

    annotations: object  # a, (P, L, D)
    projected: object  # W_a a + b, (P, L, A), or its ExponentialProjection
    kernel: object = None  # in a search, see LstmDecoder.state_kernel
    word_gates: object = None  # gates of all words, (K, 4n); None: compute each


class LstmDecoder(MatrixLayer):
    """The paper's decoder.

    The products of h that a step needs (W_h h for attention, U h for the LSTM,
    f_beta) are one matrix product with :meth:`state_kernel`.

    See :class:`models.decoder_interface.CaptionDecoder` for the arguments. `grid` is
    not used: the paper's attention knows no positions.
    """

    shares_photos = False  # the initial state of each caption has its own dropout

    def __init__(
        self, settings, vocabulary_size, annotation_width, grid=(), seed=0, **kwargs
    ):
        super().__init__(**kwargs)
        self.settings = settings
        self.dropout = settings.dropout
        self.vocabulary_size = vocabulary_size
        self.annotation_width = annotation_width
        self.seed = seed
        # A thousand seeds for each model: models of neighbouring seeds share no matrix.
        self._seeds = itertools.count(seed * 1000)
        self._create_weights()
        self.built = True

    @property
    def reads_photo_first(self) -> bool:
        """Whether the photo is the LSTM's first input, and no word's context.

        That is Vinyals et al., arXiv:1411.4555: ``attention = "none"``.
        """
        return self.settings.attention == "none"

    def _matrix(self, name, rows, columns):
        return self.matrix(name, rows, columns, self._seeds, self.settings.initializer)

    def _create_weights(self):
        s = self.settings
        D = self.annotation_width
        K = self.vocabulary_size
        m = s.embedding_width
        n = s.lstm_width
        A = s.attention_width
        # Saved models have these names in this order.
        self.embedding = self._matrix("embedding", K, m)
        # f_att: layers on the annotations, on h, and to a score
        widths = [D] + [A] * s.attention_layers
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.w_a = [self._matrix(f"w_a_{j}", i, o) for j, (i, o) in enumerate(pairs)]
        self.b_a = [self.bias(f"b_a_{j}", o) for j, (_, o) in enumerate(pairs)]
        self.w_h = self._matrix("w_h", n, A)
        self.w_att = self._matrix("w_att", A, 1)
        if s.selector:  # f_beta
            self.w_beta = self._matrix("w_beta", n, 1)
            self.b_beta = self.bias("b_beta", 1)
        # LSTM on E y, z_hat and h; columns of the gates i, f, o, g
        self.lstm_y = self._matrix("lstm_y", m, 4 * n)
        self.lstm_z = self._matrix("lstm_z", D, 4 * n)
        self.lstm_h = self.add_weight(
            shape=(n, 4 * n),
            # Offset so that its four seeds do not collide with the matrices'
            # consecutive ones.
            initializer=OrthogonalGates(self.seed * 1000 + 500),
            name="lstm_h",
        )
        self.lstm_b = self.bias("lstm_b", 4 * n)
        self.init = {}  # f_init
        if not self.reads_photo_first:
            self.init["h"] = self._mlp("init_h", D, n)
            self.init["c"] = self._mlp("init_c", D, n)
        # deep output
        self.l_h = self._matrix("l_h", n, m)
        self.l_b = self.bias("l_b", m)
        if s.ctx2out:
            self.l_z = self._matrix("l_z", D, m)
        self.l_o = self._matrix("l_o", m, K)
        self.l_o_b = self.bias("l_o_b", K)

    def _mlp(self, name, D, n):
        """Add f_init: hidden layers of width D, the last of width n."""
        widths = [D] * self.settings.init_layers + [n]
        return [
            (self._matrix(f"{name}_w{j}", i, o), self.bias(f"{name}_b{j}", o))
            for j, (i, o) in enumerate(zip(widths[:-1], widths[1:], strict=True))
        ]

    def _project_features(self, annotations, precision="float32"):
        """Return W_a a_i + b, (B, L, D) -> (B, L, A), once per photo."""
        activation = ACTIVATIONS[self.settings.activation]
        projected = annotations
        for j, (w, b) in enumerate(zip(self.w_a, self.b_a, strict=True)):
            layer = projected if j == 0 else activation(projected)  # between layers
            projected = product(layer, w, precision) + b  # (B, L, D or A) -> (B, L, A)
        return projected

    def _get_initial_lstm(self, features, dropouts=NO_DROPOUT):
        """Return c_0 and h_0, MLPs of mean_i a_i, ReLU inside and tanh at the end.

        With ``init_layers = 0`` they are zero. With ``attention = "none"`` they are the
        LSTM's after mean_i a_i, its first input.

        Args:
            features: a, (B, L, D).
            dropouts: ``initial`` of the mean, once for h and once for c, and ``hidden``
                after every ReLU, as in the authors' code.

        Returns:
            c_0 and h_0, in this order, (B, n) each.
        """
        mean = ops.mean(features, axis=1)  # (B, L, D) -> (B, D)
        n = self.settings.lstm_width
        if self.reads_photo_first:
            # From h = c = 0 and without a word: of the gates V mean + b alone remains.
            gates = ops.matmul(dropouts.initial(mean), self.lstm_z) + self.lstm_b
            h, c = lstm_update(gates, ops.zeros_like(gates[:, :n]))  # (B, n)
            return c, h
        if not self.settings.init_layers:
            zero = ops.zeros((ops.shape(mean)[0], n))
            return zero, zero
        states = {}
        for part in "hc":
            # Called in the loop: h and c have masks of their own.
            value = dropouts.initial(mean)
            for j, (w, b) in enumerate(self.init[part]):
                if j:
                    value = dropouts.hidden(ops.relu(value))
                value = ops.matmul(value, w) + b  # (B, D) -> (B, D), at last (B, n)
            states[part] = ops.tanh(value)
        return states["c"], states["h"]

    def _attended(self, annotations):
        """Return a; zeros, whose context is zero, if the LSTM reads the photo first."""
        if self.reads_photo_first:
            return ops.zeros_like(annotations)
        return annotations

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

    def step(self, word_gates, h, c, memory, select_weights=None, bias=None):
        """Advance by one word, Eq. (1)-(6).

        Args:
            word_gates: gates of y_{t-1}, (B, 4n) or (B, W, 4n).
            h: (B, n) or (B, W, n).
            c: (B, n) or (B, W, n).
            memory: an LstmMemory with a kernel.
            select_weights: see :func:`models.lstm.attention.attend`.
            bias: (B, L) or (B, W, L), see the same function.

        Returns:
            h and c, of the same shapes, and the :class:`Attention`.
        """
        A = self.settings.attention_width
        n = c.shape[-1]
        # One product for all that h is multiplied by; its columns are cut below.
        products = ops.matmul(h, memory.kernel)  # (..., n) -> (..., A + 4n + 1)
        beta_logit = None
        if self.settings.selector:
            beta_logit = products[..., A + 4 * n :] + self.b_beta  # (..., 1)
        attention = attend(
            self._attended(memory.annotations),
            memory.projected,
            products[..., :A],
            ops.reshape(self.w_att, (-1,)),  # (A, 1) -> (A,)
            beta_logit,
            select_weights,
            bias=bias,
            activation=self.settings.activation,
        )
        gates = word_gates + products[..., A : A + 4 * n]  # (..., 4n)
        gates = gates + ops.matmul(attention.z_hat, self.lstm_z)
        h, c = lstm_update(gates, c)  # (..., n)
        return h, c, attention

    def unroll(
        self,
        word_gates,
        h,
        c,
        annotations,
        projected,
        compile_fn=None,
        selection=SOFT,
        precision="float32",
    ):
        """Run :meth:`step` over given words, see :func:`fast_gradient.unroll`.

        With ``model.fast_gradient = false`` the precision is always float32.
        """
        if not self.settings.has_fast_gradient:
            return self._unroll_by_autodiff(
                word_gates, h, c, annotations, projected, selection
            )
        # A placeholder, as a custom gradient takes tensors alone: without a gate no
        # step reads it.
        b_beta = ops.zeros((1,), h.dtype)
        if self.settings.selector:
            b_beta = ops.reshape(self.b_beta, (1,))
        # Reshaped to tensors: a custom gradient must not be given variables.
        weights = fast_gradient.Weights(
            annotations=self._attended(annotations),
            projected=projected,
            kernel=self.state_kernel(),
            w_att=ops.reshape(self.w_att, (-1,)),  # (A, 1) -> (A,)
            lstm_z=ops.reshape(self.lstm_z, self.lstm_z.shape),
            b_beta=b_beta,
        )
        return fast_gradient.unroll(
            word_gates, h, c, weights, compile_fn, selection, precision
        )

    def _unroll_by_autodiff(self, word_gates, h, c, annotations, projected, selection):
        """Return what :meth:`unroll` returns, with the gradient of autodiff."""
        memory = LstmMemory(annotations, projected, self.state_kernel())
        steps = []
        for t in range(word_gates.shape[1]):
            inputs = [x[:, t] for x in selection.inputs]  # (B, T, ...) -> (B, ...)

            def select_weights(alpha, inputs=inputs):
                # The second result, q, is for the gradient written by hand; autodiff
                # needs none.
                return selection.function(alpha, *inputs)[0]

            h, c, attention = self.step(word_gates[:, t], h, c, memory, select_weights)
            steps.append((h, *attention))
        # T of (B, ...) -> (B, T, ...)
        return tuple(ops.stack(fields, axis=1) for fields in zip(*steps, strict=True))

    def readout(self, embedded, h, z_hat, dropout, precision="float32"):
        """Return the logits of the deep output, Eq. (7), (..., K).

        L_o tanh(E y_{t-1} + L_h h_t + L_z z_hat_t), the tanh being the authors'.

        Args:
            embedded: E y_{t-1}, (..., m).
            h: (..., n).
            z_hat: (..., D).
            dropout: function applied to h and to the tanh.
            precision: dtype of the matrix products.
        """
        hidden = product(dropout(h), self.l_h, precision) + self.l_b  # (..., m)
        if self.settings.prev2out:
            hidden = hidden + embedded
        if self.settings.ctx2out:
            hidden = hidden + product(z_hat, self.l_z, precision)
        # (..., m) -> (..., K)
        return product(dropout(ops.tanh(hidden)), self.l_o, precision) + self.l_o_b

    def memory(self, annotations, parts=WHOLE, dropouts=NO_DROPOUT) -> LstmMemory:
        """Project photos, (P, L, D), once; no dropout is applied."""
        projected = self._project_features(annotations, parts.precision)
        return LstmMemory(annotations, projected)

    def read(
        self, tokens, memory, dropouts, parts=WHOLE, selection=SOFT, samples=1
    ) -> dict:
        """Read the words of captions, see :meth:`Captioner.teacher_force`."""
        a = memory.annotations
        projected = memory.projected
        c, h = self._get_initial_lstm(a, dropouts)  # (B, L, D) -> (B, n)
        embedded = dropouts.words(self.embed(tokens))  # (B, T) -> (B, T, m)
        gates = self.word_gates(embedded, parts.precision)  # (B, T, 4n)
        # After the projections and the initial state, which a caption's samples share.
        if samples > 1:  # (B, ...) -> (R, ...)
            a = ops.repeat(a, samples, axis=0)
            projected = ops.repeat(projected, samples, axis=0)
            c = ops.repeat(c, samples, axis=0)
            h = ops.repeat(h, samples, axis=0)
            embedded = ops.repeat(embedded, samples, axis=0)
            gates = ops.repeat(gates, samples, axis=0)
        # (R, T, n), (R, T, D), twice (R, T, L), (R, T)
        h, z_hat, alpha, context_weights, beta = self.unroll(
            gates, h, c, a, projected, parts.compile_fn, selection, parts.recurrence
        )
        # (R, T, K)
        logits = self.readout(embedded, h, z_hat, dropouts.hidden, parts.precision)
        outputs = {"logits": logits, "alpha": alpha, "beta": beta}
        # The weights of SOFT are alpha, which the outputs have already.
        if selection is not SOFT:
            outputs["context_weights"] = context_weights
        return outputs

    def head_weights(self, tokens, memory, bias=None) -> None:
        """Return None: attention has no heads."""

    def search_memory(self, annotations, words: int | None) -> LstmMemory:
        """Project photos, (B, L, D), and all words if that is less work."""
        projected = self._project_features(annotations)
        if self.settings.has_fast_gradient:
            # Computed once per photo, where every step of every hypothesis would need
            # tanh.
            projected = ExponentialProjection(exp_twice(projected))
        word_gates = None
        # The search reads more words than there are, so the gates of each come first.
        if words is not None and words > self.vocabulary_size:
            word_gates = self.word_gates(ops.convert_to_tensor(self.embedding))
        return LstmMemory(annotations, projected, self.state_kernel(), word_gates)

    def start(self, memory: LstmMemory, max_words: int) -> dict:
        """Return ``{"h", "c"}`` of (B, n); any number of words may follow."""
        c, h = self._get_initial_lstm(memory.annotations)
        return {"h": h, "c": c}

    def next_word(
        self, tokens, state, memory: LstmMemory, select_weights=None, bias=None
    ) -> NextWord:
        """Advance W hypotheses of each photo by one word, tokens y_{t-1} (B, W)."""
        embedded = self.embed(tokens)  # (B, W) -> (B, W, m)
        if memory.word_gates is None:
            gates = self.word_gates(embedded)  # (B, W, m) -> (B, W, 4n)
        else:
            gates = ops.take(memory.word_gates, tokens, axis=0)  # (B, W, 4n)
        # h, c (B, W, n), z_hat (B, W, D), alpha (B, W, L), beta (B, W)
        h = state["h"]
        c = state["c"]
        h, c, out = self.step(gates, h, c, memory, select_weights, bias)
        logits = self.readout(embedded, h, out.z_hat, keep)  # (B, W, K)
        state = {"h": h, "c": c}
        return NextWord(logits, state, out.alpha, out.context_weights, out.beta)
