"""Read feature files and define their HDF5 layout: names, types and attributes.

A feature file holds, for N photos of L locations and D channels,

==============  ===========  =====================================================
``features``    (N, L, D)    float16, one chunk per photo, zeros if not written
``image_ids``   (N,)         UTF-8 text, ids of the manifest
``written``     (N,)         bool, False for a photo that could not be decoded
``problems``    (N,)         UTF-8 text, the reason it could not, or empty
``checksums``   (N,)         uint32, CRC-32 of each photo's compressed chunk
==============  ===========  =====================================================

and the attributes ``format`` (:data:`FORMAT`), ``identity`` (JSON of
``Encoder.identity``), ``mirrored`` (bool), ``complete`` (bool) and ``digest`` (SHA-256
of all but the features). Files without ``checksums`` and ``digest``, which earlier
versions wrote, are read without these tests. A folder of shards may take the place of
the file, see :mod:`data.feature_shards`.

After a ReLU about 95 % of VGG's values are exact zeros, so every chunk is compressed.
Measured on conv5_3 of 512 photos, one core, as ratios to the dense float16 file: size,
and time to read 64 random photos (7 ms for the dense file):

=============================  =====  =====
LZ4-HC of Blosc, no shuffle    0.105  1.03    chosen
LZ4 of Blosc, no shuffle       0.142  1.34
LZ4 of Blosc, bit shuffle      0.304  1.79
Zstandard                      0.084  2.00
Zstandard of Blosc             0.089  2.15
gzip 1                         0.110  3.76
LZF                            0.143  5.38
=============================  =====  =====

Checking the CRC-32 adds an eighth to the time of reading: 11.7 ms for 64 photos, which
take 10.4 ms without it.

Shuffling of any kind makes the file larger and slower here, because it scatters the
long runs of zeros.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.feature_checksums import (
    chunk_checksum,
    index_digest,
    read_chunk,
)
from show_attend_tell.data.feature_shards import INDEX, ShardedFeatures, feature_set
from show_attend_tell.runtime.errors import FeatureError, one_line
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import require_regular

FORMAT = 1
COMPRESSION = hdf5plugin.Blosc(
    cname="lz4hc", clevel=5, shuffle=hdf5plugin.Blosc.NOSHUFFLE
)

# Errors of h5py for files that are damaged or of another layout.
DAMAGED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
)
_LONGEST = 200  # characters of a message of HDF5
_INFINITE = 0x7C00  # bits of infinity in float16; those of NaN are larger


def feature_path(
    folder: str | Path,
    settings: EncoderSettings,
    mirror: bool = False,
    split: str = "train",
) -> Path:
    """Return the path of an encoder's feature file.

    Args:
        folder: ``prepared/<data.name>``.
        settings: settings of the encoder.
        mirror: whether to return the file of the mirrored photos of a split.
        split: that split.
    """
    ending = ".mirror.h5" if split == "train" else f".mirror-{split}.h5"
    ending = ending if mirror else ".h5"
    return Path(folder) / f"features-{settings.network}-{settings.cached_layer}{ending}"


class FeatureReader:
    """An open feature set, read photo by photo and never as a whole.

    A set is one file, or a folder of shards in its place. Use the reader as a context
    manager or call :meth:`close`. Several threads may share it.

    Attributes:
        path: path of the file or the folder.
        image_ids: N ids in the order of the rows.
        shape: (N, L, D).
        rows: id -> row, of each photo that was written.
        problems: id -> the reason, of each photo that was not written.
        attributes: ``format``, ``identity`` (a dict), ``mirrored``, ``complete``.

    Raises:
        FeatureError: the file is absent, damaged or incomplete, or was made by
            an encoder other than ``identity``.
    """

    def __init__(self, path: str | Path, identity: dict | None = None):
        """Open and verify a file.

        Args:
            path: path of the file, or of the file whose place the shards take.
            identity: identity of the encoder that must have made the features; any
                encoder by default.
        """
        self.path = feature_set(path)
        self._lock = threading.Lock()
        self._shards: ShardedFeatures | None = None
        self._file = _open(self.path)
        try:
            self._read_layout()
            self._verify(identity)
        except BaseException:
            self.close()
            raise

    def _read_layout(self) -> None:
        file = self._file
        try:
            self.attributes = _read_attributes(file)
            self._features = self._find_features()
            fault = _layout_fault(file, self._features, self.attributes["identity"])
            if fault is None:
                self._written = file["written"][:]
                self.image_ids: list[str] = list(file["image_ids"].asstr()[:])
                reasons = file["problems"].asstr()[:].tolist()
                if len(set(self.image_ids)) < len(self.image_ids):
                    fault = "an id occurs twice"
                elif any(np.array(reasons, object)[self._written]):
                    fault = "`written` and `problems` contradict each other"
                else:
                    self._checksums, fault = self._read_checksums(reasons)
        except FeatureError:  # of a store that does not answer
            raise
        except DAMAGED as error:
            fault = str(error)
        if fault is not None:
            raise FeatureError(
                f"{self.path}: not a feature file of this package "
                f"({one_line(fault)}); extract the features again"
            )
        self.shape: tuple[int, int, int] = self._features.shape
        self.rows = {
            name: row for row, name in enumerate(self.image_ids) if self._written[row]
        }
        self.problems = {
            name: reason
            for name, reason in zip(self.image_ids, reasons, strict=True)
            if reason
        }

    def _find_features(self) -> h5py.Dataset | ShardedFeatures:
        """Return the dataset of the file, or that of all shards."""
        file, identity = self._file, self.attributes["identity"]
        if not self.path.is_dir():
            return _own_dataset(file, "features")
        count = len(_own_dataset(file, "image_ids"))
        shape = (count, int(np.prod(identity["grid"])), int(identity["width"]))
        rows = int(file.attrs["shard_rows"])
        self._shards = ShardedFeatures(self.path, rows, shape)
        return self._shards

    def _read_checksums(
        self, problems: list[str]
    ) -> tuple[np.ndarray | None, str | None]:
        """Return the checksums of the rows, and a fault; files may have neither."""
        file = self._file
        if ("checksums" in file) != ("digest" in file.attrs):
            return None, "one of `checksums` and `digest` is absent"
        if "digest" not in file.attrs:
            return None, None
        checksums = _column(file, "checksums", len(self.image_ids))[:]
        if checksums.dtype.kind != "u":
            return None, "`checksums` are no unsigned integers"
        identity = _text_of(file.attrs["identity"])
        content = self.image_ids, problems, checksums
        digest = index_digest(identity, self.attributes["mirrored"], *content)
        whole = np.array([not problem for problem in problems], bool)
        if _text_of(file.attrs["digest"]) != digest or (whole != self._written).any():
            return None, "ids, problems or checksums differ from `digest`"
        return checksums, None

    def _verify(self, identity: dict | None) -> None:
        if self.attributes["format"] != FORMAT:
            raise FeatureError(
                f"{self.path}: `format` must be {FORMAT}. Received: "
                f"{self.attributes['format']}; extract the features again"
            )
        if not self.attributes["complete"]:
            raise FeatureError(
                f"{self.path}: incomplete; extract the features again to finish it"
            )
        if identity is None:
            return
        if difference := identity_difference(identity, self.attributes["identity"]):
            raise FeatureError(
                f"{self.path}: made by another encoder: {difference}; extract the "
                "features again or choose the encoder that made them"
            )

    def read(self, rows: Sequence[int]) -> np.ndarray:
        """Read photos by their rows, in any order and with repetitions.

        Args:
            rows: B row numbers from 0 to N - 1, values of :attr:`rows`.

        Returns:
            (B, L, D) float16.

        Raises:
            FeatureError: a row is out of range or was not written, or its chunk is
                damaged or has values that are NaN or infinite.
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
        # Each row is read once, in the order of the file.
        unique, positions = np.unique(order, return_inverse=True)
        features = np.empty((len(unique), locations, width), np.float16)
        with self._lock:
            for position, row in enumerate(unique.tolist()):
                self._read_row(row, features, position)
        finite = all_finite(features)
        if not finite.all():
            name = self.image_ids[unique[~finite][0]]
            raise FeatureError(
                f"{self.path}: the features of photo {name!r} must be finite. "
                "Received: NaN or infinity; run `features --overwrite`"
            )
        in_order = len(unique) == len(order) and (positions[1:] > positions[:-1]).all()
        # (unique, ...) -> (B, ...)
        return features if in_order else features[positions]

    def _read_row(self, row: int, features: np.ndarray, position: int) -> None:
        shards = self._shards
        try:
            dataset, place = shards.locate(row) if shards else (self._features, row)
            if self._checksums is not None:
                found = chunk_checksum(*read_chunk(dataset, place))
                if found != self._checksums[row]:
                    raise ValueError("its checksum differs")
            dataset.read_direct(features, np.s_[place], np.s_[position])
        except FeatureError:  # of a store that does not answer
            raise
        except DAMAGED as error:
            remedy = shards.remedy(row) if shards else "run `features --overwrite`"
            raise FeatureError(
                f"{self.path}: the features of photo {self.image_ids[row]!r} cannot be "
                f"read ({one_line(error)}); {remedy}"
            ) from None

    def close(self) -> None:
        """Close the file or the shards; later reads fail."""
        with self._lock:
            self._file.close()
            if self._shards is not None:
                self._shards.close()

    def __enter__(self) -> "FeatureReader":
        """Return the reader itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def parts_folder(path: str | Path) -> Path:
    """Return the folder of a feature file's parts during extraction."""
    return Path(f"{Path(path)}.parts")


