"""Join a folder of shards, in which version 0.3 could keep features, to one file.

Such a folder, ``features-<network>-<layer>.shards``, has ``header.json``, an
``index.h5`` with all columns but the features, and shards ``000000.h5``, ``000001.h5``
and so on, which are what :mod:`data_prep.feature_part` calls parts.
"""

import os
import shutil
from pathlib import Path

import h5py

from data_prep.feature_writer import FeatureWriter, read_header
from show_attend_tell.data.features import parts_folder
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.hdf5_objects import hdf5_faults, own_dataset
from show_attend_tell.runtime.untrusted import (
    is_text,
    parse_json,
    read_text_bytes,
    reading,
)

_REMEDY = "delete the folder and extract the features again"
INDEX = "index.h5"
HEADER = "header.json"
STORE = "store.json"


def is_shards_folder(path: Path) -> bool:
    """Return whether a path is a folder of shards of version 0.3."""
    return path.suffix == ".shards" and (path / HEADER).is_file()


def join_shards(folder: Path) -> Path:
    """Write the feature file of a folder of shards; the folder stays.

    Args:
        folder: the folder of shards.

    Returns:
        The path of the file, beside the folder.

    Raises:
        DataError: the folder is incomplete or damaged, its shards are in an object
            store, or there is a feature file already.
    """
    path = folder.with_suffix(".h5")
    if path.exists():
        raise DataError(f"{path}: already present; delete it, or {folder}")
    if (folder / STORE).exists():
        with reading(folder / STORE, DataError, _REMEDY):
            store = parse_json(read_text_bytes(folder / STORE))
            if not isinstance(store, dict) or not is_text(store.get("url")):
                raise ValueError("`url` must be a text")
        raise DataError(
            f"{folder}: its shards are in {store['url']}; copy them into this folder, "
            f"delete {STORE}, and run the command again"
        )
    if not (folder / INDEX).exists():
        raise DataError(f"{folder}: incomplete, without {INDEX}; {_REMEDY}")
    header = _read_header(folder / HEADER)
    with (
        reading(folder / INDEX, DataError, _REMEDY),
        h5py.File(folder / INDEX, "r", locking=False) as index,
    ):
        column = own_dataset(index, "image_ids")
        with hdf5_faults():
            image_ids = column.asstr()[:].tolist()
    writer = FeatureWriter(path, header["identity"], image_ids, header["mirrored"])
    # Shards are taken as parts, of their own number of photos.
    writer.part_rows = header["part"]
    with writer:
        try:
            for number in writer.missing:
                part = writer.part(number).file
                _link_or_copy(folder / part.name, part)
            writer.finish()
        # Otherwise the next extraction would take them for parts of its own.
        except BaseException:
            shutil.rmtree(parts_folder(path), ignore_errors=True)
            raise
    return path


def _read_header(file: Path) -> dict:
    """Return the header of a folder of shards, with values of the right types."""
    header = read_header(file, _REMEDY)
    identity = header["identity"]
    grid = identity.get("grid")
    sizes = [header.get("part"), identity.get("width")]
    if isinstance(grid, list) and len(grid) == 2:
        sizes += grid
    else:
        sizes.append(None)
    with reading(file, DataError, _REMEDY):
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError("`part`, `grid` and `width` must be integers above 0")
        if not isinstance(header.get("mirrored"), bool):
            raise ValueError("`mirrored` must be true or false")
    return header


def _link_or_copy(source: Path, target: Path) -> None:
    """Link a shard, or copy it where the file system has no hard links."""
    if not source.exists():
        raise DataError(f"{source}: absent; {_REMEDY}")
    try:
        # A link costs no space, and the shard stays when the part is deleted.
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
