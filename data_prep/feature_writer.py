"""Write a feature set shard by shard, so that an interrupted extraction resumes.

The photos are divided into shards of :data:`SHARD_ROWS` in their order. Each shard is
written atomically, by this process or by others on machines that see the same paths,
and its content depends on neither the writer nor the other shards. At the end the index
is written beside the shards; or, for a set of one file, the compressed chunks of all
shards are copied to that file and the shards are deleted. So the bytes of a set do not
depend on interruptions. :mod:`data.features` documents the layout.
"""

import contextlib
import errno
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np
from tqdm import tqdm

from data_prep.feature_shard import (
    LIBVER,
    Shard,
    create_features,
    file_in_memory,
    fixed_width,
    write_column,
)
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.features import FORMAT, FeatureReader
from show_attend_tell.data.shard_store import (
    HEADER,
    INDEX,
    STORE,
    FolderStore,
    ObjectStore,
    durable_path,
    parts_folder,
    shard_name,
    shards_folder,
    store_at,
    stored_url,
    unwritable,
)
from show_attend_tell.runtime.errors import FeatureError
from show_attend_tell.runtime.files import TEMPORARY, locked
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

_REMEDY = "pass --overwrite to replace the features, or move them"
SHARD_ROWS = 256  # photos: half a minute of VGG16 on one core, 5 MB
# Bytes of HDF5's structures: of the file, and for each row of its indices and texts.
_OVERHEAD, _ROW_OVERHEAD = 1 << 16, 256


