"""What preparing a data set will take: room on the disk and time."""

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_prep.sources.assemble import NO_SPLIT
from data_prep.survey import Survey, survey
from show_attend_tell.config.settings import EncoderSettings, Experiment
from show_attend_tell.runtime.errors import DataError

SCENES = 3700  # photos that data_prep.scenes.scenes.generate draws
_SCENE_BYTES = 10_000  # of a scene's JPEG file, about
_FLOAT16 = 2  # bytes
_UNPACKED_PER_SECOND = 2_000  # photos, measured on two cores
_MARGIN = 1.02  # of free room, for file systems that count in blocks


class _Cost(NamedTuple):
    """What annotations of a network cost.

    Attributes:
        rate: photos per second and processor core, at ``side``.
        side: of the square, in pixels, that the rate was measured at.
        stride: pixels to a cell of the map, at both sides.
        width: D. kept: stored size over dense size.
    """

    rate: float
    side: int
    stride: int
    width: int
    kept: float


# VGG: float32, the order of magnitude only; its annotations are 95 % zeros. The other
# networks are as slow here, and may be dense.
_VGG = _Cost(rate=3.0, side=224, stride=16, width=512, kept=1 / 6)
_COSTS = {
    "VGG16": _VGG,
    "VGG19": _VGG,
    "SceneNet": _Cost(rate=300.0, side=112, stride=8, width=64, kept=1.0),
}


@dataclass(frozen=True)
class Estimate:
    """What is to be expected.

    Attributes:
        photos: that features are made of; those in no list are not.
        mirrored: photos whose mirror image is encoded too.
        unpacked_bytes: of photos still to be unpacked or drawn.
        dense_bytes: of all annotations as float16, N L D 2, without compression.
        stored_bytes: expected size of the feature files.
        free_bytes: on the disk of the work folder.
        unpack_seconds: to unpack the photos.
        feature_seconds: to encode them on this machine's processor.
    """

    photos: int
    mirrored: int
    unpacked_bytes: int
    dense_bytes: int
    stored_bytes: int
    free_bytes: int
    unpack_seconds: float
    feature_seconds: float

    @property
    def needed_bytes(self) -> int:
        """Room that photos and features will take together."""
        return int((self.unpacked_bytes + self.stored_bytes) * _MARGIN)

    def lines(self) -> list[str]:
        """Return the estimate as lines for the screen."""
        mirror = f" and {self.mirrored:,} mirror images" if self.mirrored else ""
        return [
            f"{self.photos:,} photos{mirror}",
            f"photos to unpack: {size_text(self.unpacked_bytes)}, "
            f"about {_time(self.unpack_seconds)}",
            f"features: about {size_text(self.stored_bytes)} "
            f"({size_text(self.dense_bytes)} without compression), in the order of "
            f"{_time(self.feature_seconds)} without a graphics processor",
            f"free: {size_text(self.free_bytes)}",
        ]


def size_text(count: float) -> str:
    """Return a number of bytes as a person reads it."""
    if count < 1000:
        return f"{count:.0f} B"
    power = min(int(math.log10(count) / 3), 4)
    return f"{count / 1000**power:.1f} {' kMGT'[power]}B"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def free_bytes(folder: Path) -> int:
    """Return the free room on the disk that a folder lies or will lie on."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def from_counts(
    photos: int,
    mirrored: int,
    unpacked: tuple[int, int],
    encoder: EncoderSettings,
    shape: tuple[int, int] | None,
    free: int,
) -> Estimate:
    """Compute an estimate.

    Args:
        photos: number of photos.
        mirrored: number of mirror images.
        unpacked: number of photos still to be unpacked, and their bytes.
        encoder: its network and the side of its square.
        shape: (L, D) of the annotations of a photo; by default those that the network
            is used with.
        free: bytes free on the disk.
    """
    cost = _COSTS.get(encoder.network, _VGG._replace(kept=1.0))
    if shape is None:
        shape = ((encoder.image_size // cost.stride) ** 2, cost.width)
    encoded = photos + mirrored
    dense = encoded * shape[0] * shape[1] * _FLOAT16
    rate = cost.rate * (os.cpu_count() or 1) * (cost.side / encoder.image_size) ** 2
    return Estimate(
        photos=photos,
        mirrored=mirrored,
        unpacked_bytes=unpacked[1],
        dense_bytes=dense,
        stored_bytes=int(dense * cost.kept),
        free_bytes=free,
        unpack_seconds=unpacked[0] / _UNPACKED_PER_SECOND,
        feature_seconds=encoded / rate,
    )


def of_survey(
    found: Survey,
    experiment: Experiment,
    folder: Path,
    shape: tuple[int, int] | None = None,
) -> Estimate:
    """Return the estimate for a source that was looked at."""
    trained = sum(photo.split == "train" for photo in found.photos)
    return from_counts(
        photos=sum(photo.split != NO_SPLIT for photo in found.photos),
        mirrored=trained if experiment.encoder.mirror else 0,
        unpacked=(len(found.packed), found.unpacked_bytes),
        encoder=experiment.encoder,
        shape=shape,
        free=free_bytes(folder),
    )


def estimate(
    experiment: Experiment,
    data: Path | None,
    work: Path,
    shape: tuple[int, int] | None = None,
) -> Estimate:
    """Say what preparing and encoding a data set will take, without doing it.

    Args:
        experiment: its ``data`` table names the source, ``encoder`` the network.
        data: the user's folder; not needed for drawn scenes.
        work: the folder that holds prepared data sets.
        shape: (L, D) of the annotations of a photo; by default those that the network
            is used with.

    Raises:
        DataError: the source cannot be read.
    """
    folder = Path(work).absolute() / experiment.data.name
    if experiment.data.source != "scenes":
        found = survey(experiment.data.source, data, folder)
        return of_survey(found, experiment, folder, shape)
    drawn = (SCENES, SCENES * _SCENE_BYTES)
    free = free_bytes(folder)
    return from_counts(SCENES, 0, drawn, experiment.encoder, shape, free)


def require_room(expected: Estimate, folder: Path) -> None:
    """Refuse work that the disk has no room for.

    Raises:
        DataError: with what is needed and what is free.
    """
    needed, free = expected.needed_bytes, expected.free_bytes
    if needed > free:
        raise DataError(
            f"{folder}: photos and features need about {size_text(needed)} and "
            f"{size_text(free)} are free; make room or choose another work folder"
        )
