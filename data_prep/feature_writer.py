"""Write a feature file part by part, so that an interrupted extraction resumes.

The photos are divided into parts of :data:`PART_ROWS` in their order. Each part is an
HDF5 file in a folder beside the feature file, ``<file>.parts``, which begins with
``header.json``, the encoder and the photos. A part is written atomically, by this
process or by others on machines that see the same paths, and its content depends on
neither the writer nor the other parts. At the end the compressed chunks of all parts
are copied to the feature file and the parts are deleted. So the bytes of a file do not
depend on interruptions. :mod:`data.features` documents its layout.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np
from tqdm import tqdm

from data_prep.feature_part import (
    LIBVER,
    Index,
    Part,
    create_features,
    fixed_width,
    write_column,
    write_files,
    writing,
)
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.features import (
    FORMAT,
    FeatureReader,
    parts_folder,
)
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import (
    TEMPORARY,
    atomic_write,
    durable_path,
    locked,
)
from show_attend_tell.runtime.hdf5_objects import hdf5_faults, own_dataset
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

_REMEDY = "pass --overwrite to replace the features, or move them"
PART_ROWS = 256  # photos: half a minute of VGG16 on one core, 5 MB
# Bytes of HDF5's structures: of the file, and for each row of its indices and texts.
_OVERHEAD = 1 << 16
_ROW_OVERHEAD = 256


def read_header(file: Path, remedy: str) -> dict:
    """Return the header of a folder of parts.

    Raises:
        DataError: it is absent or malformed.
    """
    with reading(file, DataError, remedy):
        header = parse_json(read_text_bytes(file))
        if not isinstance(header, dict) or not isinstance(header.get("identity"), dict):
            raise ValueError("`identity` must be an object")
    return header


class FeatureWriter:
    """Write one feature file, in any number of runs.

    Use the writer as a context manager, which locks the file against another extraction
    and leaves the disk unchanged until it is entered. Write the parts of
    :attr:`missing`, then call :meth:`finish`.

    Args:
        path: the feature file.
        identity: the encoder's identity, from ``Encoder.identity``.
        image_ids: N ids in the order of the rows.
        mirrored: whether the photos are mirrored.
        overwrite: whether to delete existing features.

    Attributes:
        path: the feature file.
        overwrite: as above.
        complete: whether the file already exists, made by this encoder from these
            photos.
        missing: numbers of the parts to write.
        header_file: the file beside the parts that names their encoder and photos.
    """

    part_rows = PART_ROWS  # of every part but the last

    def __init__(
        self,
        path: str | Path,
        identity: dict,
        image_ids: Sequence[str],
        mirrored: bool = False,
        overwrite: bool = False,
    ):
        self.path = Path(path)
        self.identity = identity
        self.image_ids = list(image_ids)
        self.mirrored = mirrored
        self.overwrite = overwrite
        self._folder = parts_folder(self.path)
        self.header_file = self._folder / "header.json"
        self._lock = contextlib.ExitStack()
        self.complete = False
        self.missing: list[int] = []

    def __enter__(self) -> "FeatureWriter":
        """Lock the file and determine the missing parts.

        Raises:
            DataError: another extraction is running, or the existing features
                belong to another encoder or to other photos.
        """
        taken = DataError(
            f"{self.path}: another extraction is writing it; wait for its end"
        )
        with contextlib.ExitStack() as stack, writing(self.path):
            stack.enter_context(locked(Path(f"{self.path}.lock"), taken))
            if self.overwrite:
                self._delete_parts()
                self.path.unlink(missing_ok=True)
            self._find_missing()
            # An error before this line releases the lock.
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; the written parts are kept for the next run."""
        self._lock.close()

    def _find_missing(self) -> None:
        if self.path.exists():
            self._verify_finished()
            self.complete = True
            # Left by a process that was killed after it had joined them.
            self._delete_parts()
            return
        self._resume()

    def _resume(self) -> None:
        """Continue the parts that are present, or begin a folder for them."""
        header = self._header()
        if self.header_file.exists():
            self._verify_header(header)
        else:
            self._delete_parts()
            self._folder.mkdir()
            # The last file, without which the parts are of unknown origin.
            atomic_write(self.header_file, json.dumps(header, indent=1))
        present = self._sizes()
        self.missing = [number for number in self._numbers if number not in present]

    def _delete_parts(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _numbers(self) -> range:
        """The numbers of all parts."""
        # The quotient is rounded up, for a last part of fewer photos.
        return range(-(-len(self.image_ids) // self.part_rows))

    @property
    def written(self) -> list[int]:
        """The numbers of the parts that are present."""
        return sorted({*self._numbers}.difference(self.missing))

    def discard(self, number: int) -> None:
        """Delete a part, so that it is missing."""
        self._part_file(number).unlink(missing_ok=True)
        self.missing = sorted([*self.missing, number])

    def _part_file(self, number: int) -> Path:
        return self._folder / f"{number:06d}.h5"

    def _sizes(self) -> dict[int, int]:
        """Return the bytes of each part that is present."""
        sizes = {}
        for number in self._numbers:
            with contextlib.suppress(FileNotFoundError):
                sizes[number] = self._part_file(number).stat().st_size
        return sizes

    def _header(self) -> dict:
        ids = "\n".join(self.image_ids).encode()
        return {
            "format": FORMAT,
            "part": self.part_rows,
            "mirrored": self.mirrored,
            "photos": len(self.image_ids),
            "photos_digest": hashlib.sha256(ids).hexdigest(),
            "identity": self.identity,
        }

    def _verify_header(self, expected: dict) -> None:
        header = read_header(self.header_file, _REMEDY)
        if header == expected:
            return
        theirs = header.pop("identity")
        ours = expected.pop("identity")
        difference = (
            identity_difference(ours, theirs, exact=True)
            or identity_difference(expected, header)
            or "precision or library versions differ"
        )
        self._refuse(f"begun with other settings: {difference}")

    def _verify_finished(self) -> None:
        with FeatureReader(self.path) as reader:
            theirs = reader.attributes["identity"]
            ids = reader.image_ids
        if difference := identity_difference(self.identity, theirs, exact=True):
            self._refuse(f"made by another encoder: {difference}")
        if ids != self.image_ids:
            self._refuse(
                f"made from other photos ({len(ids)}, the manifest has "
                f"{len(self.image_ids)})"
            )

    def _refuse(self, reason: str) -> NoReturn:
        raise DataError(f"{self.path}: {reason}; {_REMEDY}")

    def reopen(self) -> None:
        """Make all parts of a complete file missing, so that they are written again.

        The file stays as it is until :meth:`finish` replaces it: an interruption
        leaves the old file.
        """
        self.complete = False
        self._resume()

    def rows(self, number: int) -> range:
        """Return the rows of a part."""
        first = number * self.part_rows
        return range(first, min(first + self.part_rows, len(self.image_ids)))

    def part(self, number: int) -> Part:
        """Return a part with its place, encoder and photos."""
        rows = self.rows(number)
        ids = tuple(self.image_ids[rows.start : rows.stop])
        return Part(self._part_file(number), self.identity, self.mirrored, ids)

    def progress_bar(self, shown: bool) -> tqdm:
        """Return a progress bar of the photos."""
        total = len(self.image_ids)
        done = total - sum(len(self.rows(number)) for number in self.missing)
        return progress_bar(total, "photo", self.path.name, done=done, shown=shown)

    def finish(self) -> None:
        """Join all parts to one file and delete them.

        Raises:
            DataError: a part is damaged, or the disk cannot be written.
        """
        for abandoned in self._folder.glob(f"{TEMPORARY}*"):  # by killed processes
            abandoned.unlink(missing_ok=True)
        index = Index([], [], [])
        for number in self._numbers:
            of_part = self.part(number).read_index()
            index.problems.extend(of_part.problems)
            index.checksums.extend(of_part.checksums)
            index.files.extend(of_part.files)
        with writing(self.path), durable_path(self.path) as temporary:
            self._reserve(temporary, index.problems)
            # __enter__ holds a lock; HDF5's own is lacking on some file systems.
            with h5py.File(temporary, "w", libver=LIBVER, locking=False) as file:
                self._write_all(file, index)
        self._delete_parts()

    def _write_all(self, file: h5py.File, index: Index) -> None:
        """Write attributes, features and index."""
        file.attrs["format"] = FORMAT
        file.attrs["identity"] = np.bytes_(json.dumps(self.identity))
        file.attrs["mirrored"] = self.mirrored
        file.attrs["complete"] = True
        self._copy_features(file, index.checksums)
        whole = Part(self.path, self.identity, self.mirrored, tuple(self.image_ids))
        file.attrs["digest"] = whole.digest(index.problems, index.checksums)
        written = np.array([not problem for problem in index.problems], bool)
        write_column(file, "image_ids", self.image_ids)
        write_column(file, "written", written)
        write_column(file, "problems", index.problems)
        write_column(file, "checksums", np.array(index.checksums, np.uint32))
        write_files(file, index.files)

    def _copy_features(self, file: h5py.File, checksums: list[int]) -> None:
        """Copy the compressed chunks of all parts."""
        rows, columns = self.identity["grid"]
        shape = (len(self.image_ids), rows * columns, self.identity["width"])
        features = create_features(file, shape, dtype=np.float16)
        for number in self._numbers:
            with self.part(number).open() as source:
                stored = own_dataset(source, "features")
                for place, row in enumerate(self.rows(number)):
                    at = (place, 0, 0)
                    with hdf5_faults():
                        mask, chunk = stored.id.read_direct_chunk(at)
                    # The sum begins with the mask, so that another mask is found too.
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
            # h5py will truncate the file: this asks whether the disk has the space.
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, bound)
        except OSError as error:
            # These are the answers of file systems that cannot reserve space.
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