class FeatureWriter:
    """Write one feature set, in any number of runs.

    Use the writer as a context manager, which locks the set against another extraction
    and leaves the disk unchanged until it is entered. Write the shards of
    :attr:`missing`, then call :meth:`finish`. Existing features, complete or not, keep
    their form, a file or a folder of shards. If the index of a folder is absent,
    :meth:`finish` makes it again from the shards.

    Args:
        path: the feature file.
        identity: the encoder's identity, from ``Encoder.identity``.
        image_ids: N ids in the order of the rows.
        mirrored: whether the photos are mirrored.
        overwrite: whether to delete existing features in any form.
        shards: whether a new set becomes a folder of shards.
        url: the object store that receives the shards of a new set.

    Attributes:
        path: the feature file or the folder of shards.
        complete: whether the set already exists, made by this encoder from these
            photos.
        missing: numbers of the shards to write.
        header_file: the file beside the shards that names their encoder and photos.
    """

    shard_rows = SHARD_ROWS  # of every shard but the last

    def __init__(
        self,
        path: str | Path,
        identity: dict,
        image_ids: Sequence[str],
        mirrored: bool = False,
        overwrite: bool = False,
        shards: bool = False,
        url: str | None = None,
    ):
        self.path = self._file = Path(path)
        self.image_ids, self.identity = list(image_ids), identity
        self.mirrored, self._overwrite = mirrored, overwrite
        self._shards, self._url = shards or url is not None, url
        self._numbers = range(-(-len(self.image_ids) // self.shard_rows))
        self._lock = contextlib.ExitStack()
        self.complete = False
        self.missing: list[int] = []

    def __enter__(self) -> "FeatureWriter":
        """Lock the set and determine the missing shards.

        Raises:
            FeatureError: another extraction is running, or the existing features
                belong to another encoder, to other photos or to another store.
        """
        taken = FeatureError(
            f"{self._file}: another extraction is writing it; wait for its end"
        )
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(Path(f"{self._file}.lock"), taken))
                if self._overwrite:
                    folder = shards_folder(self._file)
                    store_at(folder, stored_url(folder)).delete()
                    for present in (folder, parts_folder(self._file)):
                        FolderStore(present).delete()
                    self._file.unlink(missing_ok=True)
                self._choose_form()
                self._find_missing()
            except OSError as error:
                raise unwritable(self.path, error) from None
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; the written shards are kept for the next run."""
        self._lock.close()

    def _choose_form(self) -> None:
        """Choose the form and the store of existing features, or of a new set."""
        parts, folder = parts_folder(self._file), shards_folder(self._file)
        begun_as_file = self._file.exists() or parts.exists()
        if begun_as_file and self._url is not None:
            raise FeatureError(
                f"{self._file}: already present as a file, not in {self._url}; pass "
                "--overwrite to replace it, or leave --store out"
            )
        self._joins = begun_as_file or not (self._shards or folder.is_dir())
        if self._joins:
            self._folder, self._result = parts, self._file
        else:
            self.path = self._folder = folder
            self._result = folder / INDEX
        self.header_file = self._folder / HEADER
        if self._joins:
            return
        if self.header_file.exists():
            url = stored_url(folder)
            if self._url not in (None, url):
                self._refuse(f"its shards are in {url or 'this folder'}")
            self._url = url
        elif self._url and ObjectStore(self._url).sizes().keys() - {HEADER}:
            raise FeatureError(
                f"{self._url}: must be empty. Received: objects, of features that "
                f"{folder} does not name; delete them, or choose another store"
            )

    def _find_missing(self) -> None:
        header = self._header()
        if self._result.exists():
            lost = not self._joins and len(self._sizes()) < len(self._numbers)
            if not lost:
                self._verify_finished()
                self.complete = True
                if self._joins:
                    FolderStore(self._folder).delete()
                return
            self._verify_header(header)
            self._result.unlink()  # `finish` writes it again
        elif self.header_file.exists():
            self._verify_header(header)
        else:
            self._begin(json.dumps(header, indent=1).encode())
        present = self._sizes()
        self.missing = [number for number in self._numbers if number not in present]

    def _begin(self, header: bytes) -> None:
        """Make the folder of the shards, with the header as its last file."""
        folder = FolderStore(self._folder)
        if self._url:  # first, in case the store refuses
            ObjectStore(self._url).write(HEADER, header)
        folder.delete()
        self._folder.mkdir()
        if self._url:
            folder.write(STORE, json.dumps({"url": self._url}, indent=1).encode())
        folder.write(HEADER, header)

    def _sizes(self) -> dict[int, int]:
        """Return the bytes of each shard that is present."""
        sizes = store_at(self._folder, self._url).sizes()
        names = {number: shard_name(number) for number in self._numbers}
        return {n: sizes[name] for n, name in names.items() if name in sizes}

    def _header(self) -> dict:
        ids = "\n".join(self.image_ids).encode()
        return {
            "format": FORMAT,
            "part": self.shard_rows,
            "mirrored": self.mirrored,
            "photos": len(self.image_ids),
            "photos_digest": hashlib.sha256(ids).hexdigest(),
            "identity": self.identity,
        }

    def _verify_header(self, expected: dict) -> None:
        with reading(self.header_file, FeatureError, _REMEDY):
            header = parse_json(read_text_bytes(self.header_file))
            if not isinstance(header["identity"], dict):
                raise ValueError("`identity` must be an object")
        if header == expected:
            return
        theirs, ours = header.pop("identity"), expected.pop("identity")
        difference = (
            identity_difference(ours, theirs, exact=True)
            or identity_difference(expected, header)
            or "precision or library versions differ"
        )
        self._refuse(f"begun with other settings: {difference}")

    def _verify_finished(self) -> None:
        with FeatureReader(self.path) as reader:
            theirs, ids = reader.attributes["identity"], reader.image_ids
        if difference := identity_difference(self.identity, theirs, exact=True):
            self._refuse(f"made by another encoder: {difference}")
        if ids != self.image_ids:
            self._refuse(
                f"made from other photos ({len(ids)}, the manifest has "
                f"{len(self.image_ids)})"
            )

    def _refuse(self, reason: str) -> NoReturn:
        raise FeatureError(f"{self.path}: {reason}; {_REMEDY}")

    def reopen(self, rows: Iterable[int]) -> None:
        """Make shards of a complete set missing, so that they are written again.

        A set of one file needs all shards again and stays as it is until
        :meth:`finish` replaces it: an interruption leaves the old file.

        Args:
            rows: rows whose shards are written again.
        """
        self.complete = False
        if self._joins:
            self._begin(json.dumps(self._header(), indent=1).encode())
            self.missing = list(self._numbers)
        else:
            self._result.unlink()  # `finish` writes it again
            self.missing = sorted({row // self.shard_rows for row in rows})

    def rows(self, number: int) -> range:
        """Return the rows of a shard."""
        first = number * self.shard_rows
        return range(first, min(first + self.shard_rows, len(self.image_ids)))

    def shard(self, number: int) -> Shard:
        """Return a shard with its place, encoder and photos."""
        rows = self.rows(number)
        ids = tuple(self.image_ids[rows.start : rows.stop])
        file = self._folder / shard_name(number)
        return Shard(file, self.identity, self.mirrored, ids, self._url)

    def size(self) -> int:
        """Return the bytes of the finished set."""
        if self._joins:
            return self.path.stat().st_size
        local = sum(FolderStore(self._folder).sizes().values())
        return local + (sum(self._sizes().values()) if self._url else 0)

    def progress_bar(self, shown: bool) -> tqdm:
        """Return a progress bar of the photos."""
        total = len(self.image_ids)
        done = total - sum(len(self.rows(number)) for number in self.missing)
        return progress_bar(total, "photo", self.path.name, done=done, shown=shown)

    def finish(self) -> None:
        """Write the index, or join all shards to one file and delete them.

        Raises:
            FeatureError: a shard is damaged, or the disk cannot be written.
        """
        for abandoned in self._folder.glob(f"{TEMPORARY}*"):  # by killed processes
            abandoned.unlink(missing_ok=True)
        columns = [self.shard(number).read_columns() for number in self._numbers]
        problems = [problem for column, _ in columns for problem in column]
        checksums = [checksum for _, column in columns for checksum in column]
        if not self._joins:
            with file_in_memory() as file:
                self._write_index(file, problems, checksums)
                file.flush()
                content = file.id.get_file_image()
            FolderStore(self._folder).write(INDEX, content)
            return
        with durable_path(self.path) as temporary:
            self._reserve(temporary, problems)
            with h5py.File(temporary, "w", libver=LIBVER) as file:
                self._write_index(file, problems, checksums)
        FolderStore(self._folder).delete()

    def _write_index(
        self, file: h5py.File, problems: list[str], checksums: list[int]
    ) -> None:
        """Write attributes and columns, in a single file also the features."""
        file.attrs["format"] = FORMAT
        file.attrs["identity"] = np.bytes_(json.dumps(self.identity))
        file.attrs["mirrored"] = self.mirrored
        file.attrs["complete"] = True
        if self._joins:
            self._copy_features(file, checksums)
        else:
            file.attrs["shard_rows"] = self.shard_rows
        whole = Shard(self.path, self.identity, self.mirrored, tuple(self.image_ids))
        file.attrs["digest"] = whole.digest(problems, checksums)
        written = np.array([not problem for problem in problems], bool)
        write_column(file, "image_ids", self.image_ids)
        write_column(file, "written", written)
        write_column(file, "problems", problems)
        write_column(file, "checksums", np.array(checksums, np.uint32))

    def _copy_features(self, file: h5py.File, checksums: list[int]) -> None:
        """Copy the compressed chunks of all shards."""
        rows, columns = self.identity["grid"]
        shape = (len(self.image_ids), rows * columns, self.identity["width"])
        features = create_features(file, shape, dtype=np.float16)
        for number in self._numbers:
            with self.shard(number).open() as source:
                for place, row in enumerate(self.rows(number)):
                    at = (place, 0, 0)
                    mask, chunk = source["features"].id.read_direct_chunk(at)
                    if zlib.crc32(chunk, mask) != checksums[row]:
                        raise ValueError("its checksum differs")
                    features.id.write_direct_chunk((row, 0, 0), chunk, mask)

    def _reserve(self, path: Path, problems: list[str]) -> None:
        """Raise an OSError if the joined file does not fit on the disk.

        HDF5 may end the process if a write fails.
        """
        bound = fixed_width(self.image_ids).nbytes + fixed_width(problems).nbytes
        bound += _OVERHEAD + _ROW_OVERHEAD * len(self.image_ids)
        bound += sum(self._sizes().values())
        if not hasattr(os, "posix_fallocate"):  # on macOS and Windows
            return
        try:
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, bound)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
