"""Read and write ``.safetensors`` files: arrays, with JSON that says what they are.

A file has the length of its header, the header (JSON: type, shape and place of each
array) and the arrays, see https://github.com/huggingface/safetensors. In the header's
``__metadata__`` the text ``show_attend_tell`` is JSON too::

    {"format": 1, "class": "Captioner", "config": {...}, "crc32": {"": 1, "w_h": 2}}

``crc32`` has the checksum of each array and, under the empty name, of the rest of the
text. A matrix NAME may have 8 bits per number; NAME.scale then has a float32 scale for
each of its columns.

The package safetensors verifies the header before anything is allocated: its length,
the depth of its JSON, and that the arrays fill the file without a gap or an overlap.
It maps the file, so that an array costs one copy. Reading 12 MB takes 8 ms of a core;
with ``numpy.frombuffer`` on the bytes it is 6 ms.
"""

import contextlib
import itertools
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from show_attend_tell.runtime.errors import ShowAttendTellError, nearest, one_line
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.quantisation import dequantise
from show_attend_tell.runtime.untrusted import parse_json, require_regular

SUFFIX = ".safetensors"
SCALE = ".scale"  # ending of the name of a matrix' scales
_KEY = "show_attend_tell"
_FORMAT = 1
_MAX_HEADER = 10_000_000  # bytes; a vocabulary of 100,000 words has 1.5 MB
_MAX_TEXT = 5_000_000  # characters
_MAX_LEVELS = 100  # of nested JSON; to write it again, JSON needs as many calls
_WEIGHTS = ("F32", "F16", "I8")  # types of weights
_TYPES = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(np.int8): "I8",
    np.dtype(np.int32): "I32",
    np.dtype(np.int64): "I64",
    np.dtype(np.uint16): "U16",
    np.dtype(np.uint32): "U32",
    np.dtype(np.bool_): "BOOL",
}
_OLD_SUFFIXES = (".keras", ".npz", ".h5")  # of version 0.3


class TensorFile:
    """An open file; :func:`open_tensors` opens it.

    Attributes:
        path: the file.
        about: the JSON of the header.
        names: the names of the arrays.
    """

    def __init__(self, path: Path, opened: Any, about: dict[str, Any]):
        self.path = path
        self.about = about
        self.names = frozenset(opened.keys())
        self._opened = opened  # a safe_open, whose methods have no types
        self._checksums: dict[str, Any] = about["crc32"]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, without reading it.

        Raises:
            ValueError: there is no such array.
        """
        if name not in self.names:
            raise ValueError(f"`{name[:80]}` is missing")
        return tuple(self._opened.get_slice(name).get_shape())

    def type_of(self, name: str) -> str:
        """Return the type of an array as the format names it, such as ``F32``."""
        return str(self._opened.get_slice(name).get_dtype())

    def require(self, name: str, shape: tuple[int, ...], *types: str) -> None:
        """Raise a ValueError unless an array has a shape and one of some types."""
        stored = self.shape(name)
        if stored != tuple(shape):
            raise ValueError(f"`{name}` must be {tuple(shape)}. Received: {stored}")
        if self.type_of(name) not in types:
            raise ValueError(
                f"`{name}` must be {' or '.join(types)}. Received: {self.type_of(name)}"
            )

    def require_weights(self, shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
        """Require weights, and the scales of those with 8 bits; return all names.

        Raises:
            ValueError: one is missing, or has another shape or type.
        """
        names = set(shapes)
        for name, shape in shapes.items():
            self.require(name, shape, *_WEIGHTS)
            if self.type_of(name) == "I8":
                self.require(name + SCALE, shape[-1:], "F32")
                names.add(name + SCALE)
        return names

    def require_no_more(self, names: Collection[str]) -> None:
        """Raise a ValueError if the file has arrays with other names."""
        if surplus := self.names - set(names):
            raise ValueError(f"it also holds {min(surplus)[:80]!r}")

    def read(self, name: str) -> np.ndarray:
        """Return an array as it is stored.

        Raises:
            ValueError: it is absent or damaged.
        """
        if self.type_of(name) not in _TYPES.values():
            raise ValueError(f"`{name}` has the type {self.type_of(name)[:20]}")
        values: np.ndarray = self._opened.get_tensor(name)
        if _checksum(values) != self._checksums.get(name):
            raise ValueError(f"`{name}` is damaged: its checksum differs")
        return values

    def read_weight(self, name: str) -> np.ndarray:
        """Return a weight as float32; :meth:`require_weights` has accepted it.

        Raises:
            ValueError: it is damaged or not finite.
        """
        values = self.read(name)
        if values.dtype == np.int8:
            scale = self.read(name + SCALE)
            # The largest products stand for all.
            _require_finite(name, dequantise(np.full(scale.shape, -128), scale))
            return dequantise(values, scale)
        _require_finite(name, values)
        return values.astype(np.float32, copy=False)


def _require_finite(name: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            f"its weights must be finite. Received: NaN or infinity in {name}, from a "
            "training that diverged; use a lower training.learning_rate"
        )


def _checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)


def _checksum_of_text(about: dict[str, Any]) -> int:
    """Return the checksum of the JSON of a header, without the entry of the text."""
    checksums = {name: value for name, value in about["crc32"].items() if name}
    return zlib.crc32(_to_json({**about, "crc32": checksums}).encode())


def _to_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@contextlib.contextmanager
def open_tensors(path: Path, *classes: str) -> Iterator[TensorFile]:
    """Open a file and verify its header.

    Args:
        path: the file.
        classes: the values of ``class`` that are accepted.

    Raises:
        OSError: the file is absent, or is no regular file.
        ValueError: the file is damaged, or of another class; also in the body.
    """
    require_regular(path)
    with path.open("rb") as file:
        # Before safetensors parses it, which accepts headers of 100 MB.
        length = int.from_bytes(file.read(8), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"its header must have at most {_MAX_HEADER:,} bytes")
    try:
        # The body of the caller is inside `try` too: reading an array raises these
        # errors.
        with safe_open(path, framework="numpy") as opened:
            about = _about(opened.metadata())
            if about.get("class") not in classes:
                raise ValueError(
                    f"it must hold a {' or '.join(classes)}. Received: "
                    f"{str(about.get('class'))[:80]}"
                )
            yield TensorFile(path, opened, about)
    except SafetensorError as error:
        raise ValueError(one_line(error)) from None


def _about(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the JSON of a header, whose format and checksum are verified."""
    text = (metadata or {}).get(_KEY)
    if text is None:
        raise ValueError(f"its header has no {_KEY!r}: another program wrote it")
    if len(text) > _MAX_TEXT:
        raise ValueError(f"its settings must have at most {_MAX_TEXT:,} characters")
    about = parse_json(text)
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its `format` must be {_FORMAT}")
    if _levels(about) > _MAX_LEVELS:
        raise ValueError(f"its settings must have at most {_MAX_LEVELS} levels")
    checksums = about.get("crc32")
    if not isinstance(checksums, dict) or checksums.get("") != _checksum_of_text(about):
        raise ValueError("its settings are damaged: their checksum differs")
    return about


