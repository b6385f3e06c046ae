"""Bring photos, captions and splits of a source together."""

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


def splits_of_lists(
    lists: Mapping[str, Iterable[str]], problems: Problems
) -> dict[str, str]:
    """Return the split of every listed photo.

    Args:
        lists: split -> names of its photos.
        problems: takes the photos that stand in two lists; these get no split at
            all, so that no photo is both trained on and tested on.
    """
    splits: dict[str, str] = {}
    twice = set()
    for split, names in lists.items():
        for name in names:
            if splits.setdefault(name, split) != split:
                problems.add(TWO_SPLITS, name)
                twice.add(name)
    return {name: split for name, split in splits.items() if name not in twice}


def assemble(
    places: Mapping[str, Path],
    captions: Mapping[str, Iterable[str]],
    splits: Mapping[str, str],
    problems: Problems,
) -> list[Photo]:
    """Make one row per photo, in the order of their names.

    Args:
        places: name -> where the photo lies.
        captions: name -> its raw captions.
        splits: name -> its split; others are in ``none``.
        problems: takes captions without a word, photos that are captioned or listed
            but not there, and listed photos without captions. Photos recorded as being
            in two splits are left out.
    """
    known = {*captions, *splits}
    photos = []
    for name in sorted(known.difference(problems.names(TWO_SPLITS))):
        said = []
        for number, caption in enumerate(captions.get(name, ())):
            if any(map(str.isalnum, caption)) or tokenize(caption):  # quick test first
                said.append(caption.strip())
            else:
                problems.add(EMPTY_CAPTION, f"{name}#{number}")
        if name not in places:
            problems.add(MISSING_PHOTO, name)
        elif not said:
            problems.add(NO_CAPTIONS, name)
        else:
            split = splits.get(name, NO_SPLIT)
            photos.append(Photo(name, places[name], split, tuple(said)))
    others = len(places.keys() - known)
    if others:
        problems.notes.append(
            f"photos left out that have no caption and are in no list: {others}"
        )
    return photos
