"""The HDF5 contract of feature files: names, types, attributes, and how to read one.

A feature file holds, for N photos of L locations and D channels,

==============  ===========  =====================================================
``features``    (N, L, D)    float16, one photo a chunk, zeros where not written
``image_ids``   (N,)         UTF-8 text, ids of the manifest
``written``     (N,)         bool, False for a photo that could not be read
``problems``    (N,)         UTF-8 text, why it could not be read, else empty
==============  ===========  =====================================================

and the attributes ``format`` (:data:`FORMAT`), ``identity`` (JSON, what
``Encoder.identity`` returned), ``mirrored`` (bool) and ``complete`` (bool).

After a ReLU about 95 % of VGG's values are exact zeros, so every chunk is compressed.
Measured on conv5_3 of 512 photos, one core, as ratios to the dense float16 file: size,
and time to read 64 photos drawn at random (the dense file's is 7 ms):

=============================  =====  =====
LZ4-HC of Blosc, no shuffle    0.105  1.03    chosen
LZ4 of Blosc, no shuffle       0.142  1.34
LZ4 of Blosc, bit shuffle      0.304  1.79
Zstandard                      0.084  2.00
Zstandard of Blosc             0.089  2.15
gzip 1                         0.110  3.76
LZF                            0.143  5.38
=============================  =====  =====

Every kind of shuffling makes the file larger and slower here: it scatters the long
runs of zeros.
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
    """Return where the features of an encoder lie in a prepared folder.

    Args:
        folder: ``prepared/<data.name>``.
        settings: the encoder's.
        mirror: whether the file of the mirrored photos is meant.
    """
    ending = ".mirror.h5" if mirror else ".h5"
    return Path(folder) / f"features-{settings.network}-{settings.layer}{ending}"


class FeatureReader:
    """An open feature file, read photo by photo and never as a whole.

    Use it as a context manager or call :meth:`close`. It may be used from several
    threads.

    Attributes:
        path: the file.
        image_ids: N ids in the order of the rows.
        shape: (N, L, D).
        rows: id -> row, of the photos that were written.
        problems: id -> why the photo could not be read, of the others.
        attributes: ``format``, ``identity`` (a dict), ``mirrored``, ``complete``.

    Raises:
        FeatureError: the file is absent, damaged or incomplete, or another encoder
            than that of ``identity`` made it.
    """

    def __init__(self, path: str | Path, identity: dict | None = None):
        """Open and verify a file.

        Args:
            path: the file.
            identity: of the encoder that the features must come from; any if None.
        """
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = _open(self.path)
        try:
            self._read_contract()
            self._verify(identity)
        except BaseException:
            self._file.close()
            raise

    def _read_contract(self) -> None:
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
                f"{self.path}: not a feature file of this program ({error}); "
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
        """Read photos by their rows, in any order and as often as wanted.

        Args:
            rows: B numbers from 0 to N - 1, as :attr:`rows` gives them.

        Returns:
            (B, L, D) float16.

        Raises:
            FeatureError: a row is out of range or was not written.
        """
        order = np.asarray(rows, np.int64)
        count, locations, width = self.shape
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
        unique, places = np.unique(order, return_inverse=True)
        features = np.empty((len(unique), locations, width), np.float16)
        with self._lock:
            for place, row in enumerate(unique.tolist()):
                self._features.read_direct(features, np.s_[row], np.s_[place])
        in_order = len(unique) == len(order) and (places[1:] > places[:-1]).all()
        return features if in_order else features[places]

    def close(self) -> None:
        """Close the file; nothing can be read any more."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> "FeatureReader":
        """Return the reader itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def parts_folder(path: str | Path) -> Path:
    """Return the folder that holds a feature file while it is being extracted."""
    path = Path(path)
    return path.with_name(path.name + ".parts")


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        if parts_folder(path).exists():
            reason = "incomplete; run the extraction again, it goes on where it stopped"
        else:
            reason = "no such feature file; extract the features"
        raise FeatureError(f"{path}: {reason}") from None
    except OSError as error:
        raise FeatureError(
            f"{path}: damaged or not HDF5 ({error}); extract the features again"
        ) from None
