"""Write a feature file in parts, so that an interrupted extraction resumes.

The photos are divided into parts of :data:`PART` in their order. Each part is written
atomically to a small file in ``<file>.parts/``. When all parts exist, their compressed
chunks are copied in order to the feature file, which is renamed to its path at the
end. The content of a part does not depend on interruptions, so the bytes of the
feature file do not either.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np

from data_prep.feature_columns import fixed_width, write_column
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.feature_checksums import (
    chunk_checksum,
    index_digest,
    read_chunk,
)
from show_attend_tell.data.features import (
    COMPRESSION,
    DAMAGED,
    FORMAT,
    FeatureReader,
    all_finite,
    parts_folder,
)
from show_attend_tell.runtime.errors import FeatureError, one_line
from show_attend_tell.runtime.files import atomic_path, locked
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import read_text_bytes

PART = 64  # photos: a second of a fast encoder, a megabyte of VGG's features
# Fixes the format for all versions of HDF5; later formats store the time in the root.
_LIBVER = ("earliest", "v110")
# Bytes of HDF5's structures: of the file, and for each row of its indices and texts.
_OVERHEAD, _ROW_OVERHEAD = 1 << 16, 256


class FeatureWriter:
    """Write one feature file, part by part, in any number of runs.

    Use it as a context manager: it locks the file against another extraction. Write
    the parts of :attr:`missing` with :meth:`write`, then call :meth:`finish`.

    Attributes:
        complete: whether the feature file already exists, made by this encoder from
            these photos.
        missing: numbers of the parts to write.
    """

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
            overwrite: delete an existing feature file and existing parts.
        """
        self.path = Path(path)
        self.image_ids = list(image_ids)
        self.identity = identity
        self.mirrored = mirrored
        rows, columns = identity["grid"]
        self._shape = (len(self.image_ids), rows * columns, identity["width"])
        self._parts = parts_folder(self.path)
        self._part_numbers = range(-(-len(self.image_ids) // PART))
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
                stack.enter_context(locked(f"{self.path}.lock", taken))
                self._find_missing()
            except OSError as error:
                raise _unwritable(self.path, error) from None
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; the written parts are kept for the next run."""
        self._lock.close()

    def _find_missing(self) -> None:
        if self._overwrite:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self._parts, ignore_errors=True)
        if self.path.exists():
            self._verify_finished()
            shutil.rmtree(self._parts, ignore_errors=True)
            self.complete = True
            return
        header = self._header()
        file = self._parts / "header.json"
        if file.exists():
            self._verify_header(file, header)
        else:
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir()
            with _durable_path(file) as temporary:
                temporary.write_text(json.dumps(header, indent=1), encoding="utf-8")
        self.missing = [
            part for part in self._part_numbers if not self._file(part).exists()
        ]

    def _header(self) -> dict:
        ids = "\n".join(self.image_ids).encode()
        return {
            "format": FORMAT,
            "part": PART,
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
        return range(part * PART, min((part + 1) * PART, len(self.image_ids)))

    def remaining_bytes(self) -> int:
        """Return the bytes still to be written, extrapolated from the written parts.

        The missing parts and the feature file count: :meth:`finish` deletes the parts
        only after it has copied them.
        """
        written = [part for part in self._part_numbers if self._file(part).exists()]
        photos = sum(len(self.rows(part)) for part in written)
        size = sum(self._file(part).stat().st_size for part in written)
        return 2 * size * len(self.image_ids) // max(photos, 1) - size

    def write(self, part: int, features: np.ndarray, problems: Sequence[str]) -> None:
        """Write one part atomically.

        Args:
            part: number of the part.
            features: (len(rows), L, D) float16, zeros where there is a problem.
            problems: for each row the reason why the photo is unreadable, or "".

        Raises:
            FeatureError: a value is NaN or infinite, or the disk cannot be written.
        """
        features = np.ascontiguousarray(features, np.float16)
        finite = all_finite(features)
        if not finite.all():
            name = self.image_ids[self.rows(part)[int(np.argmin(finite))]]
            raise FeatureError(
                f"{self.path}: the encoder's features of photo {name!r} must be "
                "finite. Received: NaN or infinity; check the encoder's weights"
            )
        # The part is built in memory: HDF5 may end the process if a write fails.
        with h5py.File(
            "part", "w", driver="core", backing_store=False, libver=_LIBVER
        ) as file:
            stored = file.create_dataset(
                "features",
                data=features,
                chunks=(1, *self._shape[1:]),
                track_times=False,
                **COMPRESSION,
            )
            file.flush()
            checksums = [
                chunk_checksum(*read_chunk(stored, place))
                for place in range(len(features))
            ]
            ids = [self.image_ids[row] for row in self.rows(part)]
            file.attrs["digest"] = self._digest(ids, problems, checksums)
            write_column(file, "problems", fixed_width(problems))
            file.flush()
            content = file.id.get_file_image()
        with _durable_path(self._file(part)) as temporary:
            temporary.write_bytes(content)

    def _digest(
        self, ids: list[str], problems: Sequence[str], checksums: list[int]
    ) -> np.bytes_:
        identity = json.dumps(self.identity)
        digest = index_digest(identity, self.mirrored, ids, problems, checksums)
        return np.bytes_(digest)

    def finish(self) -> None:
        """Join all parts to the feature file and delete them.

        Raises:
            FeatureError: a part is damaged, or the disk cannot be written.
        """
        reasons = [one for part in self._part_numbers for one in self._problems(part)]
        ids, problems = fixed_width(self.image_ids), fixed_width(reasons)
        self._try_space(ids.nbytes + problems.nbytes)
        with (
            _durable_path(self.path) as temporary,
            h5py.File(temporary, "w", libver=_LIBVER) as file,
        ):
            file.attrs["format"] = FORMAT
            file.attrs["identity"] = np.bytes_(json.dumps(self.identity))
            file.attrs["mirrored"] = self.mirrored
            file.attrs["complete"] = True
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
            file.attrs["digest"] = self._digest(self.image_ids, reasons, checksums)
            written = np.array([not reason for reason in reasons], bool)
            write_column(file, "image_ids", ids)
            write_column(file, "written", written)
            write_column(file, "problems", problems)
            write_column(file, "checksums", np.array(checksums, np.uint32))
        shutil.rmtree(self._parts)

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
                raise _unwritable(self.path, error) from None
        finally:
            trial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open_part(self, part: int) -> Iterator[h5py.File]:
        path = self._file(part)
        try:
            with h5py.File(path, "r") as source:
                yield source
        except DAMAGED as error:
            raise FeatureError(
                f"{path}: damaged ({one_line(error)}); delete the file and run the "
                "command again"
            ) from None

    def _problems(self, part: int) -> list[str]:
        with self._open_part(part) as source:
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
        rows = self.rows(part)
        with self._open_part(part) as source:
            chunks = [
                read_chunk(source["features"], place) for place in range(len(rows))
            ]
            checksums = [chunk_checksum(*chunk) for chunk in chunks]
            if "digest" in source.attrs:  # not in parts of earlier versions
                columns = (
                    [texts[row] for row in rows] for texts in (self.image_ids, problems)
                )
                if source.attrs["digest"] != self._digest(*columns, checksums):
                    raise ValueError("its digest differs")
        for row, (mask, chunk) in zip(rows, chunks, strict=True):
            features.id.write_direct_chunk((row, 0, 0), chunk, mask)
        return checksums


@contextlib.contextmanager
def _durable_path(path: Path) -> Iterator[Path]:
    """Yield an `atomic_path`; flush its file to the disk before it is renamed.

    Otherwise a power failure could leave an empty file that counts as complete.

    Raises:
        FeatureError: the file cannot be written.
    """
    try:
        with atomic_path(path) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> FeatureError:
    return FeatureError(
        f"{path}: cannot be written: {error.strerror or error}; free disk space or "
        "choose another folder, and run the command again, without --overwrite, to "
        "resume"
    )
