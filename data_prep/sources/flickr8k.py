"""Flickr8k: a token file, three lists of photos, and the photos.

Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task", 2013.
"""

from pathlib import Path

from data_prep.locate import DataFolder
from data_prep.problems import Problems
from data_prep.sources.assemble import assemble, splits_of_lists
from data_prep.sources.tokens import read_captions, read_list
from show_attend_tell.data.manifest import Photo

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


def read(data: DataFolder, photo_folder: Path) -> tuple[list[Photo], Problems]:
    """Read Flickr8k.

    Args:
        data: where the two archives or what they hold lie.
        photo_folder: where packed photos will be unpacked to.

    Returns:
        The photos, those of no list in the split ``none``, and what is odd.

    Raises:
        DataError: the token file, the training list or the photos are absent.
    """
    problems = Problems()
    captions = read_captions(data.require_text(TOKENS), problems)
    data.require_text(LISTS["train"])
    lists = {}
    for split, name in LISTS.items():
        file = data.text(name)
        if file is None:
            problems.notes.append(f"no {name}: the split {split!r} is empty")
        else:
            lists[split] = read_list(file, problems)
    splits = splits_of_lists(lists, problems)
    return assemble(data.places(photo_folder), captions, splits, problems), problems
