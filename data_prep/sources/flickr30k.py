"""Read Flickr30k: a token file, Karpathy's splits, and the photos.

Young, Lai, Hodosh and Hockenmaier, "From image descriptions to visual denotations",
2014. The data set has no lists of its own; Karpathy's are the usual ones.
"""

from pathlib import Path

from data_prep.locate import DataFolder
from data_prep.problems import Problems
from data_prep.sources.assemble import invert_split_lists, join_by_name
from data_prep.sources.karpathy import read_karpathy_file
from data_prep.sources.tokens import read_token_file
from show_attend_tell.data.manifest import Photo

TOKENS = ("results_20130124.token", "results.token", "results.csv")
SPLITS = "dataset_flickr30k.json"


def read_flickr30k(
    data: DataFolder, photo_folder: Path
) -> tuple[list[Photo], Problems]:
    """Read Flickr30k.

    Args:
        data: the folder of the token file, Karpathy's JSON file and the photos.
        photo_folder: the folder of unpacked photos.

    Returns:
        The photos and their problems.

    Raises:
        DataError: Karpathy's file or the photos are absent.
    """
    problems = Problems()
    splits = read_karpathy_file(data.require_text(SPLITS), problems)
    tokens = data.text(*TOKENS)
    if tokens is None:
        problems.notes.append(f"no {TOKENS[0]}: the captions come from {SPLITS}")
        captions = splits.captions
    else:
        captions = read_token_file(tokens, problems)
    by_name = invert_split_lists(splits.lists, problems)
    places = data.places(photo_folder)
    return join_by_name(places, captions, by_name, problems), problems
