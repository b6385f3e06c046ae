"""Define the settings of an experiment and read them from one TOML file.

An experiment is one complete file in ``experiments/``. Every table of the file is a
frozen dataclass below. An unknown key, a missing value or a value of the wrong type
raises a :class:`ConfigError` of one line that names the file, the key and the remedy.
"""

import dataclasses
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias

import tomli_w
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config import MAX_BEAM, MIN_TEMPERATURE
from show_attend_tell.config.captioner import (
    DecodingSettings,
    EncoderSettings,
    HardAttentionSettings,
    ModelSettings,
    TransformerSettings,
)
from show_attend_tell.config.fields import (
    STRICT,
    Name,
    NonNegative,
    OptimiserSettings,
    Positive,
    Rate,
)
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import ConfigError, nearest, one_line, quote
from show_attend_tell.runtime.untrusted import read_text_bytes

Tables: TypeAlias = dict[str, Any]  # of TOML, nested

# A run of dotted keys takes quadratic time.
_LONGEST_TEXT = 2**16  # characters
_LONGEST_LINE = 2**13

# Errors of parsing: a TOMLDecodeError, an integer of too many digits or a text that is
# not UTF-8 (ValueError), and lists that are nested too deeply.
TOML_ERRORS = (ValueError, RecursionError)
_MOST_FAULTS = 5  # faults that one message names


