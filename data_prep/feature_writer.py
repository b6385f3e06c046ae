"""Write a feature file in parts, so that an interrupted extraction resumes.

The photos are divided into parts of :data:`PART` in their order. Each part is written
atomically to a small file in ``<file>.parts/``. When all parts exist, their compressed
chunks are copied in order to the feature file, which is renamed to its path at the
end. The content of a part does not depend on interruptions, so the bytes of the
feature file do not either. :mod:`data_prep.shard_writer` writes a folder of shards
instead.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np

from data_prep.feature_columns import fixed_width, write_column
from data_prep.feature_parts import (
    LIBVER,
    Part,
    digest_of,
    durable_path,
    open_part,
    unwritable,
    write_part,
)
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.feature_checksums import chunk_checksum, read_chunk
from show_attend_tell.data.feature_shards import HEADER, shards_folder
from show_attend_tell.data.features import (
    COMPRESSION,
    FORMAT,
    FeatureReader,
    parts_folder,
)
from show_attend_tell.data.shard_store import ObjectStore, stored_url
from show_attend_tell.runtime.errors import FeatureError
from show_attend_tell.runtime.files import locked
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import read_text_bytes

PART = 64  # photos: a second of a fast encoder, a megabyte of VGG's features
# Bytes of HDF5's structures: of the file, and for each row of its indices and texts.
_OVERHEAD, _ROW_OVERHEAD = 1 << 16, 256


class FeatureWriter:
    """Write one feature file, part by part, in any number of runs.

    Use it as a context manager: it locks the file against another extraction. Write
    the parts of :attr:`missing` with :meth:`write`, then call :meth:`finish`.

    Attributes:
        path: the feature file.
        image_ids: N ids in the order of the rows.
        identity: the encoder's identity.
        mirrored: whether the features are those of mirrored photos.
        complete: whether the feature file already exists, made by this encoder from
            these photos.
        missing: numbers of the parts to write.
    """

    part_rows = PART
    _copies = 2  # of each part on the disk, before the end

    def __init__(
        self,
        path: str | Path,
        identity: dict,
        image_ids: Sequence[str],
        mirrored: bool = False,
        overwrite: bool = False,
    ):
        """Initialize the writer; the disk is unchanged until the context is entered.

        Args:
            path: the feature file.
            identity: the encoder's identity, from ``Encoder.identity``.
            image_ids: N ids in the order of the rows.
            mirrored: whether the features are those of mirrored photos.
            overwrite: delete existing features, also those in a folder of shards.
        """
        self.path, self._parts = Path(path), parts_folder(path)
        self._result = self.path  # complete when it exists
        self._lock_file = Path(f"{path}.lock")
        self._forms = (self.path, self._parts, shards_folder(path))
        self.image_ids = list(image_ids)
        self.identity = identity
        self.mirrored = mirrored
        rows, columns = identity["grid"]
        self._shape = (len(self.image_ids), rows * columns, identity["width"])
        self._part_numbers = range(-(-len(self.image_ids) // self.part_rows))
        self._overwrite = overwrite
        self._lock = contextlib.ExitStack()
        self.complete = False
        self.missing: list[int] = []

    def __enter__(self) -> "FeatureWriter":
        """Lock the file and determine the missing parts.

        Raises:
            FeatureError: another extraction is running, or the existing file or
                parts are of another encoder or of other photos.
        """
        taken = FeatureError(
            f"{self.path}: another extraction is writing it; wait for its end"
        )
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock_file, taken))
                self._find_missing()
            except OSError as error:
                raise unwritable(self.path, error) from None
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; the written parts are kept for the next run."""
        self._lock.close()

    def _find_missing(self) -> None:
        if self._overwrite:
            self._delete()
        if self._result.exists():
            self._verify_finished()
            self._delete_parts()
            self.complete = True
            return
        header = self._header()
        file = self.header_file
        if file.exists():
            self._verify_header(file, header)
        else:
            self._begin(header)
            with durable_path(file) as temporary:
                temporary.write_text(json.dumps(header, indent=1), encoding="utf-8")
        present = self._part_sizes()
        self.missing = [part for part in self._part_numbers if part not in present]

    def _begin(self, header: dict) -> None:
        """Make the folder of the parts.

        Args:
            header: content of the header, which is written afterwards.
        """
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir()

    def _part_sizes(self) -> dict[int, int]:
        """Return the bytes of each part that is present."""
        files = {part: self._file(part) for part in self._part_numbers}
        return {part: f.stat().st_size for part, f in files.items() if f.exists()}

    def _delete(self) -> None:
        """Delete the features in any form."""
        for form in self._forms:
            if form.is_dir():
                if url := stored_url(form):
                    ObjectStore(url).delete()
                shutil.rmtree(form, ignore_errors=True)
            else:
                form.unlink(missing_ok=True)

    def _delete_parts(self) -> None:
        """Delete the parts, which the feature file holds too."""
        shutil.rmtree(self._parts, ignore_errors=True)

    @property
    def header_file(self) -> Path:
        """The file beside the parts that names their encoder and photos."""
        return self._parts / HEADER

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

    def _verify_header(self, file: Path, header: dict) -> None:
        try:
            found = parse_json(read_text_bytes(file))
        except (ValueError, OSError) as error:
            self._refuse(f"the header of its parts is malformed ({error})")
        if found == header:
            return
        if not isinstance(found, dict) or not isinstance(found.get("identity"), dict):
            self._refuse("the header of its parts is malformed (not an object)")
        theirs, ours = found.pop("identity"), header.pop("identity")
        difference = (
            identity_difference(ours, theirs, exact=True)
            or identity_difference(header, found)
            or "precision or library versions differ"
        )
        self._refuse(f"begun with other settings: {difference}")

    def _verify_finished(self) -> None:
        with FeatureReader(self.path) as reader:
            attributes, ids = reader.attributes, reader.image_ids
        difference = identity_difference(
            self.identity, attributes["identity"], exact=True
        )
        if difference:
            self._refuse(f"made by another encoder: {difference}")
        if ids != self.image_ids:
            self._refuse(
                f"made from other photos ({len(ids)}, the manifest has "
                f"{len(self.image_ids)})"
            )

    def _refuse(self, reason: str) -> NoReturn:
        raise FeatureError(
            f"{self.path}: {reason}; pass --overwrite to replace the file, or move it"
        )

    def _file(self, part: int) -> Path:
        return self._parts / f"{part:06d}.h5"

    def rows(self, part: int) -> range:
        """Return the rows of a part."""
        first = part * self.part_rows
        return range(first, min(first + self.part_rows, len(self.image_ids)))

    def part(self, number: int) -> Part:
        """Return a part with its file, encoder and photos."""
        ids = tuple(self.image_ids[row] for row in self.rows(number))
        return Part(self._file(number), self.identity, self.mirrored, ids)

    def size(self) -> int:
        """Return the bytes of the finished features."""
        return self.path.stat().st_size

    def remaining_bytes(self) -> int:
        """Return the bytes still to be written, extrapolated from the written parts.

        The missing parts and the feature file count: :meth:`finish` deletes the parts
        only after it has copied them.
        """
        written = self._part_sizes()
        photos = sum(len(self.rows(part)) for part in written)
        size = sum(written.values())
        return self._copies * size * len(self.image_ids) // max(photos, 1) - size

    def write(self, part: int, features: np.ndarray, problems: Sequence[str]) -> None:
        """Write one part atomically.

        Args:
            part: number of the part.
            features: (len(rows), L, D) float16, zeros where there is a problem.
            problems: for each row the reason why the photo is unreadable, or "".

        Raises:
            FeatureError: a value is NaN or infinite, or the disk cannot be written.
        """
        write_part(self.part(part), features, problems)

    def finish(self) -> None:
        """Join all parts to the feature file and delete them.

        Raises:
            FeatureError: a part is damaged, or the disk cannot be written.
        """
        reasons = [one for part in self._part_numbers for one in self._problems(part)]
        texts = fixed_width(self.image_ids).nbytes + fixed_width(reasons).nbytes
        self._try_space(texts)
        with (
            durable_path(self.path) as temporary,
            h5py.File(temporary, "w", libver=LIBVER) as file,
        ):
            self._write_attributes(file)
            features = file.create_dataset(
                "features",
                shape=self._shape,
                dtype=np.float16,
                chunks=(1, *self._shape[1:]),
                track_times=False,
                **COMPRESSION,
            )
            checksums = []
            for part in self._part_numbers:
                checksums += self._copy(part, features, reasons)
            self._write_columns(file, reasons, checksums)
        shutil.rmtree(self._parts)

    def _write_attributes(self, file: h5py.File) -> None:
        """Write the attributes of a feature file but its digest."""
        file.attrs["format"] = FORMAT
        file.attrs["identity"] = np.bytes_(json.dumps(self.identity))
        file.attrs["mirrored"] = self.mirrored
        file.attrs["complete"] = True

    def _write_columns(
        self, file: h5py.File, reasons: list[str], checksums: list[int]
    ) -> None:
        """Write the digest and one value of each column for each photo."""
        everything = Part(self.path, self.identity, self.mirrored, (*self.image_ids,))
        file.attrs["digest"] = digest_of(everything, reasons, checksums)
        written = np.array([not reason for reason in reasons], bool)
        write_column(file, "image_ids", fixed_width(self.image_ids))
        write_column(file, "written", written)
        write_column(file, "problems", fixed_width(reasons))
        write_column(file, "checksums", np.array(checksums, np.uint32))

    def _try_space(self, texts: int) -> None:
        """Raise an error if the feature file does not fit on the disk.

        HDF5 may end the process if a write fails, so the space is tried before.

        Args:
            texts: bytes of the ids and problems.
        """
        bound = texts + _OVERHEAD + _ROW_OVERHEAD * len(self.image_ids)
        trial = self.path.with_name(f".writing-{self.path.name}")
        try:
            bound += sum(self._file(part).stat().st_size for part in self._part_numbers)
            with trial.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, bound)
        except AttributeError:  # not on macOS and Windows
            pass
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise unwritable(self.path, error) from None
        finally:
            trial.unlink(missing_ok=True)

    def _problems(self, part: int) -> list[str]:
        with open_part(self._file(part)) as source:
            problems = source["problems"].asstr()[:].tolist()
            if len(problems) != len(self.rows(part)):
                raise ValueError("of another number of photos")
        return problems

    def _copy(
        self, part: int, features: h5py.Dataset, problems: list[str]
    ) -> list[int]:
        """Copy the stored chunks of a part; return their checksums.

        Args:
            part: number of the part.
            features: receives the chunks.
            problems: those of all photos.
        """
        rows, one = self.rows(part), self.part(part)
        with open_part(one.file) as source:
            chunks = [
                read_chunk(source["features"], place) for place in range(len(rows))
            ]
            checksums = [chunk_checksum(*chunk) for chunk in chunks]
            if "digest" in source.attrs:  # not in parts of earlier versions
                reasons = [problems[row] for row in rows]
                if source.attrs["digest"] != digest_of(one, reasons, checksums):
                    raise ValueError("its digest differs")
        for row, (mask, chunk) in zip(rows, chunks, strict=True):
            features.id.write_direct_chunk((row, 0, 0), chunk, mask)
        return checksums
