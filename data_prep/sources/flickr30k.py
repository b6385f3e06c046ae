"""Flickr30k: a token file, Karpathy's splits, and the photos.

Young, Lai, Hodosh and Hockenmaier, "From image descriptions to visual denotations",
2014. The data set itself has no lists; everyone uses Karpathy's.
"""

from pathlib import Path

from data_prep.locate import DataFolder
from data_prep.problems import Problems
from data_prep.sources import karpathy
from data_prep.sources.assemble import assemble, splits_of_lists
from data_prep.sources.tokens import read_captions
from show_attend_tell.data.manifest import Photo

TOKENS = ("results_20130124.token", "results.token", "results.csv")
SPLITS = "dataset_flickr30k.json"


def read(data: DataFolder, photo_folder: Path) -> tuple[list[Photo], Problems]:
    """Read Flickr30k.

    Args:
        data: where token file, Karpathy's JSON file and the photos lie.
        photo_folder: where packed photos will be unpacked to.

    Returns:
        The photos and what is odd.

    Raises:
        DataError: Karpathy's file or the photos are absent.
    """
    problems = Problems()
    splits = karpathy.read(data.require_text(SPLITS), problems)
    tokens = data.text(*TOKENS)
    if tokens is None:
        problems.notes.append(f"no {TOKENS[0]}: the captions come from {SPLITS}")
        captions = splits.captions
    else:
        captions = read_captions(tokens, problems)
    by_name = splits_of_lists(splits.lists, problems)
    return assemble(data.places(photo_folder), captions, by_name, problems), problems