@dataclass(frozen=True, config=STRICT)
class DataSettings:
    """The source of photos and captions, and the size of the vocabulary.

    Attributes:
        name: subfolder of the work folder that holds the prepared data; experiments
            with the same name share manifest, vocabulary and features.
        source: reader of :mod:`data_prep` that makes the manifest.
        vocabulary_size: maximum number of words, special tokens included (the paper's
            10,000).
        min_count: words that occur fewer times in the training captions are dropped.
        max_words: training captions are cut to this many words (the authors' 100).
        punctuation: ``drop``, or ``keep``: words are the tokens of the files (the
            authors'), so that the captioner learns to write the final period.
        also: further prepared data sets, read together with ``name`` as one. The value
            of each is its weight: how many times an epoch shows each of its training
            captions (0.5: half of them, chosen anew). An epoch shows each caption
            of ``name`` once. A reranker is fitted with the same weights.
    """

    name: Name
    source: Literal[
        "flickr8k", "flickr30k", "coco", "karpathy", "folder", "everyday", "scenes"
    ]
    vocabulary_size: Annotated[int, Field(ge=5, lt=2**31)] = 10_000
    min_count: Positive = 1
    max_words: Positive = 100
    punctuation: Literal["drop", "keep"] = "drop"
    also: dict[Name, Annotated[float, Field(gt=0, le=1000)]] = field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _check_also(self) -> Self:
        if self.name in self.also:
            raise ValueError(
                f"data.also must name data sets other than data.name, {self.name!r}; "
                "leave it out"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class TrainingSettings(OptimiserSettings):
    """The objective, and the training by it.

    :class:`OptimiserSettings` describes the other keys.

    Attributes:
        objective: ``likelihood`` (the paper's), ``cider`` or ``distil``, see
            :mod:`show_attend_tell.training`.
        init_from: model to start from instead of random weights: a ``.safetensors``
            file, ``shipped`` or ``shipped-lstm``, the package's Transformer and LSTM,
            or the name of an experiment whose run is in the same folder.
        epochs: maximum passes over every training caption (``cider``: photo).
        hypotheses: captions generated per photo by beam search, with ``cider``.
        reward_bleu: weight of BLEU-4 beside CIDEr, with ``cider``.
        people_penalty: subtracted from the reward, with ``cider``, if a caption names
            people and no caption of the photo does.
        batch_size: captions per step, of all workers together; a batch holds captions
            of similar length, or with ``cider`` all hypotheses of ``batch_size /
            hypotheses`` photos.
        optimizer: rmsprop (Flickr8k in the paper), adam (Flickr30k, COCO), adamw.
        label_smoothing: weight moved from the true word to all words evenly; 0 with
            ``cider``.
        doubly_stochastic: lambda of Eq. (14).
        initial_share: share w of the initial model's weights in the model that is
            validated and saved, w W_0 + (1 - w) W, with ``init_from`` (WiSE-FT); the
            average is then debiased and does not start at W_0.
        metric: validation score that selects the model.
        precision: ``float32``, or ``bfloat16`` for products of large matrices that do
            not depend on earlier words, and on JAX for the products of the LSTM's
            recurrence too; faster where the processor has units for it. Weights and
            loss stay float32.
    """

    objective: Literal["likelihood", "cider", "distil"] = "likelihood"
    init_from: str = ""
    # Each update searches with a beam of so many.
    hypotheses: Annotated[int, Field(ge=2, le=MAX_BEAM)] = 5
    reward_bleu: NonNegative = 0.0
    people_penalty: NonNegative = 0.0
    label_smoothing: Rate = 0.0
    doubly_stochastic: NonNegative = 1.0
    initial_share: Rate = 0.0
    metric: Literal["BLEU-4", "CIDEr"] = "BLEU-4"
    precision: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if self.objective == "cider" and self.batch_size % self.hypotheses:
            raise ValueError(
                "batch_size must be a multiple of hypotheses with objective = 'cider'. "
                f"Received: batch_size = {self.batch_size}, "
                f"hypotheses = {self.hypotheses}"
            )
        if self.objective == "cider" and self.label_smoothing:
            raise ValueError(
                "label_smoothing must be 0 with objective = 'cider', whose words are "
                f"not given. Received: label_smoothing = {self.label_smoothing}"
            )
        if self.objective != "cider" and (self.reward_bleu or self.people_penalty):
            raise ValueError(
                "reward_bleu and people_penalty need objective = 'cider'. Received: "
                f"objective = {self.objective!r}"
            )
        if self.initial_share and not self.init_from:
            raise ValueError(
                "initial_share needs a model in init_from. Received: initial_share = "
                f"{self.initial_share}, init_from = ''"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class DistillationSettings:
    """The teachers and the loss of ``training.objective = "distil"``.

    The equation is in :mod:`show_attend_tell.training.distillation`.

    Attributes:
        teachers: models whose mean word probabilities are learnt: ``.safetensors``
            files, names of experiments whose runs are in the same folder, ``shipped``
            or ``shipped-lstm``.
        temperature: divisor of the logits of teachers and student, at least 0.001.
        truth_weight: weight, 0 to 1, of the likelihood of the training captions; the
            teachers have the remaining weight.
        posterior: exponent of a teacher's probability of a caption in its
            weight for that caption; 0 weighs all teachers the same.
        attention: weight mu of the teachers' attention; 0 teaches words alone.
    """

    teachers: tuple[str, ...] = ()
    temperature: Annotated[float, Field(ge=MIN_TEMPERATURE)] = 1.0
    truth_weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    posterior: NonNegative = 0.0
    attention: NonNegative = 0.0


@dataclass(frozen=True, config=STRICT)
class Experiment:
    """One complete experiment, as read from ``experiments/<name>.toml``."""

    task: ClassVar[str] = "caption"
    name: Name
    data: DataSettings
    encoder: EncoderSettings
    model: ModelSettings
    training: TrainingSettings
    decoding: DecodingSettings
    hard: HardAttentionSettings = HardAttentionSettings()
    distillation: DistillationSettings = DistillationSettings()
    transformer: TransformerSettings = TransformerSettings()

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        objective = self.training.objective
        teachers = self.distillation.teachers
        if objective != "likelihood" and self.model.attention == "hard":
            raise ValueError(
                f"objective = {objective!r} must go with attention = 'soft'. Received: "
                "attention = 'hard'; train hard attention by likelihood"
            )
        if (objective == "distil") != bool(teachers):
            raise ValueError(
                "distillation.teachers must name models if, and only if, objective = "
                f"'distil'. Received: objective = {objective!r}, "
                f"teachers = {list(teachers)}"
            )
        locations = self.decoding.locations
        if locations != "expected" and not self.model.selects_locations:
            raise ValueError(
                "decoding.locations must be 'expected' with decoder = "
                f"{self.model.decoder!r} and attention = {self.model.attention!r}. "
                f"Received: {locations!r}"
            )
        return self


class AnyExperiment(Protocol):
    """What the settings of an experiment have, whatever its task.

    Attributes:
        name: name of the run folder.
        task: the kind of experiment; its settings are :class:`Experiment`, or those of
            a plug-in's :class:`runtime.plugins.Task`.
        data: the table ``[data]``, with ``name`` and ``source``.
        training: the table ``[training]``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def task(self) -> str: ...  # noqa: D102

    @property
    def data(self) -> Any: ...  # noqa: D102

    @property
    def training(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True, config=STRICT)
class PlainData:
    """The table ``[data]`` of a task without settings of its own."""

    name: Name
    source: str


@dataclass(frozen=True, config=STRICT)
class PlainExperiment:
    """An experiment of a plug-in's task without settings of its own."""

    name: Name
    task: str
    data: PlainData
    training: OptimiserSettings = OptimiserSettings()

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        known = plugins.tasks()[self.task].prepare
        if self.data.source not in known:
            raise ValueError(
                f"data.source must be {' or '.join(map(repr, known))}. Received: "
                f"{quote(self.data.source)}; correct it"
            )
        return self


def _tables_of(task: object, origin: str) -> type:
    """Return the dataclass of a task's settings."""
    if task == Experiment.task:
        return Experiment
    tasks = plugins.tasks()
    if not isinstance(task, str) or task not in tasks:
        known = map(repr, (Experiment.task, *tasks))
        raise ConfigError(
            f"{origin}: task: must be {' or '.join(known)}. Received: {quote(task)}"
        )
    settings_of_task = tasks[task].settings
    if settings_of_task is None:
        return PlainExperiment
    tables = settings_of_task()
    # Any other dataclass ignores misspelt keys.
    if getattr(tables, "__pydantic_config__", {}).get("extra") != "forbid":
        raise ConfigError(
            f"{origin}: the settings of the task {task!r} must be a dataclass of "
            "pydantic with config=STRICT of show_attend_tell.config.fields. Received: "
            f"{tables.__name__}; correct the plug-in"
        )
    return tables


def experiment_from_dict(values: Tables, origin: str = "settings") -> AnyExperiment:
    """Validate nested tables and return their experiment.

    Args:
        values: nested tables, as ``tomllib`` returns them; the key ``task`` chooses
            the tables, by default the tables of captions.
        origin: source of the values named in an error, usually the file.

    Raises:
        ConfigError: a key is unknown or missing, or a value is out of range.
    """
    tables = _tables_of(values.get("task", Experiment.task), origin)
    if tables is Experiment:  # whose resolved settings have no such key
        values = {key: value for key, value in values.items() if key != "task"}
    try:
        adapter: TypeAdapter[AnyExperiment] = TypeAdapter(tables)
        experiment = adapter.validate_python(values)
        # That takes true for 1 and "3" for 3. Strict it would also refuse dictionaries
        # for dataclasses, and lists for tuples, which it takes as JSON.
        adapter.validate_json(TypeAdapter(Tables).dump_json(values), strict=True)
        return experiment
    except ValidationError as error:
        faults = error.errors()
        lines = [_describe_fault(fault, tables) for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            lines.append(f"{len(faults) - _MOST_FAULTS} more")
        raise ConfigError(f"{origin}: {'; '.join(lines)}") from None


def experiment_to_dict(experiment: AnyExperiment) -> Tables:
    """Return the nested tables that :func:`experiment_from_dict` validates."""
    tables = dataclasses.asdict(experiment)  # type: ignore[call-overload]  # a Protocol
    # TOML has no null: a table that is None is left out.
    return {name: value for name, value in tables.items() if value is not None}


def read_experiment_file(path: str | Path) -> AnyExperiment:
    """Read an experiment from a TOML file.

    The experiment's name is the file's name unless the file sets ``name``.

    Raises:
        ConfigError: the file is absent or not TOML, or a setting is invalid.
    """
    path = Path(path)
    try:
        # Editors on Windows write a byte order mark, which TOML refuses.
        values = parse_toml(read_text_bytes(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such settings file; the shipped ones are in experiments/"
        ) from None
    except (*TOML_ERRORS, OSError) as error:
        raise ConfigError(
            f"{path}: cannot be read as TOML: {one_line(error)}"
        ) from None
    # The file's own name comes second, and replaces the stem.
    return experiment_from_dict({"name": path.stem, **values}, str(path))


def experiment_to_toml(experiment: AnyExperiment) -> str:
    """Return the resolved experiment as TOML, as :func:`read_experiment_file` reads."""
    return tomli_w.dumps(experiment_to_dict(experiment))


def parse_toml(text: str) -> Tables:
    """Parse TOML.

    Raises:
        ValueError, RecursionError: the text is too long or not TOML.
    """
    longest = max(map(len, text.splitlines()), default=0)
    if len(text) > _LONGEST_TEXT or longest > _LONGEST_LINE:
        raise ValueError(
            f"must be at most {_LONGEST_TEXT} characters, {_LONGEST_LINE} in a line"
        )
    return tomllib.loads(text)


def _describe_fault(fault: Mapping[str, Any], tables: type[Any]) -> str:
    """Describe one of pydantic's errors by key, fault and remedy.

    Args:
        fault: an entry of ``ValidationError.errors()``.
        tables: the dataclass of the settings, whose keys are suggested.
    """
    # Keys of TOML may be quoted, long, and have line breaks.
    key = " ".join(".".join(map(str, fault["loc"])).split())[:80] or "settings"
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        close = _nearest(key, tables)
        return f"{key}: unknown key{close}; remove it or correct its spelling"
    if fault["type"] in ("missing", "missing_argument"):
        return f"{key}: missing, add it"
    if fault["type"] == "value_error":  # raised above, with the value received
        return f"{key}: {one_line(fault['ctx']['error'], 300)}"
    message = fault["msg"]
    if fault["type"] == "string_pattern_mismatch":  # of a name
        message = (
            "must be the name of a folder: letters, digits, '_', '-' and single dots, "
            "a letter or digit first"
        )
    return f"{key}: {message}. Received: {quote(fault['input'])}"


def _nearest(key: str, tables: type[Any]) -> str:
    """Return ``, nearest: <known key>``, empty if no known key is similar."""
    names = [field.name for field in dataclasses.fields(tables)]
    known = _known_keys(tables) if "." in key else names + _known_keys(tables)
    # The right key in the wrong table goes before a similar spelling.
    same = [name for name in known if name.split(".")[-1] == key.split(".")[-1]]
    return f", nearest: {same[0]}" if same else nearest(key, known)


def _known_keys(tables: type[Any]) -> list[str]:
    """Return every key of every table as ``table.key``."""
    return [
        f"{table.name}.{field.name}"
        for table in dataclasses.fields(tables)
        for kind in (table.type, *typing.get_args(table.type))  # or of `table | None`
        if dataclasses.is_dataclass(kind)
        for field in dataclasses.fields(kind)
    ]
