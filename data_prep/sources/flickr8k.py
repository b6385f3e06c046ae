"""Read Flickr8k: a token file, three lists of photos, and the photos.

Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task", 2013.
"""

from pathlib import Path

from data_prep.locate import DataFolder
from data_prep.problems import Problems
from data_prep.sources.assemble import invert_split_lists, join_by_name
from data_prep.sources.tokens import read_name_list, read_token_file
from show_attend_tell.data.manifest import Photo

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


def read_flickr8k(data: DataFolder, photo_folder: Path) -> tuple[list[Photo], Problems]:
    """Read Flickr8k.

    Args:
        data: the folder of the two archives, or of their unpacked content.
        photo_folder: the folder of unpacked photos.

    Returns:
        The photos and their problems. Photos of no list are in the split ``none``.

    Raises:
        DataError: the token file, the training list or the photos are absent.
    """
    problems = Problems()
    captions = read_token_file(data.require_text(TOKENS), problems)
    data.require_text(LISTS["train"])
    lists = {}
    for split, name in LISTS.items():
        file = data.text(name)
        if file is None:
            problems.notes.append(f"no {name}: the split {split!r} is empty")
        else:
            lists[split] = read_name_list(file, problems)
    splits = invert_split_lists(lists, problems)
    return join_by_name(data.places(photo_folder), captions, splits, problems), problems
