"""The captioner: a Keras model from annotation vectors to sentences.

Method names follow the reference implementation: ``_get_initial_lstm``,
``_project_features``, ``_attention_layer``. Notation and shapes:
:mod:`show_attend_tell.attention`.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from show_attend_tell.config import ModelSettings
from show_attend_tell.decoder import Decoder
from show_attend_tell.generation import METHODS, make_writer, write_all
from show_attend_tell.losses import caption_losses
from show_attend_tell.vocabulary import PAD, Vocabulary


@keras.saving.register_keras_serializable("show_attend_tell")
class CaptionMean(keras.losses.Loss):
    """The mean over captions of losses already summed over each one's words."""

    def __init__(self, name="caption_mean", reduction="mean_with_sample_weight"):
        super().__init__(name=name, reduction=reduction)

    def call(self, y_true, y_pred):
        """Return `y_pred`, (B,); `y_true` is not used."""
        return y_pred


@keras.saving.register_keras_serializable("show_attend_tell")
class Captioner(keras.Model):
    """Show, Attend and Tell with soft attention, arXiv:1502.03044v3.

    An ordinary Keras model: ``compile(optimizer)`` needs no loss, for the paper's own
    is built in; ``fit``, ``evaluate``, ``predict`` take ``x = {"annotations": (B, L,
    D), "tokens": (B, T) ids from <start> on}`` and ``y = (B, T)`` ids up to <end>,
    both padded with 0. A caption that is all padding counts for nothing.

    Args:
        vocabulary: the words in the order of their ids, special tokens first.
        settings: a ModelSettings or the dict of one.
        annotation_width: D.
        grid: rows and columns of the annotations; L is their product.
        label_smoothing: epsilon of :func:`~show_attend_tell.losses.token_losses`.
        doubly_stochastic: lambda of Eq. (14).
        encoder_identity: what :meth:`Encoder.identity` says of the encoder whose
            annotations this model reads; kept in the saved file.
        decoding: the DecodingSettings, as a dict, that captions are written with
            where nothing else is said; kept in the saved file.
        seed: of initial weights and dropout.
    """

    def __init__(
        self,
        vocabulary,
        settings=None,
        annotation_width=512,
        grid=(14, 14),
        label_smoothing=0.0,
        doubly_stochastic=1.0,
        encoder_identity=None,
        decoding=None,
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(settings, dict):
            settings = ModelSettings(**settings)
        self.settings = settings or ModelSettings()
        self.vocabulary = (
            vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary(vocabulary)
        )
        self.annotation_width = annotation_width
        self.grid = tuple(grid)
        self.label_smoothing = label_smoothing
        self.doubly_stochastic = doubly_stochastic
        self.encoder_identity = encoder_identity or {}
        self.decoding = decoding or {}
        self.seed = seed
        self.compiled_parts = None
        self._writers = {}
        self._create_layers()

    def _create_layers(self):
        s = self.settings
        self.decoder = Decoder(
            s, len(self.vocabulary), self.annotation_width, self.seed, name="decoder"
        )
        self.annotation_scale = self.add_weight(
            shape=(), initializer="ones", trainable=False, name="annotation_scale"
        )
        self.dropout = keras.layers.Dropout(s.dropout, seed=self.seed)
        self.word_dropout = keras.layers.Dropout(
            s.embedding_dropout, seed=self.seed + 1
        )
        self.channel_dropout = keras.layers.Dropout(
            s.channel_dropout, noise_shape=(None, 1, None), seed=self.seed + 2
        )
        self.caption_mean = CaptionMean()
        self.word_loss = keras.metrics.Mean(name="word_loss")
        self.attention_loss = keras.metrics.Mean(name="attention_loss")
        self.built = True

    def set_annotation_scale(self, deviation):
        """Divide annotations by `deviation` from now on; it is saved as a weight."""
        if not deviation > 0:
            raise ValueError(f"`deviation` must be positive. Received: {deviation}")
        self.annotation_scale.assign(1.0 / deviation)

    def compile_parts(self, compiled):
        """Have training multiply its large matrices in bfloat16, outside of XLA.

        On a CPU XLA multiplies in float32 only, while TensorFlow's own products use
        the processor's units for bfloat16. The recurrence stays float32.

        Args:
            compiled: compiles a function; applied to the parts that XLA does better.
        """
        self.compiled_parts = compiled

    def _prepare(self, features, training=False):
        """Cast and scale stored features, drop channels in training; (B, L, D)."""
        annotations = ops.cast(features, self.compute_dtype)
        annotations = annotations * ops.cast(self.annotation_scale, self.compute_dtype)
        return self.channel_dropout(annotations, training=training)

    def _project_features(self, features, precision="float32"):
        """Return W_a a_i + b of every location, once per photo; (B, L, A)."""
        return self.decoder.project(features, precision)

    def _get_initial_lstm(self, features, training=False):
        """Return c_0 and h_0, (B, n) each, from the mean annotation."""
        h, c = self.decoder.initial_state(
            features, lambda value: self.dropout(value, training=training)
        )
        return c, h

    def _attention_layer(self, features, features_proj, h):
        """Return the gated context (B, D), alpha (B, L) and beta (B,) for h (B, n)."""
        decoder = self.decoder
        beta_logit = None
        if self.settings.selector:
            beta_logit = ops.matmul(h, decoder.w_beta) + decoder.b_beta
        state = ops.matmul(h, decoder.w_h)
        return decoder.attend(features, features_proj, state, beta_logit)

    def call(self, inputs, training=False):
        """Run the decoder over given words (teacher forcing).

        Args:
            inputs: ``annotations`` (B, L, D) and ``tokens`` (B, T), y_0 .. y_{T-1};
                T must be known when the graph is traced.
            training: whether dropout is active.

        Returns:
            ``logits`` (B, T, K), ``alpha`` (B, T, L), ``beta`` (B, T).
        """
        tokens = inputs["tokens"]
        if tokens.shape[1] is None:
            raise ValueError(
                "`tokens` must have a known number of words T. Received: "
                f"shape {tuple(tokens.shape)}; pad every batch to a fixed T"
            )
        compiled = self.compiled_parts if training else None
        precision = "bfloat16" if compiled else "float32"
        prepare = compiled(self._prepare) if compiled else self._prepare
        a = prepare(inputs["annotations"], training)
        projected = self._project_features(a, precision)
        c, h = self._get_initial_lstm(a, training)
        embedded = self.word_dropout(self.decoder.embed(tokens), training=training)
        gates = self.decoder.word_gates(embedded, precision)
        h, z_hat, alpha, beta = self.decoder.unroll(gates, h, c, a, projected, compiled)
        logits = self.decoder.readout(
            embedded,
            h,
            z_hat,
            lambda value: self.dropout(value, training=training),
            precision,
        )
        return {"logits": logits, "alpha": alpha, "beta": beta}

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Return the mean over captions of L_d, Eq. (14).

        Args:
            x: not used.
            y: target ids, (B, T), 0 for padding.
            y_pred: from :meth:`call`.
            sample_weight: (B,), multiplies the words' part of each caption; REINFORCE
                passes its advantages here. Padding is left out in any case.
            training: whether labels are smoothed; the loss of ``evaluate`` is not.
        """
        mask = ops.cast(ops.not_equal(y, PAD), "float32")
        words, attention = caption_losses(
            ops.cast(y_pred["logits"], "float32"),
            ops.cast(y_pred["alpha"], "float32"),
            y,
            mask,
            self.label_smoothing if training else 0.0,
            self.doubly_stochastic,
        )
        length = ops.sum(mask, axis=-1)
        present = ops.cast(length > 0, "float32")
        self.word_loss.update_state(
            words / ops.maximum(length, 1), sample_weight=length
        )
        self.attention_loss.update_state(attention, sample_weight=present)
        if sample_weight is not None:
            words = words * ops.cast(sample_weight, words.dtype)
        return self.caption_mean(y, words + attention, sample_weight=present)

    def generate(
        self,
        annotations,
        method="beam",
        beam=5,
        max_words=30,
        length_normalisation=0.0,
        allow_unknown=False,
        temperature=1.0,
        seed=0,
        batch_size=64,
    ):
        """Write captions for photos.

        Args:
            annotations: features as stored, (N, L, D), any float type.
            method: ``beam``, ``greedy`` or ``sample``.
            beam: W hypotheses per photo, with ``beam``.
            max_words: the longest caption, its <end> included.
            length_normalisation: p of log p(y) / length**p, with ``beam``.
            allow_unknown: whether <unk> may be written.
            temperature: divides log-probabilities, with ``sample``.
            seed: of the draws, with ``sample``.
            batch_size: photos decoded at once.

        Returns:
            :class:`~show_attend_tell.decoding.Hypotheses` of NumPy arrays, N rows,
            best hypothesis first.

        Raises:
            ValueError: an argument is out of its range or shapes do not fit.
        """
        shape = np.shape(annotations)
        expected = (self.grid[0] * self.grid[1], self.annotation_width)
        if len(shape) != 3 or shape[0] == 0 or shape[1:] != expected:
            raise ValueError(
                f"`annotations` must be (N, {expected[0]}, {expected[1]}) with N > 0. "
                f"Received: shape {tuple(shape)}"
            )
        if method not in METHODS:
            raise ValueError(f"`method` must be one of {METHODS}. Received: {method!r}")
        if method == "sample" and not temperature > 0:
            raise ValueError(f"`temperature` must be positive. Received: {temperature}")
        if method != "beam":
            beam, length_normalisation = 1, 0.0
        key = (method, beam, max_words, length_normalisation, allow_unknown)
        if key not in self._writers:
            self._writers[key] = make_writer(self, *key)
        noise = np.random.default_rng(seed).random((shape[0], max_words), np.float32)
        return write_all(
            self._writers[key], annotations, noise, temperature, batch_size
        )

    def get_config(self):
        """Return all that :meth:`from_config` needs, as JSON values."""
        return {
            **super().get_config(),
            "vocabulary": list(self.vocabulary.words),
            "settings": dataclasses.asdict(self.settings),
            "annotation_width": self.annotation_width,
            "grid": list(self.grid),
            "label_smoothing": self.label_smoothing,
            "doubly_stochastic": self.doubly_stochastic,
            "encoder_identity": self.encoder_identity,
            "decoding": self.decoding,
            "seed": self.seed,
        }
