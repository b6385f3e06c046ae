"""Read feature files and define their HDF5 layout: names, types and attributes.

The features of N photos are one file, ``features-<network>-<layer>.h5``. A script needs
nothing of this package to read it::

    import h5py, hdf5plugin  # hdf5plugin registers the decompression
    annotations = h5py.File(path)["features"][row]  # (L, D) float16

==============  ===========  ==========================================================
``features``    (N, L, D)    float16, one chunk per photo, zeros if not written
``image_ids``   (N,)         UTF-8 text, ids of the manifest
``written``     (N,)         bool, False for a photo that could not be decoded
``problems``    (N,)         UTF-8 text, the reason it could not, or empty
``checksums``   (N,)         uint32, CRC-32 of each photo's compressed chunk
``file_sizes``  (N,)         uint64, bytes of each photo's file, 0 if unknown
``file_crcs``   (N,)         uint32, CRC-32 of each photo's file
==============  ===========  ==========================================================

The last two show which photos have changed since; files of earlier versions lack them.

Attributes are ``format`` (:data:`FORMAT`), ``identity`` (JSON of
``Encoder.identity``), ``mirrored`` (bool), ``complete`` (bool) and ``digest`` (SHA-256
of all but the features). Until an extraction ends, its parts are in a folder beside the
file, see :mod:`data_prep.feature_writer`.

HDF5's own checksum of chunks protects a chunk but not the tree that finds it, so that a
flipped bit there may return another photo's values.
"""

import hashlib
import json
import math
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import h5py
import hdf5plugin  # noqa: F401 - registers the decompression with HDF5
import numpy as np

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.encoder_identity import Identity, identity_difference
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.hdf5_objects import hdf5_faults, own_dataset
from show_attend_tell.runtime.untrusted import parse_json, reading, require_regular

FORMAT = 1
_REMEDY = "extract the features again"


def feature_path(
    folder: str | Path, settings: EncoderSettings, mirrored: str | None = None
) -> Path:
    """Return the path of an encoder's feature file.

    Args:
        folder: ``prepared/<data.name>``.
        settings: settings of the encoder.
        mirrored: the split of mirrored photos; by default the photos are as they are.
    """
    # The mirrored training photos keep the name that they had before other splits could
    # be mirrored.
    endings = {None: ".h5", "train": ".mirror.h5"}
    ending = endings.get(mirrored, f".mirror-{mirrored}.h5")
    return Path(folder) / f"features-{settings.network}-{settings.layer}{ending}"


def parts_folder(path: str | Path) -> Path:
    """Return the folder of a feature file's parts until they are joined."""
    return Path(f"{Path(path)}.parts")


class PhotoFile(NamedTuple):
    """The content of a photo's file when its features were extracted."""

    size: int  # bytes, 0 if unknown
    crc: int  # CRC-32


UNKNOWN_FILE = PhotoFile(0, 0)


def require_no_shards(path: Path) -> None:
    """Raise a DataError if version 0.3 wrote a folder of shards and no file.

    Args:
        path: path of the feature file.
    """
    shards = path.with_suffix(".shards")
    if shards.is_dir() and not path.exists():
        raise DataError(
            f"{shards}: a folder of shards, as version 0.3 wrote it; run "
            f"`show-attend-tell convert {shards}` to join it to one file, or delete it "
            "to extract the features again"
        )


