"""A feature file written so that no interruption can spoil it.

The photos are cut into parts of :data:`PART` in their order. Each part becomes a small
file under ``<file>.parts/``, whole or not at all; when all exist, their compressed
chunks are copied in order into the feature file, which appears under its name in one
step. What the parts hold does not depend on when the work was interrupted, so neither
do the bytes of the feature file.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import filelock
import h5py
import numpy as np

from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.features import (
    COMPRESSION,
    FORMAT,
    FeatureReader,
    parts_folder,
)
from show_attend_tell.runtime.errors import FeatureError

PART = 64  # photos: a second of a fast encoder, a megabyte of VGG's features
# The same format whatever HDF5 is installed; later ones put the time into the root.
_LIBVER = ("earliest", "v110")
_TEXT = h5py.string_dtype("utf-8")


class FeatureWriter:
    """Writes one feature file, part by part, in any number of runs.

    Use it as a context manager: it locks the file against another extraction. Write
    the parts named by :attr:`missing`, then call :meth:`finish`.

    Attributes:
        complete: whether the feature file existed already, made by this encoder of
            these photos; then nothing is to be done.
        missing: numbers of the parts still to be written.
    """

    def __init__(
        self,
        path: str | Path,
        identity: dict,
        image_ids: Sequence[str],
        mirrored: bool = False,
        overwrite: bool = False,
    ):
        """Describe the file; nothing is touched before the context is entered.

        Args:
            path: the feature file.
            identity: of the encoder.
            image_ids: N ids in the order of the rows.
            mirrored: whether the features are those of mirrored photos.
            overwrite: throw away what exists, finished or not.
        """
        self.path = Path(path)
        self.image_ids = list(image_ids)
        self.identity = identity
        self.mirrored = mirrored
        rows, columns = identity["grid"]
        self._shape = (len(self.image_ids), rows * columns, identity["width"])
        self._parts = parts_folder(self.path)
        self._overwrite = overwrite
        self._lock = filelock.FileLock(self.path.with_name(self.path.name + ".lock"))
        self.complete = False
        self.missing: list[int] = []

    def __enter__(self) -> "FeatureWriter":
        """Lock the file and find out what is to be done.

        Raises:
            FeatureError: another extraction runs, or what exists is of another
                encoder or of other photos and is not to be overwritten.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise FeatureError(
                f"{self.path}: another extraction is writing it; wait for its end"
            ) from None
        try:
            self._take_stock()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; what was written stays for the next run."""
        self._lock.release()

    def _take_stock(self) -> None:
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
            self._verify_header(json.loads(file.read_text(encoding="utf-8")), header)
        else:
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir()
            _write_whole(file, json.dumps(header, indent=1).encode())
        count = -(-len(self.image_ids) // PART)
        self.missing = [part for part in range(count) if not self._file(part).exists()]

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

    def _verify_header(self, found: dict, header: dict) -> None:
        if found == header:
            return
        theirs, ours = found.pop("identity", {}), header.pop("identity")
        difference = (
            identity_difference(ours, theirs)
            or identity_difference(header, found)
            or "precision or library versions differ"
        )
        self._refuse(f"begun by another run: {difference}")

    def _verify_finished(self) -> None:
        with FeatureReader(self.path) as reader:
            attributes, ids = reader.attributes, reader.image_ids
        difference = identity_difference(self.identity, attributes["identity"])
        if difference:
            self._refuse(f"made by another encoder: {difference}")
        if ids != self.image_ids:
            self._refuse(
                f"made of other photos ({len(ids)}, the manifest has "
                f"{len(self.image_ids)})"
            )

    def _refuse(self, reason: str) -> None:
        raise FeatureError(
            f"{self.path}: {reason}; pass --overwrite to make it anew, or move it away"
        )

    def _file(self, part: int) -> Path:
        return self._parts / f"{part:06d}.h5"

    def rows(self, part: int) -> range:
        """Return the rows of a part."""
        return range(part * PART, min((part + 1) * PART, len(self.image_ids)))

    def write(self, part: int, features: np.ndarray, problems: Sequence[str]) -> None:
        """Write one part, whole or not at all.

        Args:
            part: its number.
            features: (len(rows), L, D) float16, zeros where there is a problem.
            problems: for each row why the photo could not be read, or "".
        """
        unfinished = self._parts / "unfinished"
        with h5py.File(unfinished, "w", libver=_LIBVER) as file:
            file.create_dataset(
                "features",
                data=features,
                dtype=np.float16,
                chunks=(1, *self._shape[1:]),
                track_times=False,
                **COMPRESSION,
            )
            file.create_dataset(
                "problems", data=list(problems), dtype=_TEXT, track_times=False
            )
        _replace(unfinished, self._file(part))

    def finish(self) -> None:
        """Join all parts into the feature file and remove them."""
        unfinished = self.path.with_name(self.path.name + ".tmp")
        with h5py.File(unfinished, "w", libver=_LIBVER) as file:
            file.attrs["format"] = FORMAT
            file.attrs["identity"] = json.dumps(self.identity)
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
            problems = []
            for part in range(-(-len(self.image_ids) // PART)):
                problems += self._copy(part, features)
            written = np.array([not problem for problem in problems], bool)
            for name, data, kind in (
                ("image_ids", self.image_ids, _TEXT),
                ("written", written, bool),
                ("problems", problems, _TEXT),
            ):
                file.create_dataset(name, data=data, dtype=kind, track_times=False)
        _replace(unfinished, self.path)
        shutil.rmtree(self._parts)

    def _copy(self, part: int, features: h5py.Dataset) -> list[str]:
        """Copy a part's chunks as they are; returns its problems."""
        with h5py.File(self._file(part), "r") as source:
            for place, row in enumerate(self.rows(part)):
                mask, chunk = source["features"].id.read_direct_chunk((place, 0, 0))
                features.id.write_direct_chunk((row, 0, 0), chunk, mask)
            return list(source["problems"].asstr()[:])


def _replace(unfinished: Path, path: Path) -> None:
    """Give a finished file its name, after its bytes have reached the disk."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _write_whole(path: Path, content: bytes) -> None:
    unfinished = path.with_name("unfinished")
    unfinished.write_bytes(content)
    _replace(unfinished, path)