def _levels(value: dict[str, Any]) -> int:
    """Return how deeply dictionaries and lists are nested."""
    # A loop, level by level: recursion would fail at the depth that it measures.
    levels = 0
    level: list[Any] = [value]
    while level:
        levels += 1
        items = (each.values() if isinstance(each, dict) else each for each in level)
        inside = itertools.chain.from_iterable(items)
        level = [item for item in inside if isinstance(item, dict | list)]
    return levels


def class_of(path: str | Path) -> str:
    """Return the ``class`` of a file; "" if the file is none of this package's."""
    path = Path(path)
    try:
        require_regular(path)
        with path.open("rb") as file:
            if int.from_bytes(file.read(8), "little") > _MAX_HEADER:
                return ""
        with safe_open(path, framework="numpy") as opened:
            return str(_about(opened.metadata()).get("class"))
    except (OSError, ValueError, SafetensorError):
        return ""


def write_tensors(
    path: str | Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a file atomically; the same content gives the same bytes.

    Args:
        path: the file.
        about: values for JSON, ``class`` among them.
        arrays: arrays by their names.

    Raises:
        OSError: the file cannot be written; an existing file stays as it was.
    """
    # In C order, as `safetensors.numpy.save` writes the wrong values of a transposed
    # array. `np.ascontiguousarray` would give scalars an axis.
    arrays = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    checksums = {name: _checksum(values) for name, values in arrays.items()}
    content: dict[str, Any] = {**about, "format": _FORMAT, "crc32": checksums}
    # As it will be read: a tuple becomes a list.
    content = json.loads(_to_json(content))
    checksums[""] = _checksum_of_text(content)
    # A header of one text, as safetensors orders several at random.
    text = _to_json({**content, "crc32": checksums})
    # As bytes, because safetensors' own errors of a full disk have no number.
    atomic_write(path, safetensors.numpy.save(arrays, {_KEY: text}))


def type_name(dtype: npt.DTypeLike) -> str:
    """Return the name that the format has for a type of NumPy."""
    return _TYPES[np.dtype(dtype)]


@contextlib.contextmanager
def faults_described(
    path: str | Path,
    error: type[ShowAttendTellError],
    what: str,
    remedy: str,
    if_absent: str | None = None,
) -> Iterator[None]:
    """Raise an error of one line, which names the file, for faults in reading it.

    Args:
        path: the file.
        error: the class to raise.
        what: the content of the file, such as ``a model``.
        remedy: what the user can do about a damaged file.
        if_absent: what the user can do about an absent file; by default the
            same.
    """
    path = Path(path)
    require_current(path, error)
    try:
        yield
    # Every error of the package is a ValueError too, and has its line already.
    except error:
        raise
    except FileNotFoundError:
        beside = [file.name for file in path.parent.glob(f"*{SUFFIX}")]
        close = nearest(path.name, beside)
        noun = what.removeprefix("a ")
        advice = if_absent or remedy
        raise error(f"{path}: no such {noun}{close}; {advice}") from None
    except (OSError, ValueError) as fault:
        raise error(
            f"{path}: cannot be read as {what} ({one_line(fault)}); {remedy}"
        ) from None


def require_current(path: str | Path, error: type[ShowAttendTellError]) -> None:
    """Raise an error that names ``convert`` if a path is of a file of version 0.3."""
    path = Path(path)
    if path.suffix not in _OLD_SUFFIXES:
        return
    new = current_path(path)
    if new.is_file():
        raise error(f"{path}: a name of version 0.3; `convert` made it {new}")
    folder = path.parent
    # A folder with this file is a preset of version 0.3, converted as a whole.
    source = path if not (folder / "config.json").is_file() else folder
    raise error(
        f"{path}: models are {SUFFIX} files; run `show-attend-tell convert {source}` "
        f"and name {new}"
    )


def current_path(path: Path) -> Path:
    """Return the path to which ``convert`` writes a file of version 0.3."""
    stem = path.name.removesuffix(path.suffix).removesuffix(".weights")
    return path.with_name(stem + SUFFIX)
