"""Read the model of a ``.keras`` file as settings and arrays.

The file is a zip archive of the model's configuration (JSON) and its weights (HDF5).
This module is the one gate of all models and both engines. No object of the
configuration is built: its class must be known, its values must have the types of that
class, and its settings or the model built from them state the shapes of the arrays.
Nothing else is read. Memory is limited by the size of the file.
"""

import contextlib
import json
import math
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from show_attend_tell.config.captioner import (
    DECODERS,
    ModelSettings,
    SavedConfig,
    TransformerSettings,
)
from show_attend_tell.data.encoder_identity import Identity
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.reference import lstm, transformer
from show_attend_tell.reference.decoder import (
    AnyEquations,
    Choose,
    NextWord,
    State,
    WeightLayout,
    Weights,
)
from show_attend_tell.reference.hdf5 import Hdf5File
from show_attend_tell.runtime.errors import ModelFileError, nearest, one_line, quote
from show_attend_tell.runtime.untrusted import (
    DAMAGED,
    SCALE,
    dequantise,
    open_archive,
    parse_json,
    read_member,
    require_regular,
)

# The equations of each of config.captioner.DECODERS.
EQUATIONS: dict[str, AnyEquations] = {"lstm": lstm, "transformer": transformer}
Config = TypeVar("Config")  # class of the values of a model

_CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
_MEMBERS = (_CONFIG, WEIGHTS, "metadata.json")
_MOST_CONFIG = 5_000_000  # bytes; a vocabulary of 100,000 words has 1.1 MB
_FEW_WEIGHTS = 20_000_000  # numbers that any file may hold
_PER_BYTE = 4  # further numbers for each byte of the file; 1 in the smallest files


