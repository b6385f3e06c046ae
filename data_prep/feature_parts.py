"""Write and read one part of a feature set: the features of some photos in order.

A part does not depend on the process that writes it nor on the other parts. Parts are
joined to a feature file, or are themselves the shards of a folder.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np

from data_prep.feature_columns import fixed_width, write_column
from show_attend_tell.data.feature_checksums import (
    chunk_checksum,
    index_digest,
    read_chunk,
)
from show_attend_tell.data.features import COMPRESSION, DAMAGED, all_finite
from show_attend_tell.data.shard_store import ObjectStore
from show_attend_tell.runtime.errors import FeatureError, one_line
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.gc_pause import uncollected

# Fixes the format for all versions of HDF5; later formats store the time in the root.
LIBVER = ("earliest", "v110")


@dataclass(frozen=True)
class Part:
    """A part of a feature set, not yet written.

    Attributes:
        file: the file of the part.
        identity: the encoder's identity, from ``Encoder.identity``.
        mirrored: whether the features are those of mirrored photos.
        image_ids: ids of the n photos.
        url: the object store that receives it under the file's name; none by default.
    """

    file: Path
    identity: dict
    mirrored: bool
    image_ids: tuple[str, ...]
    url: str | None = None


def write_part(part: Part, features: np.ndarray, problems: Sequence[str]) -> None:
    """Write one part atomically; several processes may write the same one.

    Args:
        part: its file, encoder and photos.
        features: (n, L, D) float16, zeros where there is a problem.
        problems: for each row the reason why the photo is unreadable, or "".

    Raises:
        FeatureError: a value is NaN or infinite, or the disk or the store cannot be
            written.
    """
    features = np.ascontiguousarray(features, np.float16)
    finite = all_finite(features)
    if not finite.all():
        name = part.image_ids[int(np.argmin(finite))]
        raise FeatureError(
            f"{part.file.parent}: the encoder's features of photo {name!r} must be "
            "finite. Received: NaN or infinity; check the encoder's weights"
        )
    # The part is built in memory: HDF5 may end the process if a write fails.
    with h5py.File(
        "part", "w", driver="core", backing_store=False, libver=LIBVER
    ) as file:
        stored = file.create_dataset(
            "features",
            data=features,
            chunks=(1, *features.shape[1:]),
            track_times=False,
            **COMPRESSION,
        )
        file.flush()
        checksums = [
            chunk_checksum(*read_chunk(stored, place)) for place in range(len(features))
        ]
        file.attrs["digest"] = digest_of(part, problems, checksums)
        write_column(file, "problems", fixed_width(problems))
        write_column(file, "checksums", np.array(checksums, np.uint32))
        file.flush()
        content = file.id.get_file_image()
    if part.url is not None:
        ObjectStore(part.url).write(part.file.name, content)
        return
    with durable_path(part.file, unique=True) as temporary:
        temporary.write_bytes(content)


def digest_of(
    part: Part, problems: Sequence[str], checksums: Sequence[int]
) -> np.bytes_:
    """Return the digest of a part, or of all photos as one part, as an attribute."""
    identity, ids = json.dumps(part.identity), part.image_ids
    return np.bytes_(index_digest(identity, part.mirrored, ids, problems, checksums))


@contextlib.contextmanager
def open_part(path: Path, url: str | None = None) -> Iterator[h5py.File]:
    """Open a part for reading.

    Args:
        path: its file.
        url: the object store that holds it under the file's name.

    Raises:
        FeatureError: the part is absent, or the body raises an error of a damaged file.
    """
    try:
        with contextlib.ExitStack() as stack:
            file: Path | BinaryIO = path
            if url is not None:
                # HDF5's lock is held while the store is read in another thread, whose
                # collector must not free objects of HDF5, which would need the lock.
                stack.enter_context(uncollected())
                file = stack.enter_context(ObjectStore(url).open(path.name))
            yield stack.enter_context(h5py.File(file, "r"))
    except FeatureError:  # of a store that does not answer
        raise
    except DAMAGED as error:
        raise FeatureError(
            f"{path}: damaged ({one_line(error)}); delete the file and run the "
            "command again"
        ) from None


def read_columns(part: Part) -> tuple[list[str], list[int]]:
    """Return the problems and the checksums of a written part.

    Raises:
        FeatureError: the part is damaged, or of other photos or another encoder.
    """
    with open_part(part.file, part.url) as source:
        problems = source["problems"].asstr()[:].tolist()
        checksums = source["checksums"][:].tolist()
        rows = {len(problems), len(checksums), len(source["features"])}
        if rows != {len(part.image_ids)}:
            raise ValueError("of another number of photos")
        if source.attrs["digest"] != digest_of(part, problems, checksums):
            raise ValueError("its digest differs")
    return problems, checksums


@contextlib.contextmanager
def durable_path(path: Path, unique: bool = False) -> Iterator[Path]:
    """Yield an `atomic_path`; flush its file to the disk before it is renamed.

    Otherwise a power failure could leave an empty file that counts as complete.

    Raises:
        FeatureError: the file cannot be written.
    """
    try:
        with atomic_path(path, unique) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> FeatureError:
    """Return the error of a path that cannot be written."""
    return FeatureError(
        f"{path}: cannot be written: {error.strerror or error}; free disk space or "
        "choose another folder, and run the command again, without --overwrite, to "
        "resume"
    )
