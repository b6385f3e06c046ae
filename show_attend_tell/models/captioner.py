"""Build, train and decode the captioner, a Keras model from annotations to sentences.

Notation and shapes: :mod:`show_attend_tell.models.lstm.attention`.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import keras
from keras import ops

from show_attend_tell.config.captioner import (
    DECODERS,
    DecodingSettings,
    HardAttentionSettings,
    ModelSettings,
    SavedConfig,
    TransformerSettings,
)
from show_attend_tell.data.vocabulary import PAD, Vocabulary
from show_attend_tell.models.decoder_interface import (
    NO_DROPOUT,
    SOFT,
    WHOLE,
    CaptionDecoder,
    CompiledParts,
    Dropouts,
)
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.losses import CaptionMean, doubly_stochastic, token_losses
from show_attend_tell.models.lstm.decoder import LstmDecoder
from show_attend_tell.models.lstm.hard_attention import HardAttention
from show_attend_tell.models.pretrained import read_preset, save_preset
from show_attend_tell.models.transformer.decoder import TransformerDecoder
from show_attend_tell.reference.captioner import EQUATIONS, layout
from show_attend_tell.reference.decoder import WeightLayout
from show_attend_tell.reference.model_file import Part, parse_config, write_captioner
from show_attend_tell.reference.tensor_file import SUFFIX

# The layer of each of config.captioner.DECODERS.
LAYERS: dict[str, type[CaptionDecoder]] = {
    "lstm": LstmDecoder,
    "transformer": TransformerDecoder,
}


@keras.saving.register_keras_serializable("show_attend_tell")
class Captioner(keras.Model):
    """Show, Attend and Tell with soft or hard attention, arXiv:1502.03044v3.

    An ordinary Keras model. ``compile(optimizer)`` needs no loss: the paper's is built
    in. ``fit``, ``evaluate`` and ``predict`` take ``x = {"annotations": (B, L, D),
    "tokens": (B, T) ids from <start> on}`` and ``y = (B, T)`` ids up to `<end>`, both
    padded with 0. Captions that contain only padding are ignored.

    Args:
        vocabulary: words in the order of their ids, special tokens first.
        settings: a ModelSettings; all settings may be dicts of their values.
        annotation_width: D.
        grid: rows and columns of the annotations; L is their product.
        label_smoothing: epsilon of :func:`models.losses.token_losses`.
        doubly_stochastic: lambda of Eq. (14).
        encoder_identity: :meth:`Encoder.identity` of the encoder whose annotations this
            model reads; part of the saved file.
        decoding: a DecodingSettings, the default of :meth:`generate`; part of the saved
            file.
        hard: a HardAttentionSettings, used by hard attention only.
        seed: seed of initial weights, dropout and sampled locations.
        transformer: a TransformerSettings, used by that decoder only.
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
        transformer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.settings = _as_settings(ModelSettings, settings)
        self.vocabulary = (
            vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary(vocabulary)
        )
        self.annotation_width = annotation_width
        self.grid = tuple(grid)
        self.label_smoothing = label_smoothing
        self.doubly_stochastic = doubly_stochastic
        self.encoder_identity = encoder_identity or {}
        self.decoding = _as_settings(DecodingSettings, decoding)
        self.hard = _as_settings(HardAttentionSettings, hard)
        self.transformer = _as_settings(TransformerSettings, transformer)
        self.seed = seed
        self.compiled_parts = None  # CompiledParts, from compile_parts
        self._compile_fn = None  # the compiler of these
        self._create_layers()
        self.generator = Generator([self])

    @classmethod
    def from_preset(cls, preset):
        """Load one of :data:`models.pretrained.PRESETS`, or a folder of a model hub.

        Raises:
            SetupError, ModelFileError: see :func:`pretrained.read_preset`.
        """
        return cls.from_saved(read_preset(preset, layout_of))

    @classmethod
    def from_saved(cls, saved):
        """Build the captioner that :func:`reference.model_file.read_captioner` read."""
        arguments = vars(saved.config) | {"encoder_identity": saved.encoder_identity}
        model = cls(**arguments)
        model.set_weights(saved.weights)
        return model

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """Save the captioner in a ``.safetensors`` file, or in a form of Keras.

        Args:
            filepath: with the ending ``.safetensors`` a file of this package, which is
                replaced atomically; otherwise see ``keras.Model.save``.
            overwrite: for Keras.
            zipped: for Keras.
            **kwargs: for Keras.
        """
        if Path(filepath).suffix == SUFFIX:
            self.save_with({}, filepath)
        else:
            super().save(filepath, overwrite, zipped, **kwargs)

    def save_with(self, parts: Mapping[str, Part], file):
        """Save the captioner and parts, such as a reranker, in one file."""
        values = self.get_config()
        config = {field.name: values[field.name] for field in fields(SavedConfig)}
        # Names are paired with weights by position: `layout` lists them in the order in
        # which Keras creates them.
        if self.settings.decoder in EQUATIONS:
            listed = layout(parse_config(config))
            _require_shapes(listed, self.weights, self.settings.decoder)
            names = [name for name, _ in listed]
        else:
            names = own_names(self.weights)
        arrays = map(ops.convert_to_numpy, self.weights)
        weights = dict(zip(names, arrays, strict=True))
        write_captioner(file, config, weights, parts)

    save_to_preset = save_preset

    def _create_layers(self):
        s = self.settings
        grid = self.grid
        seed = self.seed
        self.decoder = LAYERS[s.decoder](
            getattr(self, DECODERS[s.decoder].table),
            len(self.vocabulary),
            self.annotation_width,
            # Without attention the mean annotation is the one location.
            grid if s.attends else (1, 1),
            seed,
            name="decoder",
        )
        self.annotation_scale = self.add_weight(
            shape=(), initializer="ones", trainable=False, name="annotation_scale"
        )
        # A seed for each layer: layers of one seed and shape would drop the same units.
        dropout = keras.layers.Dropout
        self.dropout = dropout(self.decoder.dropout, seed=seed, name="dropout")
        self.word_dropout = dropout(
            s.embedding_dropout, seed=seed + 1, name="word_dropout"
        )
        self.channel_dropout = dropout(
            s.channel_dropout, seed=seed + 2, name="channel_dropout"
        )
        self.init_dropout = dropout(s.init_dropout, seed=seed + 3, name="init_dropout")
        # After the decoder: its baseline is the last weight of a file.
        self.hard_attention = None
        if s.attention == "hard":
            self.hard_attention = HardAttention(
                self.hard, seed + 4, name="hard_attention"
            )
        self.caption_mean = CaptionMean()
        self.word_loss = keras.metrics.Mean(name="word_loss")
        self.attention_loss = keras.metrics.Mean(name="attention_loss")
        # All weights exist, so that `set_weights` works before the first call.
        self.built = True

    def set_annotation_scale(self, deviation):
        """Divide annotations by `deviation`, above 0; the scale is a saved weight."""
        self.annotation_scale.assign(1.0 / deviation)

    def set_alpha_layer(self, layer, head=0):
        """Let alpha be the attention of a layer and head of a Transformer from now on.

        Args:
            layer: number of the layer, from 1; 0 for the last.
            head: number of the head, from 1; 0 for the mean over the heads.

        Raises:
            ValueError: there is no such layer or head, or the decoder has none.
        """
        if self.settings.decoder != "transformer":
            raise ValueError(
                "`decoder` must be 'transformer', whose attention has heads. Received: "
                f"{self.settings.decoder!r}, whose alpha is its only attention; load a "
                "Transformer"
            )
        self.transformer = dataclasses.replace(
            self.transformer, alpha_layer=layer, alpha_head=head
        )
        # The decoder has a reference of its own to the settings that were replaced.
        self.decoder.settings = self.transformer
        self.generator.forget_searches()

    def attention_heads(self, annotations, tokens, bias=None):
        """Return the attention of each layer and head at the words of captions.

        Args:
            annotations: features as stored, (N, L, D).
            tokens: y_0 .. y_{T-1}, (N, T).
            bias: (N, T, L), see :func:`reference.lstm.region_bias`, or None.

        Returns:
            An array (N, layers, H, T, L), or None if the decoder has no heads.
        """
        memory = self.decoder.memory(self.scaled_annotations(annotations))
        weights = self.decoder.head_weights(tokens, memory, bias)
        if weights is None:
            return None
        return ops.convert_to_numpy(self.alpha_of_locations(weights))

    def compile_parts(self, compile_fn, precision="float32", recurrence="float32"):
        """Compile parts of the training step, leaving large products to TensorFlow.

        On a CPU TensorFlow's own matrix products are faster than XLA's, and use the
        processor's units for bfloat16. Further calls with the same compiler keep the
        parts that it has compiled.

        Args:
            compile_fn: compiles the parts that XLA does better; None if the caller
                compiles the whole step.
            precision: dtype of the large products.
            recurrence: dtype of the LSTM's recurrence, see
                :func:`models.lstm.fast_gradient.unroll`; the Transformer has none.
        """
        if self.compiled_parts is None or self._compile_fn is not compile_fn:
            self._compile_fn = compile_fn
            compiled_once = None
            if compile_fn is not None:
                # Each call of the model asks for its parts anew; equal functions share
                # one compiled function.
                compiled_once = functools.cache(compile_fn)
            self.compiled_parts = CompiledParts(compiled_once)
        self.compiled_parts = self.compiled_parts._replace(
            precision=precision, recurrence=recurrence
        )

    def _parts(self, training) -> CompiledParts:
        if training and self.compiled_parts is not None:
            return self.compiled_parts
        return WHOLE

    def scaled_annotations(self, features, training=False):
        """Return a (B, L, D), the scaled annotations of stored features.

        Without attention their mean is the one location, (B, 1, D).
        """
        # The factors are drawn outside of the compiled part, in which XLA would draw
        # the noise again for each location.
        factors = self._factors(ops.shape(features)[0], training)
        a = self._parts(training).compiled(_scale)(features, factors)  # (B, L, D)
        return a if self.settings.attends else ops.mean(a, axis=1, keepdims=True)

    def alpha_of_locations(self, alpha):
        """Return alpha of all L locations; without attention (..., 1) -> (..., L)."""
        if self.settings.attends:
            return alpha
        L = self.grid[0] * self.grid[1]
        return ops.repeat(alpha, L, axis=-1) / L

    def _factors(self, photos, training):
        """Return what annotations are multiplied by, () or (photos, 1, D)."""
        scale = ops.reshape(self.annotation_scale, ())  # a tensor, not a variable
        scale = ops.cast(scale, self.compute_dtype)
        if not training or not self.settings.channel_dropout:
            return scale
        # One mask per photo, shared by its locations: dropout of ones leaves the
        # factors 0 and 1 / (1 - rate).
        ones = ops.ones((photos, 1, self.annotation_width), self.compute_dtype)
        return scale * self.channel_dropout(ones, training=True)

    def dropouts(self, training) -> Dropouts:
        """Return the dropout of the decoder's layers, none outside of training."""
        if not training:
            return NO_DROPOUT
        return Dropouts(
            hidden=functools.partial(self.dropout, training=True),
            words=functools.partial(self.word_dropout, training=True),
            initial=functools.partial(self.init_dropout, training=True),
        )

    def call(self, inputs, training=False):
        """Run the decoder over the words of captions (teacher forcing).

        Args:
            inputs: ``annotations`` (B, L, D) and ``tokens`` (B, T), y_0 .. y_{T-1};
                T must be known when the graph is traced. Of photos with C captions
                each, side by side, ``annotations`` may be (B / C, L, D) with a decoder
                that shares photos.
            training: whether dropout is active.

        Returns:
            ``logits`` (B, T, K), ``alpha`` (B, T, L), ``beta`` (B, T). Hard attention
            in training returns R rows, ``hard.samples`` for each caption, side by side,
            and also ``context_weights`` (R, T, L), the weights of phi, and ``sampled``
            (R,), 1 where these were sampled. Outside training it uses the expected
            context, as soft attention does.
        """
        shape = inputs["tokens"].shape
        if shape[1] is None:
            raise ValueError(
                "`tokens` must have a known number of words T. Received: "
                f"shape {tuple(shape)}; pad every batch to a fixed T"
            )
        if self.hard_attention is None or not training:
            return self.teacher_force(inputs, training)
        rows = ops.shape(inputs["tokens"])[0] * self.hard.samples
        noise = self.hard_attention.sample_noise(rows, shape[1])
        outputs = self.teacher_force(
            inputs, training, noise.selection(), self.hard.samples
        )
        return {**outputs, "sampled": noise.sampled}

    def teacher_force(self, inputs, training=False, selection=SOFT, samples=1):
        """Run the decoder with a choice of locations, see :meth:`call`.

        Args:
            inputs: see :meth:`call`.
            training: whether dropout is active.
            selection: the choice of locations; outputs have ``context_weights`` with
                any other than SOFT.
            samples: rows for each caption, side by side: R = B samples rows.
        """
        parts = self._parts(training)
        dropouts = self.dropouts(training)
        a = self.scaled_annotations(inputs["annotations"], training)  # (P, L, D)
        memory = self.decoder.memory(a, parts, dropouts)
        outputs = self.decoder.read(
            inputs["tokens"], memory, dropouts, parts, selection, samples
        )
        return {**outputs, "alpha": self.alpha_of_locations(outputs["alpha"])}

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Return the mean over captions of L_d, Eq. (14), or of the estimated -L_s.

        With hard attention the value in training is a surrogate with the gradient of
        :mod:`models.lstm.hard_attention`, and the term of Eq. (14) is added to it.

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
        smoothing = self.label_smoothing if training else 0.0
        losses = token_losses(y_pred["logits"], y, smoothing, parts.compiled)
        # Both terms of L_d, of each caption: (B,), or (R,)
        word_loss = ops.sum(losses * mask, axis=-1)
        attention_loss = doubly_stochastic(y_pred["alpha"], mask)
        attention_loss = self.doubly_stochastic * attention_loss
        # Metrics. Weighted by its length, a caption's mean per word counts as often as
        # it has words, so that `word_loss` is the mean over all words of an epoch.
        length = ops.sum(mask, axis=-1)  # (B, T) -> (B,)
        present = ops.cast(length > 0, "float32")
        self.word_loss.update_state(
            word_loss / ops.maximum(length, 1), sample_weight=length
        )
        self.attention_loss.update_state(attention_loss, sample_weight=present)
        # After the metric, which must not contain the surrogate.
        if self.hard_attention is not None:
            word_loss = word_loss + self.hard_attention.surrogate(y_pred, y, mask)
        if sample_weight is not None:
            word_loss = word_loss * ops.cast(sample_weight, word_loss.dtype)
        loss = word_loss + attention_loss
        # Captions of padding alone have weight 0: a batch filled up with them has the
        # mean of the others.
        return self.caption_mean(y, loss, sample_weight=present)

    def generate(self, annotations, decoding=None, seeds=None, regions=None, **options):
        """Call :meth:`reference.generator.Generator.generate` with this model alone."""
        return self.generator.generate(annotations, decoding, seeds, regions, **options)

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
        }


