"""Join photos, captions and splits of a source by file name."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from data_prep.problems import (
    EMPTY_CAPTION,
    MISSING_PHOTO,
    NO_CAPTIONS,
    TWO_SPLITS,
    Problems,
)
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import tokenize

NO_SPLIT = "none"


def invert_split_lists(
    lists: Mapping[str, Iterable[str]], problems: Problems
) -> dict[str, str]:
    """Return the split of every listed photo.

    Args:
        lists: split -> names of its photos.
        problems: receives the photos of two lists. These have no split in the
            result, so that no photo is in both training and test set.

    Returns:
        Name -> split.
    """
    splits: dict[str, str] = {}
    twice = set()
    for split, names in lists.items():
        for name in names:
            if splits.setdefault(name, split) != split:
                problems.add(TWO_SPLITS, name)
                twice.add(name)
    return {name: split for name, split in splits.items() if name not in twice}


def join_by_name(
    places: Mapping[str, Path],
    captions: Mapping[str, Iterable[str]],
    splits: Mapping[str, str],
    problems: Problems,
) -> list[Photo]:
    """Build the manifest's rows, sorted by photo name.

    Args:
        places: name -> path of the photo.
        captions: name -> its raw captions.
        splits: name -> its split; the split of others is ``none``.
        problems: receives captions without a word, captioned or listed photos that
            are absent, and listed photos without captions. Its photos in two splits
            are skipped.
    """
    known = {*captions, *splits}
    photos = []
    for name in sorted(known.difference(problems.names(TWO_SPLITS))):
        kept = []
        for number, caption in enumerate(captions.get(name, ())):
            # Most captions pass the first test, which is faster.
            if any(map(str.isalnum, caption)) or tokenize(caption):
                kept.append(caption.strip())
            else:
                problems.add(EMPTY_CAPTION, f"{name}#{number}")
        if name not in places:
            problems.add(MISSING_PHOTO, name)
        elif not kept:
            problems.add(NO_CAPTIONS, name)
        else:
            split = splits.get(name, NO_SPLIT)
            photos.append(Photo(name, places[name], split, tuple(kept)))
    others = len(places.keys() - known)
    if others:
        problems.notes.append(
            f"photos skipped that have no caption and are in no list: {others}"
        )
    return photos
