"""Compute the checksums of a feature file: one for each photo, one for all else.

HDF5's own checksum of chunks, Fletcher32, protects a chunk but not the index that
finds it, so that a flipped bit there may return another photo's values.
"""

import hashlib
import json
import zlib
from collections.abc import Sequence

import h5py
import numpy as np


def read_chunk(features: h5py.Dataset, row: int) -> tuple[int, bytes]:
    """Return the filter mask and the stored bytes of one photo.

    A chunk that compression would make larger is stored uncompressed, with a mask of 1.
    """
    return features.id.read_direct_chunk((row, 0, 0))


def chunk_checksum(mask: int, chunk: bytes) -> int:
    """Return the CRC-32 of the stored bytes of one photo, begun from its mask."""
    return zlib.crc32(chunk, mask)


def index_digest(
    identity: str,
    mirrored: bool,
    image_ids: Sequence[str],
    problems: Sequence[str],
    checksums: Sequence[int],
) -> str:
    """Return the SHA-256 of all that a feature file holds besides the features.

    Args:
        identity: the encoder's identity, as the text of the attribute.
        mirrored: whether the features are those of mirrored photos.
        image_ids: N ids.
        problems: N reasons, "" for a photo that was written.
        checksums: N values of :func:`chunk_checksum`.
    """
    texts = json.dumps([identity, mirrored, list(image_ids), list(problems)])
    numbers = np.asarray(checksums, "<u4").tobytes()
    return hashlib.sha256(texts.encode() + numbers).hexdigest()
