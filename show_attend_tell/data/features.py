"""Read feature files and define their HDF5 layout: names, types and attributes.

A feature file holds, for N photos of L locations and D channels,

==============  ===========  =====================================================
``features``    (N, L, D)    float16, one chunk per photo, zeros if not written
``image_ids``   (N,)         UTF-8 text, ids of the manifest
``written``     (N,)         bool, False for a photo that could not be decoded
``problems``    (N,)         UTF-8 text, the reason it could not, or empty
==============  ===========  =====================================================

and the attributes ``format`` (:data:`FORMAT`), ``identity`` (JSON of
``Encoder.identity``), ``mirrored`` (bool) and ``complete`` (bool).

After a ReLU about 95 % of VGG's values are exact zeros, so every chunk is compressed.
Measured on conv5_3 of 512 photos, one core, as ratios to the dense float16 file: size,
and time to read 64 random photos (7 ms for the dense file):

=============================  =====  =====
LZ4-HC of Blosc, no shuffle    0.105  1.03    chosen
LZ4 of Blosc, no shuffle       0.142  1.34
LZ4 of Blosc, bit shuffle      0.304  1.79
Zstandard                      0.084  2.00
Zstandard of Blosc             0.089  2.15
gzip 1                         0.110  3.76
LZF                            0.143  5.38
=============================  =====  =====

Shuffling of any kind makes the file larger and slower here, because it scatters the
long runs of zeros.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.runtime.errors import FeatureError

FORMAT = 1
COMPRESSION = hdf5plugin.Blosc(
    cname="lz4hc", clevel=5, shuffle=hdf5plugin.Blosc.NOSHUFFLE
)


def feature_path(
    folder: str | Path, settings: EncoderSettings, mirror: bool = False
) -> Path:
    """Return the path of an encoder's feature file.

    Args:
        folder: ``prepared/<data.name>``.
        settings: settings of the encoder.
        mirror: whether to return the file of the mirrored photos.
    """
    ending = ".mirror.h5" if mirror else ".h5"
    return Path(folder) / f"features-{settings.network}-{settings.layer}{ending}"


class FeatureReader:
    """An open feature file, read photo by photo and never as a whole.

    Use it as a context manager or call :meth:`close`. Several threads may share it.

    Attributes:
        path: path of the file.
        image_ids: N ids in the order of the rows.
        shape: (N, L, D).
        rows: id -> row, of each photo that was written.
        problems: id -> the reason, of each photo that was not written.
        attributes: ``format``, ``identity`` (a dict), ``mirrored``, ``complete``.

    Raises:
        FeatureError: the file is absent, damaged or incomplete, or was made by
            an encoder other than ``identity``.
    """

    def __init__(self, path: str | Path, identity: dict | None = None):
        """Open and verify a file.

        Args:
            path: path of the file.
            identity: identity of the encoder that must have made the features; any
                encoder by default.
        """
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = _open(self.path)
        try:
            self._read_layout()
            self._verify(identity)
        except BaseException:
            self._file.close()
            raise

    def _read_layout(self) -> None:
        file = self._file
        try:
            values = dict(file.attrs)
            self.attributes = {
                "format": int(values["format"]),
                "identity": json.loads(values["identity"]),
                "mirrored": bool(values["mirrored"]),
                "complete": bool(values["complete"]),
            }
            self._features = file["features"]
            self._written = file["written"][:]
            self.image_ids: list[str] = list(file["image_ids"].asstr()[:])
            reasons = file["problems"].asstr()[:]
        except (KeyError, ValueError, OSError) as error:
            raise FeatureError(
                f"{self.path}: not a feature file of this package ({error}); "
                "extract the features again"
            ) from None
        self.shape: tuple[int, int, int] = self._features.shape
        self.rows = {
            name: row for row, name in enumerate(self.image_ids) if self._written[row]
        }
        self.problems = {
            name: reason
            for name, reason in zip(self.image_ids, reasons, strict=True)
            if reason
        }

    def _verify(self, identity: dict | None) -> None:
        if self.attributes["format"] != FORMAT:
            raise FeatureError(
                f"{self.path}: `format` must be {FORMAT}. Received: "
                f"{self.attributes['format']}; extract the features again"
            )
        if not self.attributes["complete"]:
            raise FeatureError(
                f"{self.path}: incomplete; extract the features again to finish it"
            )
        if identity is None:
            return
        difference = identity_difference(identity, self.attributes["identity"])
        if difference:
            raise FeatureError(
                f"{self.path}: made by another encoder: {difference}; extract the "
                "features again or choose the encoder that made them"
            )

    def read(self, rows: Sequence[int]) -> np.ndarray:
        """Read photos by their rows, in any order and with repetitions.

        Args:
            rows: B row numbers from 0 to N - 1, values of :attr:`rows`.

        Returns:
            (B, L, D) float16.

        Raises:
            FeatureError: a row is out of range or was not written.
        """
        count, locations, width = self.shape
        order = np.asarray(rows, np.int64)
        outside = order[(order < 0) | (order >= count)]
        if outside.size:
            raise FeatureError(
                f"`rows` must be from 0 to {count - 1}. Received: {outside[0]}"
            )
        empty = order[~self._written[order]]
        if empty.size:
            name = self.image_ids[empty[0]]
            raise FeatureError(
                f"{self.path}: photo {name!r} has no features: {self.problems[name]}"
            )
        # Each row is read once, in the order of the file.
        unique, positions = np.unique(order, return_inverse=True)
        features = np.empty((len(unique), locations, width), np.float16)
        with self._lock:
            for position, row in enumerate(unique.tolist()):
                self._features.read_direct(features, np.s_[row], np.s_[position])
        in_order = len(unique) == len(order) and (positions[1:] > positions[:-1]).all()
        return (
            features if in_order else features[positions]
        )  # (unique, ...) -> (B, ...)

    def close(self) -> None:
        """Close the file; later reads fail."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> "FeatureReader":
        """Return the reader itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def parts_folder(path: str | Path) -> Path:
    """Return the folder of a feature file's parts during extraction."""
    path = Path(path)
    return path.with_name(path.name + ".parts")


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        if parts_folder(path).exists():
            reason = "incomplete; run the extraction again to continue it"
        else:
            reason = "no such feature file; extract the features"
        raise FeatureError(f"{path}: {reason}") from None
    except OSError as error:
        raise FeatureError(
            f"{path}: damaged or not HDF5 ({error}); extract the features again"
        ) from None