def all_finite(features: np.ndarray) -> np.ndarray:
    """Return whether all values of each photo are finite.

    Args:
        features: (B, L, D) float16, contiguous.

    Returns:
        (B,) bool.
    """
    # The largest bit pattern decides where no sign bit is set, as after a ReLU: 0.4 ms
    # for 64 photos of VGG19 on one core, and 18 ms with `isfinite`.
    bits = features.view(np.uint16)
    if not bits.size or bits.max() < _INFINITE:
        return np.ones(len(features), bool)
    return np.isfinite(features).all(axis=(1, 2))  # (B, L, D) -> (B,)


def _text_of(value: str | bytes) -> str:
    """Return an attribute's text; of fixed width it is read as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _read_attributes(file: h5py.File) -> dict:
    """Return the attributes of a file, or raise one of :data:`DAMAGED`."""
    identity = parse_json(file.attrs["identity"])
    if not isinstance(identity, dict):
        raise ValueError("`identity` must be an object")
    return {
        "format": int(file.attrs["format"]),
        "identity": identity,
        "mirrored": bool(file.attrs["mirrored"]),
        "complete": bool(file.attrs["complete"]),
    }


def _layout_fault(
    file: h5py.File, features: h5py.Dataset | ShardedFeatures, identity: dict
) -> str | None:
    """Return a difference of the datasets to the documented layout, or None."""
    if features.ndim != 3 or features.dtype != np.float16 or 0 in features.shape[1:]:
        return "`features` must be (N, L, D) float16"
    count, locations, width = features.shape
    if "grid" in identity and locations != np.prod(identity["grid"]):
        return "`features` must have as many locations as the encoder's grid"
    if width != identity.get("width", width):
        return "`features` must have the encoder's width"
    for name in ("written", "image_ids", "problems"):
        dataset = _column(file, name, count)
        if name != "written" and h5py.check_string_dtype(dataset.dtype) is None:
            return f"`{name}` must be text"
    return None if file["written"].dtype == bool else "`written` must be bool"


def _column(file: h5py.File, name: str, count: int) -> h5py.Dataset:
    """Return a dataset of one value for each photo.

    Raises:
        ValueError: the entry is another one.
    """
    dataset = _own_dataset(file, name)
    if dataset.shape != (count,):
        raise ValueError(f"`{name}` must have one value for each photo")
    # A false size of the header must not allocate memory that the file lacks.
    if dataset.id.get_storage_size() < dataset.size * dataset.dtype.itemsize:
        raise ValueError(f"`{name}` is incomplete")
    return dataset


def _own_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset whose values are in the file itself; links may name others.

    Raises:
        ValueError: the entry is another one.
    """
    link = file.get(name, getlink=True)
    item = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise ValueError(f"`{name}` must be a dataset of this file")
    return item


def _open(path: Path) -> h5py.File:
    is_folder = path.is_dir()
    file = path / INDEX if is_folder else path
    try:
        require_regular(file)
        return h5py.File(file, "r")
    except FileNotFoundError:
        if is_folder or parts_folder(path).exists():
            reason = "incomplete; run the extraction again to continue it"
        else:
            reason = "no such feature file; extract the features"
        raise FeatureError(f"{path}: {reason}") from None
    except DAMAGED as error:
        raise FeatureError(
            f"{file}: damaged or not HDF5 ({one_line(error)}); extract the features "
            "again"
        ) from None
