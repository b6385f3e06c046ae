"""Write the features of a data set as a folder of shards with one index.

The parts of an extraction are themselves the shards, so nothing is joined at the end
and no disk space is needed twice; see :mod:`data.feature_shards` for the layout.
"""

from collections.abc import Sequence
from pathlib import Path

import h5py

from data_prep.feature_parts import LIBVER, durable_path, read_columns
from data_prep.feature_writer import FeatureWriter
from show_attend_tell.data.feature_shards import (
    INDEX,
    SHARD_ROWS,
    feature_set,
    shard_file,
    shards_folder,
)
from show_attend_tell.data.features import parts_folder
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
    ):
        """Initialize the writer; see :class:`FeatureWriter`.

        Args:
            path: the feature file whose place the folder takes.
            identity: see there.
            image_ids: see there.
            mirrored: see there.
            overwrite: see there.
        """
        super().__init__(path, identity, image_ids, mirrored, overwrite)
        self.path = self._parts = shards_folder(path)
        self._result = self.path / INDEX

    def _file(self, part: int) -> Path:
        return shard_file(self.path, part)

    def _find_missing(self) -> None:
        """Determine the missing parts, also those lost after the index was written."""
        if not self._overwrite and self._result.exists():
            present = {file.name for file in self.path.iterdir()}
            names = {self._file(part).name for part in self._part_numbers}
            if not names <= present:
                self._verify_header(self.header_file, self._header())
                self._result.unlink()  # written again by `finish`
        super()._find_missing()

    def _delete_parts(self) -> None:
        """Keep the parts: they are the shards."""

    def size(self) -> int:
        """Return the bytes of all files of the folder."""
        return sum(file.stat().st_size for file in self.path.iterdir())

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
) -> FeatureWriter:
    """Return the writer of features in the form that they have already.

    Args:
        path: the feature file.
        identity: see :class:`FeatureWriter`.
        image_ids: see there.
        mirrored: see there.
        overwrite: replace the features, also by those of another form.
        shards: whether new features become a folder of shards.
    """
    if not overwrite:
        begun = Path(path).exists() or parts_folder(path).exists()
        shards = not begun and (shards or feature_set(path).is_dir())
    writer = ShardWriter if shards else FeatureWriter
    return writer(path, identity, image_ids, mirrored, overwrite)
