"""Read and write captions with the paper's decoder.

The arithmetic of a step is in :mod:`models.lstm.decoder`; this module adds the methods
of :mod:`models.decoder_interface`. ``_get_initial_lstm``, ``_project_features`` and
``_attention_layer`` have the names of the reference implementation.
"""

from typing import NamedTuple

from keras import ops

from show_attend_tell.models.decoder_interface import (
    NO_DROPOUT,
    WHOLE,
    CompiledParts,
    Dropouts,
    NextWord,
    keep,
)
from show_attend_tell.models.encoder.trainable import captions_per_photo
from show_attend_tell.models.lstm.attention import ExponentialProjection, exp_twice
from show_attend_tell.models.lstm.decoder import Decoder
from show_attend_tell.models.lstm.fast_gradient import SOFT


class LstmMemory(NamedTuple):
    """The tensors that the LSTM reads at every step."""

    annotations: object  # a, (P, L, D)
    projected: object  # W_a a + b, (P, L, A)


class LstmSearchMemory(NamedTuple):
    """The tensors that the LSTM reads at every step of a search."""

    annotations: object  # a, (B, L, D)
    projected: object  # W_a a + b, (B, L, A), of tanh its ExponentialProjection
    kernel: object  # see Decoder.state_kernel, (n, A + 4n + 1)
    word_gates: object  # the gates of all words, (K, 4n); None to compute each


class LstmDecoder(Decoder):
    """The paper's decoder with the methods of a captioner's decoder."""

    shares_photos = False  # the initial state of each caption has its own dropout
    selects_locations = True

    def memory(
        self,
        annotations,
        parts: CompiledParts = WHOLE,
        dropouts: Dropouts = NO_DROPOUT,
    ) -> LstmMemory:
        """Project photos, (P, L, D), once; no dropout is applied."""
        projected = self._project_features(annotations, parts.precision)
        return LstmMemory(annotations, projected)

    def read(
        self,
        tokens,
        memory: LstmMemory,
        dropouts: Dropouts = NO_DROPOUT,
        parts: CompiledParts = WHOLE,
        selection=SOFT,
        samples=1,
    ) -> dict:
        """Run the decoder over given words, see :meth:`Captioner.teacher_force`."""
        a, projected = memory.annotations, memory.projected
        if (C := captions_per_photo(tokens, a)) > 1:  # (P, ...) -> (B, ...)
            a, projected = (ops.repeat(x, C, axis=0) for x in (a, projected))
        c, h = self._get_initial_lstm(a, dropouts)  # (B, L, D) -> (B, n)
        embedded = dropouts.words(self.embed(tokens))  # (B, T) -> (B, T, m)
        gates = self.word_gates(embedded, parts.precision)  # (B, T, 4n)
        if samples > 1:  # (B, ...) -> (R, ...)
            a, projected, c, h, embedded, gates = (
                ops.repeat(x, samples, axis=0)
                for x in (a, projected, c, h, embedded, gates)
            )
        # (R, T, n), (R, T, D), twice (R, T, L), (R, T)
        h, z_hat, alpha, context_weights, beta = self.unroll(
            gates, h, c, a, projected, parts.compile_fn, selection
        )
        logits = self.readout(
            embedded, h, z_hat, dropouts.hidden, parts.precision
        )  # (R, T, K)
        outputs = {"logits": logits, "alpha": alpha, "beta": beta}
        if selection is not SOFT:
            outputs["context_weights"] = context_weights
        return outputs

    def head_weights(self, tokens, memory, bias=None) -> None:
        """Return None: attention has no heads."""

    def search_memory(self, annotations, words: int | None) -> LstmSearchMemory:
        """Project photos, (B, L, D), and all words if that is less work.

        Args:
            annotations: (B, L, D).
            words: see :meth:`interface.CaptionDecoder.search_memory`.
        """
        projected = self._project_features(annotations)
        if self.settings.activation == "tanh":
            projected = ExponentialProjection(exp_twice(projected))
        word_gates = None
        if words is not None and words > self.vocabulary_size:
            word_gates = self.word_gates(ops.convert_to_tensor(self.embedding))
        return LstmSearchMemory(annotations, projected, self.state_kernel(), word_gates)

    def start(self, memory: LstmSearchMemory, max_words: int) -> dict:
        """Return ``{"h", "c"}`` of (B, n); any number of words may follow."""
        c, h = self._get_initial_lstm(memory.annotations)
        return {"h": h, "c": c}

    def next_word(
        self, tokens, state, memory: LstmSearchMemory, select_weights=None, bias=None
    ) -> NextWord:
        """Advance W hypotheses of each photo by one word.

        Args:
            tokens: y_{t-1}, (B, W).
            state: ``{"h", "c"}`` of (B, W, n).
            memory: from :meth:`search_memory`.
            select_weights: see :func:`models.lstm.attention.attend`.
            bias: (B, L) or (B, W, L), see the same function.
        """
        embedded = self.embed(tokens)  # (B, W) -> (B, W, m)
        if memory.word_gates is None:
            gates = self.word_gates(embedded)  # (B, W, m) -> (B, W, 4n)
        else:
            gates = ops.take(memory.word_gates, tokens, axis=0)  # (B, W, 4n)
        out = self.step(
            gates,
            state["h"],
            state["c"],
            memory.annotations,
            memory.projected,
            memory.kernel,
            select_weights,
            bias,
        )  # h, c (B, W, n), z_hat (B, W, D), alpha (B, W, L), beta (B, W)
        logits = self.readout(embedded, out.h, out.z_hat, keep)  # (B, W, K)
        state = {"h": out.h, "c": out.c}
        return NextWord(logits, state, out.alpha, out.context_weights, out.beta)

    def _project_features(self, features, precision="float32"):
        """Return W_a a_i + b of every location, once per photo; (B, L, A)."""
        return self.project(features, precision)

    def _get_initial_lstm(self, features, dropouts: Dropouts = NO_DROPOUT):
        """Return c_0 and h_0, in this order, (B, n) each, from the mean annotation."""
        h, c = self.initial_state(features, dropouts.hidden, dropouts.initial)
        return c, h

    def _attention_layer(self, features, features_proj, h):
        """Return the gated context (B, D), alpha (B, L) and beta (B,) for h (B, n)."""
        beta_logit = None
        if self.settings.selector:
            beta_logit = ops.matmul(h, self.w_beta) + self.b_beta
        state = ops.matmul(h, self.w_h)
        z_hat, alpha, _, beta = self.attend(features, features_proj, state, beta_logit)
        return z_hat, alpha, beta
