"""Read feature sets and define their HDF5 layout: names, types and attributes.

A set holds the features of N photos in shards, which are HDF5 files, and has one index.
It is a single file, ``features-<network>-<layer>.h5``, which is its own index and only
shard; or a folder, ``features-<network>-<layer>.shards``, of ``index.h5``, of
``header.json`` (the encoder and the photos, written first) and of the shards
``000000.h5``, ``000001.h5`` and so on, each of ``shard_rows`` photos but the last. The
shards may be in an object store, see :mod:`data.shard_store`.

==============  ===========  ==========================================================
``features``    (N, L, D)    float16, one chunk per photo, zeros if not written
``image_ids``   (N,)         UTF-8 text, ids of the manifest
``written``     (N,)         bool, False for a photo that could not be decoded
``problems``    (N,)         UTF-8 text, the reason it could not, or empty
``checksums``   (N,)         uint32, CRC-32 of each photo's compressed chunk
==============  ===========  ==========================================================

The index of a folder has all columns but ``features``; a shard has ``features``,
``problems`` and ``checksums`` of its photos. Both have the attribute ``digest``
(SHA-256 of all but the features); the index has the attributes ``format``
(:data:`FORMAT`), ``identity`` (JSON of ``Encoder.identity``), ``mirrored`` (bool),
``complete`` (bool) and, in a folder, ``shard_rows``. Files of version 0.1 have neither
``checksums`` nor ``digest`` and are read without these tests.

HDF5's own checksum of chunks protects a chunk but not the tree that finds it, so that a
flipped bit there may return another photo's values.
"""

import contextlib
import hashlib
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 - registers the decompression with HDF5
import numpy as np

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.shard_store import (
    INDEX,
    feature_set,
    open_store,
    parts_folder,
    shard_name,
)
from show_attend_tell.runtime.errors import FeatureError
from show_attend_tell.runtime.hdf5_objects import own_item
from show_attend_tell.runtime.untrusted import parse_json, reading, require_regular

FORMAT = 1
_REMEDY = "extract the features again"
# A process may open 1,024 files by default, and training reads two feature sets.
_OPEN = 256


def feature_path(
    folder: str | Path, settings: EncoderSettings, mirrored: str | None = None
) -> Path:
    """Return the path of an encoder's feature file.

    Args:
        folder: ``prepared/<data.name>``.
        settings: settings of the encoder.
        mirrored: the split of mirrored photos; by default the photos are as they are.
    """
    endings = {None: ".h5", "train": ".mirror.h5"}
    ending = endings.get(mirrored, f".mirror-{mirrored}.h5")
    return Path(folder) / f"features-{settings.network}-{settings.layer}{ending}"