class Captioner:
    """A captioner as it is saved.

    Args:
        config: its configuration.
        encoder_identity: as saved: missing keys are missing.
        arrays: its weights by name, in the order of Keras; float32.
    """

    def __init__(
        self, config: SavedConfig, encoder_identity: Identity, arrays: Weights
    ):
        self.config = config
        self.arrays = arrays
        self._decoder = EQUATIONS[config.settings.decoder]
        self._settings = _settings_of_decoder(config)
        self.vocabulary = Vocabulary(config.vocabulary)
        self.settings = config.settings
        self.transformer = config.transformer
        self.decoding = config.decoding
        self.grid = config.grid
        self.annotation_width = config.annotation_width
        self.encoder_identity = encoder_identity

    @property
    def weights(self) -> list[np.ndarray]:
        """The arrays of the file, in the order of Keras."""
        return list(self.arrays.values())

    def annotations(self, features: np.ndarray) -> np.ndarray:
        """Return the scaled annotations of features as stored, (L, D)."""
        a: np.ndarray = features.astype(np.float32) * self.arrays["annotation_scale"]
        if not self.settings.attends:  # the mean annotation is the one location
            a = a.mean(axis=0, keepdims=True)
        return a

    def _spread(self, alpha: np.ndarray) -> np.ndarray:
        if self.settings.attends:
            return alpha
        L = self.grid[0] * self.grid[1]
        return alpha * np.full(L, 1 / L, np.float32)  # (..., 1) -> (..., L)

    def read_photo(self, features: np.ndarray) -> Any:
        """Return what every step reads of a photo, from features (L, D).

        The type is ``Photo`` of the decoder's module.
        """
        a = self.annotations(features)
        return self._decoder.read_photo(self.arrays, self._settings, a, self.grid)

    def attention_heads(
        self, features: np.ndarray, tokens: np.ndarray, bias: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return the attention of each layer and head at given words.

        Args:
            features: as stored, (N, L, D).
            tokens: y_0 .. y_{T-1}, (N, T).
            bias: (N, T, L), see :func:`reference.lstm.region_bias`, or None.

        Returns:
            An array (N, layers, H, T, L), or None if the decoder has no heads.
        """
        outputs = [
            self._decoder.read(
                self.arrays,
                self._settings,
                self.annotations(photo),
                words,
                self.grid,
                bias=None if bias is None else bias[k],
            )
            for k, (photo, words) in enumerate(zip(features, tokens, strict=True))
        ]
        if "heads" not in outputs[0]:
            return None
        return np.stack([self._spread(out["heads"]) for out in outputs])

    def start(self, photo: Any) -> State:
        """Return the decoder's state before the first word."""
        return self._decoder.start(self.arrays, self._settings, photo)

    def step(
        self,
        photo: Any,
        words: np.ndarray,
        state: State,
        choose: Choose | None = None,
        bias: np.ndarray | float = 0,
    ) -> NextWord:
        """Advance hypotheses by one word, see :func:`reference.lstm.step`."""
        out = self._decoder.step(
            self.arrays, self._settings, photo, words, state, choose, bias
        )
        return out._replace(alpha=self._spread(out.alpha))


class SavedModel(NamedTuple, Generic[Config]):
    """The content of a model file whose class and types of values are verified."""

    class_name: str
    config: Config
    values: dict[str, Any]  # the same values as they are stored
    file: Hdf5File
    most_weights: int  # numbers that the model may have


def read_captioner(path: str | Path) -> Captioner:
    """Read a captioner; :func:`read_model` describes the path.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's, or its
            weights are not finite.
    """
    with faults_described(path):
        saved = read_model(path, {"Captioner": SavedConfig})
        arrays = layout(saved.config)
        require_weights(saved, sum(math.prod(shape) for _, _, shape in arrays))
        for place, _, shape in arrays:
            saved.file.require(place, shape)
        weights = {
            name: read_weight(saved.file, place, shape, name)
            for place, name, shape in arrays
        }
        identity = saved.values.get("encoder_identity") or {}
        return Captioner(saved.config, identity, weights)


@contextlib.contextmanager
def faults_described(path: str | Path) -> Iterator[None]:
    """Raise a ModelFileError that names a file in place of errors in reading it."""
    try:
        yield
    except FileNotFoundError:
        beside = [file.name for file in Path(path).parent.glob("*.keras")]
        raise ModelFileError(
            f"{path}: no such model{nearest(Path(path).name, beside)}; train a run, or "
            "name its model.keras or a packaged model"
        ) from None
    except DAMAGED as error:
        raise ModelFileError(
            f"{path}: cannot be read as a model ({fault_of(error)}); train the "
            "experiment again"
        ) from None


def read_model(
    path: str | Path, classes: Mapping[str, type[Config]]
) -> SavedModel[Config]:
    """Read the configuration of a model and the list of its arrays.

    Args:
        path: a ``.keras`` file, or the ``model.weights.h5`` of a folder with the
            members of one.
        classes: name of each class that is accepted -> class of its values.

    Raises:
        DAMAGED: the file is absent, damaged or larger than its limits, or holds
            another class or values of other types.
    """
    path = Path(path)
    with _as_archive(path) as packed, open_archive(packed, _MEMBERS) as archive:
        name, values = _config(archive)
        if name not in classes:
            raise ValueError(
                f"it must hold a {' or '.join(classes)}. Received: {name[:80]}"
            )
        # As text: in it a list is a tuple too, and nothing else is converted.
        config = TypeAdapter(classes[name]).validate_json(
            json.dumps(values), strict=True
        )
        file = Hdf5File(read_member(archive, WEIGHTS))
    most = _FEW_WEIGHTS + _PER_BYTE * path.stat().st_size
    saved = SavedModel(name, config, values, file, most)
    require_weights(saved, sum(map(math.prod, file.shapes("optimizer").values())))
    return saved


@contextlib.contextmanager
def _as_archive(path: Path) -> Iterator[Path]:
    """Yield a ``.keras`` file; the members in a folder are packed into a temporary one.

    Raises:
        OSError: a file is absent, or is a pipe or a device.
    """
    if path.name != WEIGHTS:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "model.keras"
        # Not strict: a file's date may be before 1980, the first of zip files.
        with zipfile.ZipFile(packed, "w", strict_timestamps=False) as archive:
            for name in _MEMBERS:
                require_regular(path.with_name(name))
                archive.write(path.with_name(name), name)
        yield packed


def class_of(path: str | Path) -> str:
    """Return the name of the class in a model file; "" if the file is no model."""
    try:
        with _as_archive(Path(path)) as file, open_archive(file, _MEMBERS) as archive:
            return _config(archive)[0]
    except DAMAGED:
        return ""


def _config(archive: zipfile.ZipFile) -> tuple[str, Any]:
    """Return the name of the class in a model file, and its values."""
    config = parse_json(read_member(archive, _CONFIG, _MOST_CONFIG))
    if not isinstance(config, dict):
        raise ValueError("its configuration must be an object")
    name = config.get("class_name")
    registered = config.get("registered_name")
    is_ours = registered == f"show_attend_tell>{name}"
    return str(name if is_ours else registered or name), config.get("config")


def require_weights(saved: SavedModel[Any], count: int) -> None:
    """Raise a ValueError if a model has more numbers than its file may hold."""
    if count > saved.most_weights:
        raise ValueError(
            f"it has {count} weights, more than {saved.most_weights} for its size"
        )


def _settings_of_decoder(config: SavedConfig) -> ModelSettings | TransformerSettings:
    table: ModelSettings | TransformerSettings
    table = getattr(config, DECODERS[config.settings.decoder].table)
    return table


def layout(config: SavedConfig) -> list[WeightLayout]:
    """Return (path in the file, name, shape) of each weight of a model."""
    weights: list[WeightLayout] = [("vars/0", "annotation_scale", ())]
    weights += EQUATIONS[config.settings.decoder].layout(
        _settings_of_decoder(config), len(config.vocabulary), config.annotation_width
    )
    if config.settings.attention == "hard":
        weights.append(("hard_attention/vars/0", "baseline", ()))
    return weights


def read_weight(
    file: Hdf5File, path: str, shape: tuple[int, ...], name: str
) -> np.ndarray:
    """Return an array as float32; an array of 8 bits has scales of its columns.

    Raises:
        ValueError: it is absent, damaged, of another shape or not finite.
    """
    values = file.read(path, shape)
    if values.dtype == np.int8:
        values = dequantise(values, file.read(path + SCALE, shape[-1:]))
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError(
            f"its weights must be finite. Received: NaN or infinity in {name}, from a "
            "training that diverged; use a lower training.learning_rate"
        )
    return values


def fault_of(error: Exception) -> str:
    """Describe in one line why a model file cannot be read."""
    if not isinstance(error, ValidationError):
        return one_line(error)
    fault = error.errors()[0]
    place = ".".join(map(str, ("config", *fault["loc"])))[:80]
    return f"{place}: {fault['msg'][:80]}. Received: {quote(fault['input'])}"