class Features(Protocol):
    """What reads the features of photos: a FeatureReader, or several joined.

    :class:`FeatureReader` describes the attributes.
    """

    path: Path
    shape: tuple[int, int, int]
    rows: dict[str, int]
    attributes: dict[str, Any]

    def read(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return (B, L, D) float16, see :meth:`FeatureReader.read`."""

    def digest(self, rows: Sequence[int] | np.ndarray) -> str:
        """Return a digest of rows, see :meth:`FeatureReader.digest`."""

    def close(self) -> None:
        """Close the files; later reads fail."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class FeatureReader:
    """Read an open feature file photo by photo, never as a whole.

    Use the reader as a context manager or call :meth:`close`. Several threads may share
    it.

    Attributes:
        path: path of the file.
        image_ids: N ids in the order of the rows.
        shape: (N, L, D).
        rows: id -> row, of each photo that was written.
        problems: id -> the reason, of each photo that was not written.
        attributes: ``format``, ``identity`` (a dict), ``mirrored``, ``complete``.

    Raises:
        DataError: the file is absent, damaged or incomplete, or was made by an
            encoder other than ``identity``.
    """

    def __init__(self, path: str | Path, identity: Identity | None = None):
        """Open a file and verify all but the features.

        Args:
            path: path of the file.
            identity: identity of the encoder that must have made the features; any
                encoder by default.
        """
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = _open(self.path)
        try:
            with reading(self.path, DataError, _REMEDY):
                self._read_columns()
                self._find_features()
                self._verify(identity)
        # Also an interrupt, after which nobody else has the file to close it.
        except BaseException:
            self.close()
            raise

    def _read_columns(self) -> None:
        """Read attributes and columns, or raise a ValueError."""
        file = self._file
        text = _text_attribute(file, "identity")
        identity = parse_json(text)
        if not isinstance(identity, dict):
            raise ValueError("`identity` must be an object")
        self.attributes: dict[str, Any] = {
            "format": int(_attribute(file, "format", np.integer)),
            "identity": identity,
            "mirrored": bool(_attribute(file, "mirrored", np.bool_)),
            "complete": bool(_attribute(file, "complete", np.bool_)),
        }
        with hdf5_faults():
            count = len(own_dataset(file, "image_ids"))
        self.image_ids = _texts(file, "image_ids", count)
        reasons = _texts(file, "problems", count)
        self._written = _numbers(file, "written", "bool", count)
        if len(set(self.image_ids)) < count:
            raise ValueError("an id occurs twice")
        if any(np.array(reasons, object)[self._written]):
            raise ValueError("`written` and `problems` contradict each other")
        self._checksums = _numbers(file, "checksums", "unsigned integers", count)
        mirrored = self.attributes["mirrored"]
        digest = index_digest(text, mirrored, self.image_ids, reasons, self._checksums)
        stored = _text_attribute(file, "digest")
        # The digest covers `problems` but not `written`, which must agree with it.
        whole = [not reason for reason in reasons]
        if stored != digest or whole != self._written.tolist():
            raise ValueError("ids, problems or checksums differ from `digest`")
        ids = enumerate(self.image_ids)
        self.rows = {name: row for row, name in ids if self._written[row]}
        named = zip(self.image_ids, reasons, strict=True)
        self.problems = {name: reason for name, reason in named if reason}

    def _find_features(self) -> None:
        """Find the features and verify their shape, or raise a ValueError."""
        self._features = own_dataset(self._file, "features")
        with hdf5_faults():
            shape = self._features.shape
            dtype = self._features.dtype
        identity = self.attributes["identity"]
        count = len(self.image_ids)
        grid = identity.get("grid", list(shape[1:2]))
        width = identity.get("width", shape[-1] if shape else 0)
        if not isinstance(grid, list) or not all(map(_is_size, [*grid, width])):
            raise ValueError("`grid` and `width` must be integers above 0")
        self.shape = (count, math.prod(grid), width)
        if count and (shape != self.shape or dtype != np.float16):
            raise ValueError(
                f"`features` must be {self.shape} float16. Received: {shape} {dtype}"
            )

    def _verify(self, identity: Identity | None) -> None:
        attributes = self.attributes
        difference = identity_difference(identity or {}, attributes["identity"])
        if attributes["format"] != FORMAT:
            fault = f"`format` must be {FORMAT}. Received: {attributes['format']};"
        elif not attributes["complete"]:
            fault = "incomplete;"
        elif identity is not None and difference:
            fault = f"made by another encoder: {difference}; choose that encoder, or"
        else:
            return
        raise DataError(f"{self.path}: {fault} {_REMEDY}")

    def read(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read photos by their rows, in any order and with repetitions.

        Args:
            rows: B row numbers from 0 to N - 1, values of :attr:`rows`.

        Returns:
            (B, L, D) float16.

        Raises:
            DataError: a row is out of range or was not written, or its chunk is
                damaged.
        """
        count, locations, width = self.shape
        order = np.asarray(rows, np.int64)
        outside = order[(order < 0) | (order >= count)]
        if outside.size:
            raise DataError(
                f"`rows` must be from 0 to {count - 1}. Received: {outside[0]}"
            )
        empty = order[~self._written[order]]
        if empty.size:
            name = self.image_ids[empty[0]]
            raise DataError(
                f"{self.path}: photo {name!r} has no features: "
                f"{self.problems.get(name, 'no reason is stored')}"
            )
        # Each row is read once, in the order of the file.
        unique, positions = np.unique(order, return_inverse=True)
        features = np.empty((len(unique), locations, width), np.float16)
        with self._lock:
            for position, row in enumerate(unique.tolist()):
                self._read_row(row, features, position)
        return features[positions]  # (unique, L, D) -> (B, L, D)

    def digest(self, rows: Sequence[int] | np.ndarray) -> str:
        """Return a digest of the encoder and of the checksums of rows."""
        text = json.dumps(self.attributes["identity"], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        digest.update(np.asarray(self._checksums, "<u4")[rows].tobytes())
        return digest.hexdigest()

    def photo_files(self) -> list[PhotoFile]:
        """Return what is stored of each photo's file, in the order of the rows.

        Raises:
            DataError: a column is damaged.
        """
        count = len(self.image_ids)
        with self._lock, reading(self.path, DataError, _REMEDY):
            with hdf5_faults():
                has_files = {"file_sizes", "file_crcs"} <= set(self._file)
            if not has_files:
                return [UNKNOWN_FILE] * count
            sizes = _numbers(self._file, "file_sizes", "unsigned integers", count)
            crcs = _numbers(self._file, "file_crcs", "unsigned integers", count)
        return list(map(PhotoFile, sizes.tolist(), crcs.tolist()))

    def _read_row(self, row: int, features: np.ndarray, position: int) -> None:
        photo = f"{self.path}: the features of photo {self.image_ids[row]!r}"
        with reading(photo, DataError, "run `features --overwrite`"):
            if not self._file:
                raise ValueError("the reader is closed")
            with hdf5_faults():
                # The chunk is read as it is stored, to compare it, and then unpacked by
                # HDF5. The mask starts the CRC, so that it is covered too: it says
                # which filters HDF5 must undo.
                mask, chunk = self._features.id.read_direct_chunk((row, 0, 0))
            if zlib.crc32(chunk, mask) != self._checksums[row]:
                raise ValueError("its checksum differs")
            with hdf5_faults():
                self._features.read_direct(features, np.s_[row], np.s_[position])

    def close(self) -> None:
        """Close the file; later reads fail."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def index_digest(
    identity: str,
    mirrored: bool,
    image_ids: Sequence[str],
    problems: Sequence[str],
    checksums: Sequence[int] | np.ndarray,
) -> str:
    """Return the SHA-256 of everything in a file besides its features.

    The arguments are the attributes and columns of the module's docstring; `identity`
    is the text of its attribute.
    """
    texts = json.dumps([identity, mirrored, list(image_ids), list(problems)])
    numbers = np.asarray(checksums, "<u4").tobytes()
    return hashlib.sha256(texts.encode() + numbers).hexdigest()


def _open(path: Path) -> h5py.File:
    if not path.exists():
        if parts_folder(path).exists():
            raise DataError(
                f"{path}: incomplete; run the extraction again to continue it"
            )
        require_no_shards(path)
    absent = "feature file; run `prepare`, then `features`"
    with reading(path, DataError, _REMEDY, absent):
        require_regular(path)
        # HDF5 would take a lock, which some network file systems lack and which another
        # process may hold.
        return h5py.File(path, "r", locking=False)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _attribute(file: h5py.File, name: str, kind: type) -> Any:
    """Return an attribute of a type of NumPy, or raise a ValueError."""
    with hdf5_faults():
        value = file.attrs[name]
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` must be {kind.__name__}")
    return value


def _text_attribute(file: h5py.File, name: str) -> str:
    """Return an attribute's text; h5py returns bytes for text of fixed width."""
    with hdf5_faults():
        value = file.attrs[name]
    text = value.decode() if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise ValueError(f"`{name}` must be a text")
    return text


def _texts(file: h5py.File, name: str, count: int) -> list[str]:
    """Return a dataset of `count` texts, or raise a ValueError."""
    column = _column(file, name, "text", count)
    with hdf5_faults():
        texts: list[str] = column.asstr()[:].tolist()
    return texts


def _numbers(file: h5py.File, name: str, kind: str, count: int) -> np.ndarray:
    """Return a dataset of `count` numbers of a kind, or raise a ValueError."""
    column = _column(file, name, kind, count)
    with hdf5_faults():
        numbers: np.ndarray = column[:]
    return numbers


def _column(file: h5py.File, name: str, kind: str, count: int) -> h5py.Dataset:
    """Return a dataset of `count` values of a kind, or raise a ValueError."""
    dataset = own_dataset(file, name)
    with hdf5_faults():
        shape = dataset.shape
        dtype = dataset.dtype
        stored = dataset.id.get_storage_size()
    if shape != (count,):
        raise ValueError(f"`{name}` must have one value for each photo")
    is_text = h5py.check_string_dtype(dtype) is not None
    known = {"b": "bool", "u": "unsigned integers"}
    if kind != ("text" if is_text else known.get(dtype.kind)):
        raise ValueError(f"`{name}` must be {kind}")
    # A forged size in the header must not allocate more memory than the file holds.
    if stored < count * dtype.itemsize:
        raise ValueError(f"`{name}` is incomplete")
    return dataset
