"""Define the tables of an experiment that a captioner's file holds too.

They describe the encoder, the decoder, hard attention and the generation of captions.
"""

import dataclasses
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import FailFast, Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config import MAX_BEAM, MIN_TEMPERATURE
from show_attend_tell.config.fields import (
    STRICT,
    Count,
    NonNegative,
    Positive,
    Rate,
    Seed,
)

# Limits of memory and time: a model file states these values too.
ImageSize = Annotated[int, Field(ge=1, le=640)]
Beam = Annotated[int, Field(ge=1, le=MAX_BEAM)]


@dataclass(frozen=True, config=STRICT)
class EncoderSettings:
    """The network that computes annotation vectors of a photo.

    Attributes:
        network: a class of ``keras.applications``, or ``SceneNet`` of this package.
        layer: name of the layer whose output is stored (after its ReLU for VGG).
        weights: ``imagenet`` (downloaded), ``imagenet_8bit`` (of VGG16, packaged),
            ``scenes`` (of SceneNet, packaged), ``none`` (random, seeded) or the path
            of a ``.safetensors`` file.
        image_size: side, in pixels, of the network's square input.
        resize: ``crop`` scales the shortest side to 8/7 of ``image_size`` (256 for
            224, the paper's) and crops the centre; ``squash`` scales both sides.
        precision: ``float32``, ``bfloat16``, or ``auto``, which is bfloat16 on a
            graphics processor and on a processor with matrix units for it (AMX), and
            float32 elsewhere; features are stored as float16 in either case.
        mirror: whether to extract mirrored training photos too, which training then
            samples with probability 1/2.
        seed: seed of the random weights, used with ``weights = "none"`` only.
    """

    network: str = "VGG19"
    layer: str = "block5_conv4"
    weights: str = "imagenet"
    image_size: ImageSize = 224
    resize: Literal["crop", "squash"] = "crop"
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    mirror: bool = False
    seed: Seed = 0


class Decoder(NamedTuple):
    """The properties of a decoder that settings and captioners depend on."""

    title: str  # in a sentence
    # field of SavedConfig that holds its widths and switches: ``settings`` is the table
    # [model] of an experiment, others have the name of their table
    table: str
    selects_locations: bool  # whether a word's context may be one location
    unused: frozenset[str] = frozenset()  # keys of [model] without effect


# By the names that ``model.decoder`` takes.
DECODERS = {
    "lstm": Decoder("An LSTM", "settings", selects_locations=True),
    "transformer": Decoder(
        "A Transformer",
        "transformer",
        selects_locations=False,
        unused=frozenset(
            "embedding_width lstm_width attention_width attention_layers activation "
            "fast_gradient init_layers selector prev2out ctx2out dropout init_dropout "
            "initializer".split()
        ),
    ),
}


def unread_tables(decoder: str) -> dict[str, str]:
    """Return the tables that other decoders alone read, each with one of these."""
    shared = ("settings", DECODERS[decoder].table)
    return {
        other.table: name
        for name, other in DECODERS.items()
        if other.table not in shared
    }


# Type checkers do not know an unpacked Literal.
if TYPE_CHECKING:
    DecoderName: TypeAlias = str
else:
    DecoderName = Literal[*DECODERS]


