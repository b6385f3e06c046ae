"""Write feature files of synthetic photos, of any size, quickly."""

import json
import zlib
from pathlib import Path

import h5py
import numpy as np

from benchmarks import synthetic
from benchmarks.sizes import Sizes
from data_prep.feature_part import COMPRESSION
from show_attend_tell.data.features import FORMAT, index_digest

_TEXT = h5py.string_dtype("utf-8")


def names(photos: int) -> list[str]:
    """Return the ids of photos."""
    return [f"{k:06d}" for k in range(photos)]


def write_feature_file(
    path: str | Path, photos: int, distinct: int, sizes: Sizes
) -> int:
    """Write a feature file in the program's format.

    Args:
        path: path of the file.
        photos: number of rows.
        distinct: number of rows that are generated and compressed; the others copy
            their bytes.
        sizes: sizes of the features.

    Returns:
        The size of the file in bytes.
    """
    rng = np.random.default_rng(7)
    _, L, D, *_ = sizes.letters
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        file.attrs["format"] = FORMAT
        file.attrs["identity"] = json.dumps(identity(sizes))
        file.attrs["mirrored"] = False
        file.attrs["complete"] = True
        features = file.create_dataset(
            "features", (photos, L, D), np.float16, chunks=(1, L, D), **COMPRESSION
        )
        distinct = min(distinct, photos)
        for start in range(0, distinct, 64):
            stop = min(start + 64, distinct)
            features[start:stop] = synthetic.features(rng, stop - start, sizes)
        file.flush()
        ids = names(photos)
        problems = [""] * photos
        checksums = _repeat(features, distinct)
        text = json.dumps(identity(sizes))
        file.attrs["digest"] = index_digest(text, False, ids, problems, checksums)
        file["image_ids"] = np.asarray(ids, _TEXT)
        file["written"] = np.ones(photos, bool)
        file["problems"] = np.asarray(problems, _TEXT)
        file["checksums"] = checksums
    return Path(path).stat().st_size


def _repeat(features: h5py.Dataset, distinct: int) -> np.ndarray:
    """Fill the rows after the distinct ones; return the checksum of each row."""
    chunks = [features.id.read_direct_chunk((k, 0, 0)) for k in range(distinct)]
    for row in range(distinct, features.shape[0]):
        mask, chunk = chunks[row % distinct]
        features.id.write_direct_chunk((row, 0, 0), chunk, mask)
    checksums = np.array([zlib.crc32(chunk, mask) for mask, chunk in chunks], np.uint32)
    return np.resize(checksums, features.shape[0])


def identity(sizes: Sizes) -> dict:
    """Return the identity of an encoder with features of these sizes."""
    return {
        "network": "VGG19",
        "layer": "block5_conv4",
        "grid": list(sizes.grid),
        "width": sizes.annotation_width,
    }
