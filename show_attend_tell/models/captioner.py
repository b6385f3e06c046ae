"""Build, train and decode the captioner, a Keras model from annotations to sentences.

Notation and shapes: :mod:`show_attend_tell.models.lstm.attention`.
"""

import dataclasses
import functools

import keras
from keras import ops

from show_attend_tell.config.settings import (
    DecodingSettings,
    HardAttentionSettings,
    ModelSettings,
    TransformerSettings,
)
from show_attend_tell.data.vocabulary import PAD, Vocabulary
from show_attend_tell.models.decoder_interface import (
    NO_DROPOUT,
    WHOLE,
    CompiledParts,
    Dropouts,
)
from show_attend_tell.models.decoders import DECODERS
from show_attend_tell.models.encoder.trainable import make_convolutions
from show_attend_tell.models.generation import number_of_words
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.losses import CaptionMean, caption_losses
from show_attend_tell.models.lstm.fast_gradient import SOFT
from show_attend_tell.models.lstm.hard_attention import HardAttention
from show_attend_tell.runtime.errors import ConfigError


@keras.saving.register_keras_serializable("show_attend_tell")
class Captioner(keras.Model):
    """Show, Attend and Tell with soft or hard attention, arXiv:1502.03044v3.

    An ordinary Keras model: ``compile(optimizer)`` needs no loss, for the paper's own
    is built in; ``fit``, ``evaluate``, ``predict`` take ``x = {"annotations": (B, L,
    D), "tokens": (B, T) ids from <start> on}`` and ``y = (B, T)`` ids up to `<end>`,
    both padded with 0. Captions that contain only padding are ignored.

    Args:
        vocabulary: words in the order of their ids, special tokens first.
        settings: a ModelSettings or the dict of one.
        annotation_width: D.
        grid: rows and columns of the annotations; L is their product.
        label_smoothing: epsilon of :func:`models.losses.token_losses`.
        doubly_stochastic: lambda of Eq. (14).
        encoder_identity: :meth:`Encoder.identity` of the encoder whose annotations this
            model reads; part of the saved file.
        decoding: a DecodingSettings or the dict of one, the default of
            :meth:`generate`; part of the saved file.
        hard: a HardAttentionSettings or the dict of one; used by hard attention only.
        transformer: a TransformerSettings or the dict of one; used with
            ``decoder = "transformer"`` only.
        seed: seed of initial weights, dropout and sampled locations.
        convolutions: names of the encoder's convolutions that this model applies to
            its input and trains, see :mod:`models.encoder.trainable`.
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
        hard=None,
        seed=0,
        convolutions=(),
        transformer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.settings = _made(ModelSettings, settings)
        self.vocabulary = (
            vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary(vocabulary)
        )
        self.annotation_width = annotation_width
        self.grid = tuple(grid)
        self.label_smoothing = label_smoothing
        self.doubly_stochastic = doubly_stochastic
        self.encoder_identity = encoder_identity or {}
        self.decoding = _made(DecodingSettings, decoding)
        self.hard = _made(HardAttentionSettings, hard)
        self.transformer = _made(TransformerSettings, transformer)
        self.seed = seed
        self.compiled_parts = self._compile_fn = None
        self._create_layers(convolutions)
        self.generator = Generator([self])
        for layer in (self, self.decoder):  # layers take Keras' global dtype policy
            if layer.compute_dtype == "float16":
                raise ConfigError(
                    "`dtype` must be float32 or mixed_bfloat16. Received: "
                    f"{layer.dtype_policy.name}, whose float16 the recurrence "
                    "overflows; call keras.config.set_dtype_policy('float32') first"
                )

    def _create_layers(self, convolutions):
        s = self.settings
        self.decoder = DECODERS[s.decoder].build_for(self)
        self.annotation_scale = self.add_weight(
            shape=(), initializer="ones", trainable=False, name="annotation_scale"
        )
        self.dropout = keras.layers.Dropout(self.decoder.dropout, seed=self.seed)
        self.word_dropout = keras.layers.Dropout(
            s.embedding_dropout, seed=self.seed + 1
        )
        self.channel_dropout = keras.layers.Dropout(
            s.channel_dropout, noise_shape=(None, 1, None), seed=self.seed + 2
        )
        self.init_dropout = keras.layers.Dropout(s.init_dropout, seed=self.seed + 3)
        self.hard_attention = None
        if s.attention == "hard":
            self.hard_attention = HardAttention(
                self.hard, self.seed + 4, name="hard_attention"
            )
        self.convolutions = make_convolutions(
            convolutions, self.annotation_width, self.grid, self.seed
        )
        self.caption_mean = CaptionMean()
        self.word_loss = keras.metrics.Mean(name="word_loss")
        self.attention_loss = keras.metrics.Mean(name="attention_loss")
        self.built = True

    def set_annotation_scale(self, deviation):
        """Divide annotations by `deviation` from now on; the scale is a saved weight.

        Raises:
            ValueError: `deviation` is not positive.
        """
        if not deviation > 0:
            raise ValueError(
                f"`deviation` must be positive. Received: {deviation}; pass the "
                "standard deviation of the annotations"
            )
        self.annotation_scale.assign(1.0 / deviation)

    def set_alpha_layer(self, layer, head=0):
        """Let alpha be the attention of a layer and head of a Transformer from now on.

        Args:
            layer: number of the layer, from 1; 0 for the last.
            head: number of the head, from 1; 0 for the mean over the heads.

        Raises:
            ValueError: there is no such layer or head.
        """
        self.transformer = dataclasses.replace(
            self.transformer, alpha_layer=layer, alpha_head=head
        )
        self.decoder.settings = self.transformer
        self.generator = Generator([self])  # traces its searches again

    def attention_heads(self, annotations, tokens, bias=None):
        """Return the attention of each layer and head at given words.

        Args:
            annotations: features as stored, (N, L, D).
            tokens: y_0 .. y_{T-1}, (N, T).
            bias: (N, T, L), see :func:`models.lstm.attention.region_bias`, or None.

        Returns:
            An array (N, layers, H, T, L), or None if the decoder has no heads.
        """
        memory = self.decoder.memory(self._prepare(annotations))
        weights = self.decoder.head_weights(tokens, memory, bias)
        return None if weights is None else ops.convert_to_numpy(weights)

    def compile_parts(self, compile_fn, precision="float32"):
        """Compile parts of the training step, leaving large products to TensorFlow.

        On a CPU TensorFlow's own matrix products are faster than XLA's, and use the
        processor's units for bfloat16. The recurrence stays float32. What a call with
        this compiler has compiled remains, for batches of all lengths.

        Args:
            compile_fn: compiles a function; applied to the parts that XLA does better.
                None where the caller compiles the whole step.
            precision: dtype of the large products.
        """
        if self.compiled_parts is None or self._compile_fn is not compile_fn:
            self._compile_fn = compile_fn
            self.compiled_parts = CompiledParts(
                compile_fn and functools.cache(compile_fn)
            )
        self.compiled_parts = self.compiled_parts._replace(precision=precision)

    def _parts(self, training):
        return (training and self.compiled_parts) or WHOLE

    def _prepare(self, features, training=False):
        """Convolve stored features, if the model has convolutions, and scale them."""
        parts = self._parts(training)
        if self.convolutions is not None:
            features = ops.cast(features, self.compute_dtype)
            features = self.convolutions(features, precision=parts.precision)
        # Factors outside of the compiled part: XLA draws noise again for each location.
        factors = self._factors(ops.shape(features)[0], training)
        return parts.compiled(_scale)(features, factors)

    def convolve(self, features):
        """Return the unscaled annotations of stored features, as arrays (N, L, D)."""
        if self.convolutions is not None:
            features = self.convolutions(ops.convert_to_tensor(features, "float32"))
        return ops.convert_to_numpy(features)

    def _factors(self, photos, training):
        """Return what annotations are multiplied by, () or (photos, 1, D)."""
        scale = ops.reshape(self.annotation_scale, ())  # a tensor, not a variable
        scale = ops.cast(scale, self.compute_dtype)
        if not training or not self.settings.channel_dropout:
            return scale
        ones = ops.ones((photos, 1, self.annotation_width), self.compute_dtype)
        return scale * self.channel_dropout(ones, training=True)

    def dropouts(self, training) -> Dropouts:
        """Return the dropout of the decoder's layers, none outside of training."""
        if not training:
            return NO_DROPOUT
        layers = (self.dropout, self.word_dropout, self.init_dropout)
        return Dropouts(*(functools.partial(one, training=True) for one in layers))

    def call(self, inputs, training=False):
        """Run the decoder over given words (teacher forcing).

        Args:
            inputs: ``annotations`` (B, L, D) and ``tokens`` (B, T), y_0 .. y_{T-1};
                T must be known when the graph is traced. Of photos with C captions
                each, side by side, ``annotations`` may be (B / C, L, D).
            training: whether dropout is active.

        Returns:
            ``logits`` (B, T, K), ``alpha`` (B, T, L), ``beta`` (B, T). Hard attention
            in training returns R rows, ``hard.samples`` for each caption, side by side,
            and also ``context_weights`` (R, T, L), the weights of phi, and ``sampled``
            (R,), 1 where these were sampled. Outside training it uses the expected
            context, as soft attention does.
        """
        if self.hard_attention is None or not training:
            return self.teacher_force(inputs, training)
        B, T = ops.shape(inputs["tokens"])[0], number_of_words(inputs["tokens"])
        noise = self.hard_attention.sample_noise(B * self.hard.samples, T)
        outputs = self.teacher_force(
            inputs, training, noise.selection(), self.hard.samples
        )
        return {**outputs, "sampled": noise.sampled}

    def teacher_force(self, inputs, training=False, selection=SOFT, samples=1):
        """Run the decoder over given words, with a given selection of locations.

        Args:
            inputs: see :meth:`call`.
            training: whether dropout is active.
            selection: see :class:`models.lstm.fast_gradient.Selection`.
            samples: rows for each caption, side by side: R = B samples rows.

        Returns:
            ``logits`` (R, T, K), ``alpha`` (R, T, L), ``beta`` (R, T), and with
            another `selection` than SOFT ``context_weights`` (R, T, L).
        """
        tokens = inputs["tokens"]
        number_of_words(tokens)
        parts = self._parts(training)
        a = self._prepare(inputs["annotations"], training)  # (P, L, D)
        dropouts = self.dropouts(training)
        memory = self.decoder.memory(a, parts, dropouts)
        return self.decoder.read(tokens, memory, dropouts, parts, selection, samples)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Return the mean over captions of L_d, Eq. (14), or of the estimated -L_s.

        With hard attention, in training, the value is a surrogate whose gradient is
        given in :mod:`models.lstm.hard_attention`; ``doubly_stochastic`` adds the term
        of Eq. (14) there too unless it is 0.

        Args:
            x: not used.
            y: target ids, (B, T), 0 for padding.
            y_pred: from :meth:`call`.
            sample_weight: (B,), multiplies the words' term of each caption;
                self-critical training passes its advantages here. Padding is ignored.
            training: whether labels are smoothed; the loss of ``evaluate`` is not.
        """
        if "sampled" in y_pred:  # its rows are the samples of each caption
            y = ops.repeat(y, self.hard.samples, axis=0)  # (B, T) -> (R, T)
            if sample_weight is not None:
                sample_weight = ops.repeat(sample_weight, self.hard.samples, axis=0)
        mask = ops.cast(ops.not_equal(y, PAD), "float32")
        y_pred = {k: ops.cast(value, "float32") for k, value in y_pred.items()}
        parts = self._parts(training)
        words, attention = caption_losses(
            y_pred["logits"],
            y_pred["alpha"],
            y,
            mask,
            self.label_smoothing if training else 0.0,
            self.doubly_stochastic,
            parts.compiled,
        )  # (B,) or (R,) each
        length = ops.sum(mask, axis=-1)  # (B, T) -> (B,)
        present = ops.cast(length > 0, "float32")
        self.word_loss.update_state(
            words / ops.maximum(length, 1), sample_weight=length
        )
        self.attention_loss.update_state(attention, sample_weight=present)
        if self.hard_attention is not None:
            words = words + self.hard_attention.surrogate(y_pred, y, mask)
        if sample_weight is not None:
            words = words * ops.cast(sample_weight, words.dtype)
        return self.caption_mean(y, words + attention, sample_weight=present)

    def generate(self, annotations, decoding=None, seeds=None, xla=None, regions=None):
        """Generate captions of photos, see :meth:`models.generator.Generator.generate`.

        Args:
            annotations: features as stored, (N, L, D), any float type.
            decoding: DecodingSettings; by default those saved with the model.
            seeds: N seeds, one for each photo.
            xla: whether XLA compiles the search.
            regions: (N, L) in [0, 1], the part of each photo that is described.
        """
        return self.generator.generate(annotations, decoding, seeds, xla, regions)

    def get_config(self):
        """Return the arguments of :meth:`from_config` as JSON values."""
        return {
            **super().get_config(),
            "vocabulary": list(self.vocabulary.words),
            "settings": dataclasses.asdict(self.settings),
            "annotation_width": self.annotation_width,
            "grid": list(self.grid),
            "label_smoothing": self.label_smoothing,
            "doubly_stochastic": self.doubly_stochastic,
            "encoder_identity": self.encoder_identity,
            "decoding": dataclasses.asdict(self.decoding),
            "hard": dataclasses.asdict(self.hard),
            "transformer": dataclasses.asdict(self.transformer),
            "seed": self.seed,
            "convolutions": list(self.convolutions.names) if self.convolutions else [],
        }


def _scale(features, factors):
    """Return features (B, L, D) as scaled annotations, of the factors' dtype."""
    return ops.cast(features, factors.dtype) * factors


def _made(settings, given):
    """Return settings of a class, given as such, as a dictionary or as None."""
    return settings(**given) if isinstance(given, dict) else given or settings()