@dataclass(frozen=True, config=STRICT)
class ModelSettings:
    """The widths and switches of the captioner; names follow the paper.

    Attributes:
        decoder: ``lstm`` (the paper's), or ``transformer``, with the settings of
            ``[transformer]`` in place of the widths and switches below.
        attention: ``soft`` (deterministic, Sec. 4.2) or ``hard`` (Sec. 4.1); without
            attention ``mean``, whose context at every word is the mean annotation, or
            ``none``, whose LSTM reads the mean annotation once, as its first input.
        embedding_width: m. lstm_width: n. attention_width: width of f_att.
        attention_layers: dense layers on the annotations in f_att; tanh between
            them, none after the last (the authors use 2 for COCO).
        activation: activation of f_att's hidden layer, and between
            ``attention_layers``: ``tanh``, the authors', or ``relu``.
        fast_gradient: whether training runs the steps of
            :mod:`show_attend_tell.models.lstm.fast_gradient`, whose gradient is written
            by hand for tanh, and Keras' search computes tanh from exponentials. With
            false, and with ``relu``, both run ``LstmDecoder.step`` as it is written.
        init_layers: dense layers in each of f_init,c and f_init,h; with 0, c_0 and h_0
            are zero.
        selector: whether there is a gate beta.
        prev2out: whether the deep output has a term of the previous word.
        ctx2out: whether the deep output has a term of the context.
        dropout: rate in f_init, on h before the readout and after the readout's tanh.
        embedding_dropout: rate on E y (the authors use none).
        init_dropout: rate on mean_i a_i, the input of f_init (the authors use none).
        channel_dropout: rate at which whole channels of the annotations are dropped,
            one mask per photo.
        scale_annotations: whether to divide annotations by their standard deviation,
            measured on training photos and stored in the model (the authors do not).
        initializer: initializer of matrices: ``normal`` is the authors' 0.01 N(0, 1),
            ``glorot`` Glorot's uniform; recurrent matrices are orthogonal in both.
    """

    decoder: DecoderName = "lstm"
    attention: Literal["soft", "hard", "mean", "none"] = "soft"
    embedding_width: Positive = 512
    lstm_width: Positive = 512
    attention_width: Positive = 512
    attention_layers: Annotated[int, Field(ge=1, le=4)] = 1
    activation: Literal["tanh", "relu"] = "tanh"
    fast_gradient: bool = True
    init_layers: Annotated[int, Field(ge=0, le=4)] = 1
    selector: bool = True
    prev2out: bool = True
    ctx2out: bool = True
    dropout: Rate = 0.5
    embedding_dropout: Rate = 0.0
    init_dropout: Rate = 0.0
    channel_dropout: Rate = 0.0
    scale_annotations: bool = False
    initializer: Literal["normal", "glorot"] = "normal"

    @property
    def has_fast_gradient(self) -> bool:
        """Whether the gradient written by hand serves these settings."""
        return self.fast_gradient and self.activation == "tanh"

    @property
    def attends(self) -> bool:
        """Whether each word weighs the locations; otherwise the decoder reads one."""
        return self.attention in ("soft", "hard")

    @property
    def selects_locations(self) -> bool:
        """Whether the context of a word may be one location."""
        return self.attends and DECODERS[self.decoder].selects_locations

    @model_validator(mode="after")
    def _check_decoder(self) -> Self:
        decoders = list(DECODERS)
        if self.attention == "hard":
            decoders = [name for name in DECODERS if DECODERS[name].selects_locations]
        elif self.attention == "none":  # the LSTM's first input
            decoders = ["lstm"]
        if self.decoder not in decoders:
            raise ValueError(
                f"attention = {self.attention!r} must go with decoder = "
                f"{' or '.join(map(repr, decoders))}. Received: decoder = "
                f"{self.decoder!r}; its attention is 'soft' or 'mean'"
            )
        return self


def require_samples(settings: "HardAttentionSettings") -> "HardAttentionSettings":
    """Raise ValueError if a baseline of other samples has a single sample."""
    if settings.baseline == "samples" and settings.samples < 2:
        raise ValueError(
            "baseline = 'samples' needs samples = 2 or more. "
            f"Received: samples = {settings.samples}"
        )
    return settings


