"""Write the features of a data set as a folder of shards with one index.

The parts of an extraction are themselves the shards, so nothing is joined at the end
and no disk space is needed twice; see :mod:`data.feature_shards` for the layout, and
:mod:`data.shard_store` for shards in an object store.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import h5py

from data_prep.feature_parts import LIBVER, Part, durable_path, read_columns
from data_prep.feature_writer import FeatureWriter
from show_attend_tell.data.feature_shards import (
    HEADER,
    INDEX,
    SHARD_ROWS,
    feature_set,
    shard_name,
    shards_folder,
)
from show_attend_tell.data.features import parts_folder
from show_attend_tell.data.shard_store import (
    STORE,
    ObjectStore,
    store_text,
    stored_url,
)
from show_attend_tell.runtime.errors import FeatureError
from show_attend_tell.runtime.files import TEMPORARY


class ShardWriter(FeatureWriter):
    """Write a folder of shards, with the interface of :class:`FeatureWriter`.

    Processes on other machines may write the missing parts at the same time, by
    :func:`data_prep.feature_parts.write_part`. If the index is absent,
    :meth:`finish` makes it again from the shards.
    """

    part_rows = SHARD_ROWS
    _copies = 1

    def __init__(
        self,
        path: str | Path,
        identity: dict,
        image_ids: Sequence[str],
        mirrored: bool = False,
        overwrite: bool = False,
        url: str | None = None,
    ):
        """Initialize the writer; see :class:`FeatureWriter`.

        Args:
            path: the feature file whose place the folder takes.
            identity: see there.
            image_ids: see there.
            mirrored: see there.
            overwrite: see there.
            url: the object store that receives the shards; by default that of the
                shards begun before, or the folder.
        """
        super().__init__(path, identity, image_ids, mirrored, overwrite)
        self.path = self._parts = shards_folder(path)
        self._result = self.path / INDEX
        self._url = url

    def _file(self, part: int) -> Path:
        return self.path / shard_name(part)

    def part(self, number: int) -> Part:
        """Return a part with its file, its store, encoder and photos."""
        return dataclasses.replace(super().part(number), url=self._url)

    def _find_missing(self) -> None:
        """Determine the store and the missing parts, those lost later included."""
        begun = self.header_file.exists() and not self._overwrite
        if begun:
            found = stored_url(self.path)
            if self._url not in (None, found):
                self._refuse(f"its shards are in {found or 'this folder'}")
            self._url = found
        elif self._url is not None:
            if self._overwrite:
                self._delete()
            if ObjectStore(self._url).sizes().keys() - {HEADER}:
                raise FeatureError(
                    f"{self._url}: must be empty. Received: objects, of features that "
                    f"{self.path} does not name; delete them, or choose another store"
                )
        if not self._overwrite and self._result.exists():
            if self._part_sizes().keys() != set(self._part_numbers):  # lost since then
                self._verify_header(self.header_file, self._header())
                self._result.unlink()  # written again by `finish`
        super()._find_missing()

    def _begin(self, header: dict) -> None:
        if self._url is not None:  # first, in case that it cannot be written
            content = json.dumps(header, indent=1).encode()
            ObjectStore(self._url).write(HEADER, content)
        super()._begin(header)
        if self._url is not None:
            with durable_path(self.path / STORE) as temporary:
                temporary.write_text(store_text(self._url), encoding="utf-8")

    def _part_sizes(self) -> dict[int, int]:
        if self._url is None:
            return super()._part_sizes()
        sizes = ObjectStore(self._url).sizes()
        names = {shard_name(part): part for part in self._part_numbers}
        return {names[name]: size for name, size in sizes.items() if name in names}

    def _delete_parts(self) -> None:
        """Keep the parts: they are the shards."""

    def size(self) -> int:
        """Return the bytes of all files of the folder, and of all shards."""
        local = sum(file.stat().st_size for file in self.path.iterdir())
        return local if self._url is None else local + sum(self._part_sizes().values())

    def remaining_bytes(self) -> int:
        """Return the bytes still to be written to the disk, none with a store."""
        return super().remaining_bytes() if self._url is None else 0

    def finish(self) -> None:
        """Write the index from the columns of all shards.

        Raises:
            FeatureError: a shard is damaged, or the disk cannot be written.
        """
        for left_over in self.path.glob(f"{TEMPORARY}*"):  # by processes killed
            left_over.unlink(missing_ok=True)
        reasons, checksums = [], []
        for number in self._part_numbers:
            columns = read_columns(self.part(number))
            reasons += columns[0]
            checksums += columns[1]
        # The index is built in memory: HDF5 may end the process if a write fails.
        with h5py.File(
            "index", "w", driver="core", backing_store=False, libver=LIBVER
        ) as file:
            self._write_attributes(file)
            file.attrs["shard_rows"] = self.part_rows
            self._write_columns(file, reasons, checksums)
            file.flush()
            content = file.id.get_file_image()
        with durable_path(self._result) as temporary:
            temporary.write_bytes(content)


def open_writer(
    path: str | Path,
    identity: dict,
    image_ids: Sequence[str],
    mirrored: bool = False,
    overwrite: bool = False,
    shards: bool = False,
    url: str | None = None,
) -> FeatureWriter:
    """Return the writer of features in the form that they have already.

    Args:
        path: the feature file.
        identity: see :class:`FeatureWriter`.
        image_ids: see there.
        mirrored: see there.
        overwrite: replace the features, also by those of another form.
        shards: whether new features become a folder of shards.
        url: the object store that receives new shards.

    Raises:
        FeatureError: `url` is given, and the features are already a file.
    """
    shards = shards or url is not None
    if not overwrite:
        begun = Path(path).exists() or parts_folder(path).exists()
        if begun and url is not None:
            raise FeatureError(
                f"{path}: already present as a file, not in {url}; pass --overwrite to "
                "replace it, or leave --store out"
            )
        shards = not begun and (shards or feature_set(path).is_dir())
    if not shards:
        return FeatureWriter(path, identity, image_ids, mirrored, overwrite)
    return ShardWriter(path, identity, image_ids, mirrored, overwrite, url)