class FeatureReader(contextlib.AbstractContextManager):
    """Read an open feature set photo by photo, never as a whole.

    Use the reader as a context manager or call :meth:`close`. Several threads may share
    it.

    Attributes:
        path: path of the file or the folder.
        image_ids: N ids in the order of the rows.
        shape: (N, L, D).
        rows: id -> row, of each photo that was written.
        problems: id -> the reason, of each photo that was not written.
        attributes: ``format``, ``identity`` (a dict), ``mirrored``, ``complete``.

    Raises:
        FeatureError: the set is absent, damaged or incomplete, was made by an encoder
            other than ``identity``, or its object store does not answer.
    """

    def __init__(self, path: str | Path, identity: dict | None = None):
        """Open a set and verify all but the features.

        Args:
            path: path of the file, or of the file whose place the shards take.
            identity: identity of the encoder that must have made the features; any
                encoder by default.
        """
        self.path = feature_set(path)
        self._lock = threading.Lock()
        self._shards: OrderedDict[int, h5py.Dataset] = OrderedDict()  # by last use
        self._store = None
        self._index = _open_index(self.path)
        try:
            with reading(self.path, FeatureError, _REMEDY):
                self._read_index()
                self._find_shards()
                self._verify(identity)
        except BaseException:
            self.close()
            raise

    def _read_index(self) -> None:
        """Read attributes and columns, or raise one of :data:`DAMAGED`."""
        file = self._index
        text = _as_text(file.attrs["identity"])
        identity = parse_json(text)
        if not isinstance(identity, dict):
            raise ValueError("`identity` must be an object")
        self.attributes = {
            "format": int(file.attrs["format"]),
            "identity": identity,
            "mirrored": bool(file.attrs["mirrored"]),
            "complete": bool(file.attrs["complete"]),
        }
        count = len(_own_dataset(file, "image_ids"))
        self.image_ids: list[str] = _column(file, "image_ids", "text", count)
        reasons = _column(file, "problems", "text", count)
        self._written = _column(file, "written", "bool", count)
        if len(set(self.image_ids)) < count:
            raise ValueError("an id occurs twice")
        if any(np.array(reasons, object)[self._written]):
            raise ValueError("`written` and `problems` contradict each other")
        if ("checksums" in file) != ("digest" in file.attrs):
            raise ValueError("one of `checksums` and `digest` is absent")
        self._checksums = None
        if "digest" in file.attrs:
            self._checksums = _column(file, "checksums", "unsigned integers", count)
            content = self.image_ids, reasons, self._checksums
            digest = index_digest(text, self.attributes["mirrored"], *content)
            stored = _as_text(file.attrs["digest"])
            whole = [not reason for reason in reasons]
            if stored != digest or whole != self._written.tolist():
                raise ValueError("ids, problems or checksums differ from `digest`")
        ids = enumerate(self.image_ids)
        self.rows = {name: row for row, name in ids if self._written[row]}
        named = zip(self.image_ids, reasons, strict=True)
        self.problems = {name: reason for name, reason in named if reason}

    def _find_shards(self) -> None:
        """Verify the first shard and that the others exist; they are opened later."""
        file, count = self._index, len(self.image_ids)
        identity = self.attributes["identity"]
        if self.path.is_dir():
            self._shard_rows = int(file.attrs["shard_rows"])
            if self._shard_rows < 1:
                raise ValueError("`shard_rows` must be at least 1")
            grid, width = identity["grid"], identity["width"]
            self._store = open_store(self.path)
            present = self._store.sizes()
            for number in range(-(-count // self._shard_rows)):
                if shard_name(number) not in present:
                    raise ValueError(f"the shard {shard_name(number)} is absent")
        else:
            self._shard_rows = max(count, 1)
            features = self._shards[0] = _own_dataset(file, "features")
            grid = identity.get("grid", features.shape[1:2])
            width = identity.get("width", features.shape[-1])
        self.shape = (count, int(np.prod(grid)), int(width))
        if count:
            self._require_layout(0, self._shard(0))

    def _verify(self, identity: dict | None) -> None:
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
        raise FeatureError(f"{self.path}: {fault} {_REMEDY}")

    def read(self, rows: Sequence[int]) -> np.ndarray:
        """Read photos by their rows, in any order and with repetitions.

        Args:
            rows: B row numbers from 0 to N - 1, values of :attr:`rows`.

        Returns:
            (B, L, D) float16.

        Raises:
            FeatureError: a row is out of range or was not written, or its chunk is
                damaged.
        """
        count, locations, width = self.shape
        order = np.asarray(rows, np.int64)
        outside = order[(order < 0) | (order >= count)]
        if outside.size:
            raise FeatureError(
                f"`rows` must be from 0 to {count - 1}. Received: {outside[0]}"
            )
        empty = order[~self._written[order]]
        if empty.size:
            name = self.image_ids[empty[0]]
            raise FeatureError(
                f"{self.path}: photo {name!r} has no features: "
                f"{self.problems.get(name, 'no reason is stored')}"
            )
        # Each row is read once, in the order of the shards.
        unique, positions = np.unique(order, return_inverse=True)
        features = np.empty((len(unique), locations, width), np.float16)
        with self._lock:
            for position, row in enumerate(unique.tolist()):
                self._read_row(row, features, position)
        return features[positions]  # (unique, L, D) -> (B, L, D)

    def _read_row(self, row: int, features: np.ndarray, position: int) -> None:
        number, place = divmod(row, self._shard_rows)
        remedy = "run `features --overwrite`"
        if self._store is not None:
            damaged = self._store.place(shard_name(number))
            remedy = f"delete {damaged}; then run `features` again"
        photo = f"{self.path}: the features of photo {self.image_ids[row]!r}"
        with reading(photo, FeatureError, remedy):
            shard = self._shard(number)
            if self._checksums is not None:
                mask, chunk = shard.id.read_direct_chunk((place, 0, 0))
                if zlib.crc32(chunk, mask) != self._checksums[row]:
                    raise ValueError("its checksum differs")
            shard.read_direct(features, np.s_[place], np.s_[position])

    def _shard(self, number: int) -> h5py.Dataset:
        """Return the features of a shard, open, or raise one of :data:`DAMAGED`."""
        if not self._index:
            raise ValueError("the reader is closed")
        features = self._shards.pop(number, None)
        if features is None:
            path = self._store.local(shard_name(number))
            require_regular(path)
            file = h5py.File(path, "r")
            try:
                features = _own_dataset(file, "features")
                self._require_layout(number, features)
            except BaseException:
                file.close()
                raise
        self._shards[number] = features
        if len(self._shards) > _OPEN:
            self._shards.popitem(last=False)[1].file.close()
        return features

    def _require_layout(self, number: int, features: h5py.Dataset) -> None:
        count, *shape = self.shape
        rows = min(self._shard_rows, count - number * self._shard_rows)
        whole = features.shape == (rows, *shape) and 0 not in shape
        if not whole or features.dtype != np.float16:
            raise ValueError(
                f"`features` must be {(rows, *shape)} float16. Received: "
                f"{features.shape} {features.dtype}"
            )

    def close(self) -> None:
        """Close all files; later reads fail."""
        with self._lock:
            while self._shards:
                self._shards.popitem()[1].file.close()
            self._index.close()

    def __exit__(self, *error: object) -> None:
        """Close all files."""
        self.close()


def index_digest(
    identity: str,
    mirrored: bool,
    image_ids: Sequence[str],
    problems: Sequence[str],
    checksums: Sequence[int],
) -> str:
    """Return the SHA-256 of everything in a set besides its features.

    The arguments are the attributes and columns of the module's docstring; `identity`
    is the text of its attribute.
    """
    texts = json.dumps([identity, mirrored, list(image_ids), list(problems)])
    numbers = np.asarray(checksums, "<u4").tobytes()
    return hashlib.sha256(texts.encode() + numbers).hexdigest()


def _open_index(path: Path) -> h5py.File:
    is_folder = path.is_dir()
    file = path / INDEX if is_folder else path
    if not file.exists() and (is_folder or parts_folder(path).exists()):
        raise FeatureError(
            f"{path}: incomplete; run the extraction again to continue it"
        )
    with reading(
        file, FeatureError, _REMEDY, "feature file; run `prepare`, then `features`"
    ):
        require_regular(file)
        return h5py.File(file, "r")


def _as_text(value: str | bytes) -> str:
    """Return an attribute's text; h5py returns bytes for text of fixed width."""
    return value.decode() if isinstance(value, bytes) else value


def _column(
    file: h5py.File, name: str, kind: str, count: int
) -> np.ndarray | list[str]:
    """Return a dataset of `count` values of a kind, or raise a ValueError."""
    dataset = _own_dataset(file, name)
    if dataset.shape != (count,):
        raise ValueError(f"`{name}` must have one value for each photo")
    is_text = h5py.check_string_dtype(dataset.dtype) is not None
    known = {"b": "bool", "u": "unsigned integers"}
    if kind != ("text" if is_text else known.get(dataset.dtype.kind)):
        raise ValueError(f"`{name}` must be {kind}")
    # A forged size in the header must not allocate more memory than the file holds.
    if dataset.id.get_storage_size() < dataset.size * dataset.dtype.itemsize:
        raise ValueError(f"`{name}` is incomplete")
    return dataset.asstr()[:].tolist() if is_text else dataset[:]


def _own_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset whose values are in the file itself, or raise a ValueError."""
    item = own_item(file, name)
    if not isinstance(item, h5py.Dataset):
        raise ValueError(f"`{name}` must be a dataset")
    return item