@dataclass(frozen=True, config=STRICT)
class HardAttentionSettings:
    """The training of hard attention, Sec. 4.1.

    The defaults are the constants of the paper's equation and of the authors' code. In
    that code they weigh more, because only the likelihood is averaged over the batch;
    ``flickr8k_hard_authors`` has its weights in the units of this program.

    Used with ``model.attention = "hard"`` only. The equation is in
    :mod:`show_attend_tell.models.lstm.hard_attention`.

    Attributes:
        entropy_weight: lambda_e, weight of the entropy of alpha.
        reinforce_weight: lambda_r, weight of the score-function term.
        reward_per: reward of a location: log p(y|s~) - b of the whole ``caption`` (the
            paper's equation), ``caption_mean``, the mean of log p(y_t|s~) - b over the
            caption's words (the authors' code), or log p(y_t|s~) - b summed from the
            ``word`` of the location on. In the last two b is the average of a word.
        reward_scale: factor of the reward; 1/10 in the authors' code, where
            ``reinforce_weight`` is the batch size.
        baseline: b: ``moving``, the average of earlier batches (the paper's), or
            ``samples``, log p of the same words in the caption's other samples, which
            needs two samples or more.
        baseline_decay: decay of the moving average b.
        samples: location sequences sampled per caption; multiplies the batch size.
        sampling_probability: probability that s~ is sampled and not replaced by its
            expected value alpha. 1 always samples.
        drawn_per: unit for which sampling or replacement is decided: the whole
            ``minibatch`` (the authors' code), or each ``caption`` and sample.
    """

    entropy_weight: NonNegative = 0.002
    reinforce_weight: NonNegative = 1.0
    reward_per: Literal["caption", "caption_mean", "word"] = "caption"
    reward_scale: Annotated[float, Field(gt=0)] = 0.1
    baseline: Literal["moving", "samples"] = "moving"
    baseline_decay: Rate = 0.9
    samples: Positive = 1
    sampling_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    drawn_per: Literal["minibatch", "caption"] = "minibatch"

    # A function, because settings of digits use it too.
    _check_baseline = model_validator(mode="after")(require_samples)


