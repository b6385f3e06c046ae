"""Look at a data set before any work: what is there, what is odd, what is packed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_prep.locate import DataFolder, Packed
from data_prep.problems import DUPLICATE_FILE, UNSAFE_ENTRY, Problems
from data_prep.sources import coco, flickr8k, flickr30k, folder
from data_prep.unpack import waiting
from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.errors import DataError

PHOTOS = "photos"  # folder of unpacked photos, beside the manifest

Reader = Callable[[DataFolder, Path], tuple[list[Photo], Problems]]
_READERS: dict[str, Reader] = {
    "flickr8k": flickr8k.read,
    "flickr30k": flickr30k.read,
    "coco": coco.read,
    "folder": folder.read,
}


@dataclass(frozen=True)
class Survey:
    """What a source holds.

    Attributes:
        photos: one row each, with the place where the photo will lie.
        problems: what is odd.
        packed: name -> photo that is still to be unpacked.
    """

    photos: list[Photo]
    problems: Problems
    packed: dict[str, Packed]

    @property
    def unpacked_bytes(self) -> int:
        """Room that photos will take that are still to be unpacked."""
        return sum(photo.member.file_size for photo in self.packed.values())


def survey(source: str, data: Path | None, folder: Path) -> Survey:
    """Read a source without writing anything.

    Args:
        source: ``flickr8k``, ``flickr30k``, ``coco`` or ``folder``.
        data: the user's folder.
        folder: where the manifest will lie.

    Raises:
        DataError: the source cannot be read or has no photo that can be used.
    """
    if data is None:
        raise DataError(
            f"`data` must be the folder of photos and captions of {source}. "
            "Received: None; name the folder"
        )
    place = DataFolder(Path(data), leave_out=folder)
    photos, problems = _READERS[source](place, folder / PHOTOS)
    if not photos:
        raise DataError(
            f"{data}: no photo has captions: {'; '.join(problems.summary())}; are "
            "photos and captions of one data set?"
        )
    for photo in photos:
        if photo.id in place.found_twice and source != "folder":
            problems.add(DUPLICATE_FILE, photo.id)
    for entry in place.unsafe:
        problems.add(UNSAFE_ENTRY, entry)
    paths = {photo.path for photo in photos}
    packed = {
        name: photo
        for name, photo in waiting(place.photos, folder / PHOTOS).items()
        if folder / PHOTOS / name in paths
    }
    return Survey(photos, problems, packed)