def layout_of(config: SavedConfig) -> list[WeightLayout]:
    """Return the name and shape of each weight, also of decoders without equations."""
    if config.settings.decoder in EQUATIONS:
        return layout(config)
    # Only the layers know their weights: a captioner is built to list them.
    weights = Captioner(**(vars(config) | {"encoder_identity": {}})).weights
    shapes = [tuple(weight.shape) for weight in weights]
    return list(zip(own_names(weights), shapes, strict=True))


def own_names(weights) -> list[str]:
    """Return names of weights in a file: their own, numbered where several are equal.

    Paths of Keras would number unnamed layers over all models of a process.
    """
    names = []
    seen = Counter()
    for weight in weights:
        number = seen[weight.name]
        names.append(f"{weight.name}_{number}" if number else weight.name)
        seen[weight.name] += 1
    return names


def _require_shapes(listed: list[WeightLayout], weights, decoder: str) -> None:
    """Raise a ValueError at the first weight that the equations list otherwise."""
    # NumPy would refuse the file later, or give weights each other's names.
    own = [(weight.name, tuple(weight.shape)) for weight in weights]
    for theirs, ours in itertools.zip_longest(listed, own):
        if theirs is None or ours is None or theirs[1] != ours[1]:
            raise ValueError(
                f"`layout` of reference/{decoder}.py must list the weights of the "
                "decoder's layer, in their order. Received: "
                f"{theirs or 'no more'}, where the layer has {ours or 'no more'}"
            )


# A function of the module, as `compile_parts` compiles equal functions once.
def _scale(features, factors):
    """Return features (B, L, D) as scaled annotations, of the factors' dtype."""
    return ops.cast(features, factors.dtype) * factors


def _as_settings(kind, values):
    """Return settings of a class, from an instance, a dictionary or None."""
    if values is None:
        return kind()
    return kind(**values) if isinstance(values, dict) else values
