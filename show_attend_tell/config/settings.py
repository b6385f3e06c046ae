"""The settings of an experiment: frozen dataclasses read from one TOML file.

An experiment is one complete file under ``experiments/``. Every table of the file is
a dataclass below; an unknown key, a missing value or a value of the wrong kind is a
:class:`ConfigError` of one line that names the file, the key and the remedy.
"""

import dataclasses
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.hard_attention import HardAttentionSettings
from show_attend_tell.runtime.errors import ConfigError

_STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True)

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=_STRICT)
class DataSettings:
    """Where photos and captions come from and which words are kept.

    Attributes:
        name: folder under the work folder that holds the prepared data; experiments
            with the same name share manifest, vocabulary and features.
        source: reader of :mod:`data_prep` that makes the manifest.
        vocabulary_size: at most this many words, special tokens included; the
            paper's 10,000.
        min_count: words seen fewer times in the training captions are dropped.
        max_words: training captions are cut to this many words (the authors' 100).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    source: Literal["flickr8k", "flickr30k", "coco", "folder", "scenes"]
    vocabulary_size: Annotated[int, Field(ge=5)] = 10_000
    min_count: Positive = 1
    max_words: Positive = 100


@dataclass(frozen=True, config=_STRICT)
class EncoderSettings:
    """The network that turns a photo into annotation vectors.

    Attributes:
        network: a class of ``keras.applications`` or ``SceneNet``, ours.
        layer: name of the layer whose output is kept (after its ReLU for VGG).
        weights: ``imagenet``, ``none`` (random, seeded), ``scenes`` (shipped with
            SceneNet) or the path of a ``.weights.h5`` file.
        image_size: side, in pixels, of the square the network sees.
        resize: ``crop`` scales the shortest side to 8/7 of ``image_size`` (256 for
            224, the paper's) and crops the centre; ``squash`` scales both sides.
        precision: ``float32``, or ``bfloat16`` where the processor multiplies it
            faster; features are stored as float16 in either case.
        mirror: also extract the mirrored training photos, which training then draws
            with probability 1/2.
        seed: of the random weights, used with ``weights = "none"`` only.
    """

    network: str = "VGG19"
    layer: str = "block5_conv4"
    weights: str = "imagenet"
    image_size: Positive = 224
    resize: Literal["crop", "squash"] = "crop"
    precision: Literal["float32", "bfloat16"] = "float32"
    mirror: bool = False
    seed: int = 0


@dataclass(frozen=True, config=_STRICT)
class ModelSettings:
    """Widths and switches of the captioner; names follow the paper.

    Attributes:
        attention: ``soft`` (deterministic, Sec. 4.2) or ``hard`` (Sec. 4.1).
        embedding_width: m. lstm_width: n. attention_width: width of f_att.
        attention_layers: dense layers on the annotations in f_att; tanh between
            them, none after the last (the authors use 2 for COCO).
        activation: of f_att, ``tanh`` as in the authors' code.
        init_layers: dense layers in each of f_init,c and f_init,h.
        selector: the gate beta. prev2out, ctx2out: terms of the deep output.
        dropout: in f_init, on h before the readout and after the readout's tanh.
        embedding_dropout: on E y (the authors use none).
        init_dropout: on mean_i a_i, which f_init reads (the authors use none there).
        channel_dropout: whole channels of the annotations, one mask per photo.
        scale_annotations: divide annotations by their standard deviation, measured
            on training photos and stored in the model (the authors do not).
        initializer: of matrices, ``normal`` is the authors' 0.01 N(0, 1), ``glorot``
            Glorot's uniform; recurrent matrices are orthogonal in both.
    """

    attention: Literal["soft", "hard"] = "soft"
    embedding_width: Positive = 512
    lstm_width: Positive = 512
    attention_width: Positive = 512
    attention_layers: Annotated[int, Field(ge=1, le=4)] = 1
    activation: Literal["tanh", "relu"] = "tanh"
    init_layers: Annotated[int, Field(ge=1, le=4)] = 1
    selector: bool = True
    prev2out: bool = True
    ctx2out: bool = True
    dropout: Rate = 0.5
    embedding_dropout: Rate = 0.0
    init_dropout: Rate = 0.0
    channel_dropout: Rate = 0.0
    scale_annotations: bool = False
    initializer: Literal["normal", "glorot"] = "normal"


@dataclass(frozen=True, config=_STRICT)
class TrainingSettings:
    """The optimiser, its schedule, and when to stop.

    Attributes:
        seed: fixes weights, order of captions and dropout on one machine.
        epochs: passes over every training caption (``cider``: photo), at most.
        objective: ``likelihood`` of the given captions (the paper's), or ``cider``: the
            reward of the model's own, see :mod:`training.self_critical`.
        init_from: a model to start from instead of random weights: a ``.keras`` file,
            or the name of an experiment whose run lies in the same folder.
        batch_size: captions per step; a batch holds captions of similar length, or
            with ``cider`` all hypotheses of ``batch_size / hypotheses`` photos.
        hypotheses: captions written for each photo, with ``cider``.
        optimizer: rmsprop (Flickr8k in the paper), adam (Flickr30k, COCO), adamw.
        schedule: ``constant``, or ``cosine`` to zero over all epochs after
            ``warmup_steps``.
        weight_decay: AdamW's. clip_norm: of the whole gradient; 0 is none.
        label_smoothing: weight moved from the true word to all words evenly.
        doubly_stochastic: lambda of Eq. (14).
        average_decay: of the running average of weights; 0 is none. Validation and
            the saved model use the average.
        patience: validations without a better score before training stops.
        metric: the validation score that chooses the model.
        validate_every: updates between validations; 0 validates after every epoch.
        checkpoint_every: updates between checkpoints, besides those at validations.
        jit_compile: whether the training step is compiled by XLA.
        precision: ``float32``, or ``bfloat16``, in which large matrices that do not
            depend on the words before are multiplied: faster where the processor has
            units for it. Weights, recurrence and loss stay float32.
    """

    seed: int = 1
    objective: Literal["likelihood", "cider"] = "likelihood"
    init_from: str = ""
    epochs: Positive = 10
    hypotheses: Annotated[int, Field(ge=2)] = 5
    batch_size: Positive = 64
    optimizer: Literal["rmsprop", "adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    weight_decay: NonNegative = 0.0
    clip_norm: NonNegative = 0.0
    label_smoothing: Rate = 0.0
    doubly_stochastic: NonNegative = 1.0
    average_decay: Rate = 0.0
    patience: Positive = 10
    metric: Literal["BLEU-4", "CIDEr"] = "BLEU-4"
    validate_every: Annotated[int, Field(ge=0)] = 0
    checkpoint_every: Positive = 1000
    jit_compile: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _check_objective(self):
        if self.objective == "cider" and self.batch_size % self.hypotheses:
            raise ValueError(
                "batch_size must be a multiple of hypotheses with objective = 'cider'. "
                f"Received: batch_size = {self.batch_size}, "
                f"hypotheses = {self.hypotheses}"
            )
        return self


@dataclass(frozen=True, config=_STRICT)
class DecodingSettings:
    """How captions are generated, by search and by sampling.

    Attributes:
        method: ``beam``, ``greedy`` (a beam of one) or ``sample`` (words are drawn).
        beam: hypotheses kept per photo, with ``beam``.
        temperature: divides log-probabilities, with ``sample``.
        max_words: the longest caption written.
        length_normalisation: exponent p of log p(y) / length**p by which finished
            hypotheses are ranked; 0 is the plain sum.
        allow_unknown: whether <unk> may be written.
        locations: what a word is written from: the ``expected`` context (all locations
            averaged by alpha, as soft attention does), the ``likeliest`` location, or
            one ``sampled`` from alpha.
        seed: seed of sampled words and sampled locations.
        validation_beam: beam used while training, for speed.
        batch_size: photos decoded at once.
    """

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam: Positive = 5
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_words: Positive = 30
    length_normalisation: NonNegative = 0.0
    allow_unknown: bool = False
    locations: Literal["expected", "likeliest", "sampled"] = "expected"
    seed: Annotated[int, Field(ge=0)] = 0
    validation_beam: Positive = 3
    batch_size: Positive = 64


@dataclass(frozen=True, config=_STRICT)
class Experiment:
    """One complete experiment, as read from ``experiments/<name>.toml``."""

    name: str
    data: DataSettings
    encoder: EncoderSettings
    model: ModelSettings
    training: TrainingSettings
    decoding: DecodingSettings
    hard: HardAttentionSettings = HardAttentionSettings()

    @model_validator(mode="after")
    def _check(self):
        if self.encoder.weights == "scenes" and self.encoder.network != "SceneNet":
            raise ValueError(
                "weights = 'scenes' must go with network = 'SceneNet'. "
                f"Received: network = {self.encoder.network!r}"
            )
        if self.training.objective == "cider" and self.model.attention == "hard":
            raise ValueError(
                "objective = 'cider' must go with attention = 'soft'. Received: "
                "attention = 'hard'; train hard attention by likelihood"
            )
        return self


def _describe(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "settings"
        if item["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            lines.append(f"{key}: unknown key, remove it or correct its spelling")
        elif item["type"] in ("missing", "missing_argument"):
            lines.append(f"{key}: missing, add it")
        elif item["type"] == "value_error":  # raised here; it tells what was received
            lines.append(f"{key}: {item['ctx']['error']}")
        else:
            lines.append(f"{key}: {item['msg']}. Received: {item['input']!r}")
    return "; ".join(lines)


def from_dict(values: dict, origin: str = "settings") -> Experiment:
    """Check plain values and return the experiment they describe.

    Args:
        values: nested tables, as ``tomllib`` returns them.
        origin: what to name in an error, usually the file.

    Raises:
        ConfigError: a key is unknown or missing, or a value does not fit.
    """
    try:
        return TypeAdapter(Experiment).validate_python(values)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_describe(error)}") from None


def to_dict(experiment: Experiment) -> dict:
    """Return the plain nested tables that :func:`from_dict` reads."""
    return dataclasses.asdict(experiment)


def load(path: str | Path) -> Experiment:
    """Read an experiment from a TOML file.

    The experiment's name is the file's name unless the file sets ``name``.

    Raises:
        ConfigError: the file is absent, not TOML, or does not fit the settings.
    """
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such settings file; the shipped ones are in experiments/"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from None
    return from_dict({"name": path.stem, **values}, str(path))


def dump(experiment: Experiment) -> str:
    """Return the resolved experiment as TOML text that :func:`load` reads back."""
    return tomli_w.dumps(to_dict(experiment))