@dataclass(frozen=True, config=STRICT)
class TransformerSettings:
    """The widths and switches of the decoder with ``model.decoder = "transformer"``.

    The equations are in :mod:`show_attend_tell.models.transformer.decoder`. Of the
    table ``[model]`` it uses ``embedding_dropout``, ``channel_dropout`` and
    ``scale_annotations``.

    Attributes:
        layers: N. width: d, a multiple of 4 and of ``heads``. heads: H.
        hidden: width of the feed-forward layers.
        dropout: rate on the embedded words with their positions, and on the output of
            each sublayer before it is added.
        norm: position of the layer normalisation: ``pre``, before each sublayer and
            after the last layer, or ``post``, after each sum (the paper's), which needs
            ``training.warmup_steps``.
        encoder_layers: layers of self-attention over the photo's locations; 0 for
            none.
        positions: ``grid`` adds sines of row and column to each location; ``none``
            leaves the order of locations unknown.
        tie_output: whether the matrix of the output is the transpose of E.
        alpha_layer: number of the layer, from 1, whose attention on the photo is
            alpha; 0 for the last layer.
        alpha_head: number of that layer's head, from 1, whose attention is alpha; 0
            for the mean over its heads.
    """

    layers: Annotated[int, Field(ge=1, le=100)] = 3
    width: Positive = 256
    heads: Positive = 4
    hidden: Positive = 1024
    dropout: Rate = 0.3
    norm: Literal["pre", "post"] = "pre"
    encoder_layers: Annotated[int, Field(ge=0, le=100)] = 0
    positions: Literal["grid", "none"] = "grid"
    tie_output: bool = True
    alpha_layer: Count = 0
    alpha_head: Count = 0

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.width % self.heads or self.width % 4:
            raise ValueError(
                "width must be a multiple of heads and of 4. Received: "
                f"width = {self.width}, heads = {self.heads}"
            )
        if self.alpha_layer > self.layers or self.alpha_head > self.heads:
            raise ValueError(
                "alpha_layer must be at most layers, and alpha_head at most heads. "
                f"Received: alpha_layer = {self.alpha_layer}, layers = {self.layers}, "
                f"alpha_head = {self.alpha_head}, heads = {self.heads}"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class DecodingSettings:
    """The generation of captions, by search and by sampling.

    Attributes:
        method: ``beam``, ``greedy`` (a beam of one) or ``sample`` (sampled words).
        beam: hypotheses kept per photo, with ``beam``.
        temperature: divisor of log-probabilities, at least 0.001, with ``sample``.
        max_words: maximum number of words in a caption.
        length_normalisation: exponent p of log p(y) / length**p by which finished
            hypotheses are ranked; 0 is the plain sum.
        allow_unknown: whether captions may contain `<unk>`.
        locations: context of a word: ``expected`` (all locations averaged by alpha,
            as in soft attention), ``likeliest`` (the location of the largest alpha),
            or ``sampled`` (one location sampled from alpha).
        seed: seed of sampled words and sampled locations.
        region_strength: s of :func:`reference.lstm.region_bias`; 0 ignores
            regions.
        region_words: words written from a region, 0 for all; then from the whole photo.
        rerank_weight: w of :mod:`reference.reranker`, with a reranker only.
        validation_beam: beam at validations during training, smaller for speed.
        batch_size: photos decoded together.
    """

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam: Beam = 5
    temperature: Annotated[float, Field(ge=MIN_TEMPERATURE)] = 1.0
    max_words: Annotated[int, Field(ge=1, le=200)] = 30
    length_normalisation: NonNegative = 0.0
    allow_unknown: bool = False
    locations: Literal["expected", "likeliest", "sampled"] = "expected"
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    region_strength: NonNegative = 2.0
    region_words: Count = 4
    rerank_weight: NonNegative = 25.0
    validation_beam: Beam = 3
    batch_size: Positive = 64

    @property
    def words_from_region(self) -> int:
        """The number of words written from a region."""
        return self.region_words or self.max_words


def static_settings(decoding: DecodingSettings) -> DecodingSettings:
    """Return the settings that are compiled into a search; the others are inputs.

    A beam of one is greedy, and only a beam ranks by length.
    """
    if decoding.method == "beam" and decoding.beam == 1:
        decoding = replace(decoding, method="greedy")
    if decoding.method != "beam":
        decoding = replace(decoding, beam=1, length_normalisation=0.0)
    # Inputs of the compiled function have one value, so that settings compare equal.
    default = DecodingSettings()
    return replace(
        decoding,
        temperature=default.temperature,
        seed=default.seed,
        region_strength=default.region_strength,
        region_words=default.region_words,
        rerank_weight=default.rerank_weight,
        validation_beam=default.validation_beam,
        batch_size=default.batch_size,
    )


_Rows = Annotated[int, Field(ge=1, le=100)]
_Grid = tuple[_Rows, _Rows]
_Texts = Annotated[dict[str, str], Field(max_length=100)]


# The types of the settings in a model file. Keys that a file lacks have these defaults;
# keys of later versions are ignored: these are plain dataclasses, while pydantic's with
# STRICT refuse unknown keys.
@dataclasses.dataclass
class SavedIdentity:
    """The identity of the encoder, see ``Encoder.identity``."""

    network: str = ""
    layer: str = ""
    # No folder, and no "..".
    weights: Annotated[str, Field(pattern=r"^[^/\\\x00]*[^/\\\x00.][^/\\\x00]*$")] = (
        "none"
    )
    weights_digest: str = ""
    image_size: ImageSize = 1
    resize: Literal["crop", "squash"] = "crop"
    preprocessing: str = ""
    grid: _Grid = (1, 1)
    width: Positive = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: Seed = 0
    versions: _Texts = field(default_factory=dict)
    accepts: _Texts = field(default_factory=dict)


@dataclasses.dataclass
class SavedConfig:
    """The arguments of a Captioner."""

    # The first fault is enough: a damaged file would have one for each word.
    vocabulary: Annotated[list[str], FailFast()]
    settings: ModelSettings = field(default_factory=ModelSettings)
    annotation_width: Positive = 512
    grid: _Grid = (14, 14)
    label_smoothing: Rate = 0.0
    doubly_stochastic: NonNegative = 0.0
    encoder_identity: SavedIdentity = field(default_factory=SavedIdentity)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    hard: HardAttentionSettings = field(default_factory=HardAttentionSettings)
    transformer: TransformerSettings = field(default_factory=TransformerSettings)
    seed: Seed = 0
