"""Write and read one part of a feature file: the features of some photos in order.

A part depends on neither the process that writes it nor the other parts.

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

Shuffling of any kind scatters the long runs of zeros. Without compression a script
would need no ``hdf5plugin``, but COCO's 123,287 photos would take 25 GB in place of
2.6, which no page cache of a laptop holds.
"""

import contextlib
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import hdf5plugin
import numpy as np

from show_attend_tell.data.features import UNKNOWN_FILE, PhotoFile, index_digest
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import durable_path, fault_of_locks
from show_attend_tell.runtime.hdf5_objects import hdf5_faults, own_dataset
from show_attend_tell.runtime.untrusted import reading

COMPRESSION = hdf5plugin.Blosc(
    cname="lz4hc", clevel=5, shuffle=hdf5plugin.Blosc.NOSHUFFLE
)
# Fixes the format for all versions of HDF5; later formats store the time in the root.
LIBVER = ("earliest", "v110")


class PartContent(NamedTuple):
    """What a part says of its n photos.

    Attributes:
        features: (n, L, D) float16, zeros where there is a problem.
        problems: for each photo the reason why it is unreadable, or "".
        files: the content of each photo's file; None if all are unknown.
    """

    features: np.ndarray
    problems: Sequence[str]
    files: Sequence[PhotoFile] | None = None


class Index(NamedTuple):
    """What a written part says of its n photos besides their features.

    Attributes:
        problems: for each photo the reason why it is unreadable, or "".
        checksums: CRC-32 of each photo's compressed features.
        files: the content of each photo's file.
    """

    problems: list[str]
    checksums: list[int]
    files: list[PhotoFile]


class Part(NamedTuple):
    """A part of a feature file; any process can write it."""

    file: Path
    identity: dict  # the encoder's, from ``Encoder.identity``
    mirrored: bool  # whether the photos are mirrored
    image_ids: tuple[str, ...]  # of its n photos

    def write(self, content: PartContent) -> None:
        """Write the part atomically; several processes may write the same one.

        Raises:
            DataError: a value is NaN or infinite, or the disk cannot be written.
        """
        features = np.ascontiguousarray(content.features, np.float16)
        finite = np.isfinite(features).all(axis=(1, 2))  # (n, L, D) -> (n,)
        if not finite.all():
            name = self.image_ids[int(np.argmin(finite))]
            raise DataError(
                f"{self.file.parent}: the encoder's features of photo {name!r} must be "
                "finite. Received: NaN or infinity; check the encoder's weights"
            )
        with file_in_memory() as file:
            stored = create_features(file, features.shape, data=features)
            # The flush compresses the chunks whose bytes are read below.
            file.flush()
            rows = range(len(features))
            # HDF5 stores a chunk that would grow as it is, with a mask of 1.
            chunks = (stored.id.read_direct_chunk((row, 0, 0)) for row in rows)
            checksums = [zlib.crc32(chunk, mask) for mask, chunk in chunks]
            file.attrs["digest"] = self.digest(content.problems, checksums)
            write_column(file, "problems", content.problems)
            write_column(file, "checksums", np.array(checksums, np.uint32))
            write_files(file, content.files or [UNKNOWN_FILE] * len(features))
            file.flush()
            image = file.id.get_file_image()
        with (
            writing(self.file),
            durable_path(self.file, unique=True) as temporary,
        ):
            temporary.write_bytes(image)

    def digest(self, problems: Sequence[str], checksums: Sequence[int]) -> np.bytes_:
        """Return the attribute ``digest``, see :func:`data.features.index_digest`."""
        identity = json.dumps(self.identity)
        ids = self.image_ids
        text = index_digest(identity, self.mirrored, ids, problems, checksums)
        return np.bytes_(text)

    @contextlib.contextmanager
    def open(self) -> Iterator[h5py.File]:
        """Open the written part.

        Raises:
            DataError: it is absent, or the body raises an error of a damaged file.
        """
        with (
            reading(self.file, DataError, "delete it and run the command again"),
            # A part gets its name when it is complete, so readers need no lock.
            h5py.File(self.file, "r", locking=False) as file,
        ):
            yield file

    def read_index(self) -> Index:
        """Return what the written part says of its photos.

        Raises:
            DataError: it is damaged, or holds other photos or another encoder's.
        """
        with self.open() as file:
            names = ["problems", "checksums", "features"]
            with hdf5_faults():  # parts of earlier versions lack them
                has_files = {"file_sizes", "file_crcs"} <= set(file)
            if has_files:
                names += ["file_sizes", "file_crcs"]
            columns = {name: own_dataset(file, name) for name in names}
            with hdf5_faults():
                rows = {column.shape[:1] for column in columns.values()}
            if rows != {(len(self.image_ids),)}:
                raise ValueError("of another number of photos")
            with hdf5_faults():
                problems = columns["problems"].asstr()[:].tolist()
                checksums = columns["checksums"][:].tolist()
                digest = file.attrs["digest"]
            if digest != self.digest(problems, checksums):
                raise ValueError("its digest differs")
            files = [UNKNOWN_FILE] * len(self.image_ids)
            if has_files:
                with hdf5_faults():
                    sizes = columns["file_sizes"][:].tolist()
                    crcs = columns["file_crcs"][:].tolist()
                files = list(map(PhotoFile, sizes, crcs))
        return Index(problems, checksums, files)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a DataError that names the path if the body cannot write to the disk."""
    try:
        yield
    except OSError as error:
        if of_locks := fault_of_locks(path, error):
            raise DataError(f"{path}: {of_locks}") from None
        raise DataError(
            f"{path}: cannot be written: {error.strerror or error}; free disk space or "
            "choose another folder, and run the command again, without --overwrite, to "
            "resume"
        ) from None


@contextlib.contextmanager
def file_in_memory() -> Iterator[h5py.File]:
    """Yield an HDF5 file in memory: HDF5 may end the process if a write fails."""
    options = {"driver": "core", "backing_store": False, "libver": LIBVER}
    with h5py.File("memory", "w", **options) as file:
        yield file


def create_features(file: h5py.File, shape: tuple, **values: object) -> h5py.Dataset:
    """Create the dataset of features, a compressed chunk for each photo."""
    # Without the time, so that the same features are the same bytes.
    options = {"chunks": (1, *shape[1:]), "track_times": False, **COMPRESSION}
    return file.create_dataset("features", shape, **values, **options)


def fixed_width(texts: Sequence[str]) -> np.ndarray:
    """Return texts as an array of UTF-8, as wide as the longest.

    HDF5 stores texts of any width in a heap without checksum, and a flipped bit there
    may make it loop forever.
    """
    return np.array([text.encode() for text in texts], np.bytes_)


def write_column(
    file: h5py.File, name: str, values: Sequence[str] | np.ndarray
) -> None:
    """Write one value for each photo: texts, or an array of numbers."""
    if isinstance(values, np.ndarray):
        column = values
    else:
        column = fixed_width(values)
        column = column.astype(h5py.string_dtype("utf-8", column.dtype.itemsize))
    file.create_dataset(name, data=column, track_times=False)


def write_files(file: h5py.File, files: Sequence[PhotoFile]) -> None:
    """Write the size and the CRC-32 of each photo's file."""
    sizes = [of_photo.size for of_photo in files]
    crcs = [of_photo.crc for of_photo in files]
    write_column(file, "file_sizes", np.array(sizes, np.uint64))
    write_column(file, "file_crcs", np.array(crcs, np.uint32))
