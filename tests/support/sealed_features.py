"""Feature files that are changed on purpose."""

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from show_attend_tell.data.features import index_digest


@contextlib.contextmanager
def edited(path: Path) -> Iterator[h5py.File]:
    """Open a feature file to change it; then store its checksums and its digest."""
    with h5py.File(path, "r+") as file:
        yield file
        file.flush()  # the checksums are those of the chunks on the disk
        features = file["features"].id
        rows = range(len(file["features"]))
        chunks = [features.read_direct_chunk((row, 0, 0)) for row in rows]
        checksums = [zlib.crc32(chunk, mask) for mask, chunk in chunks]
        file["checksums"][:] = checksums
        identity = file.attrs["identity"]
        digest = index_digest(
            identity if isinstance(identity, str) else identity.decode(),
            bool(file.attrs["mirrored"]),
            file["image_ids"].asstr()[:].tolist(),
            file["problems"].asstr()[:].tolist(),
            checksums,
        )
        file.attrs["digest"] = np.bytes_(digest)
