"""Join photos, captions and splits by name, and write manifest and vocabulary."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from data_prep.locate import DataFolder
from data_prep.problems import (
    DUPLICATE_FILE,
    EMPTY_CAPTION,
    MISSING_PHOTO,
    NO_CAPTIONS,
    TWO_SPLITS,
    Problems,
)
from data_prep.scenes.scenes import write_scenes
from data_prep.sources.preparation import Preparation, Prepared
from data_prep.unpack import missing_photos, unpack
from show_attend_tell.config.settings import DataSettings
from show_attend_tell.data.manifest import Photo, first_of_each_split, write_manifest
from show_attend_tell.data.splits import read_photos, vocabulary_path
from show_attend_tell.data.vocabulary import (
    SPECIAL,
    TOKENIZERS,
    UNKNOWN,
    Vocabulary,
    tokenize,
)
from show_attend_tell.runtime.errors import DataError

MANIFEST = "manifest.jsonl"

Reader = Callable[[DataFolder], tuple[list[Photo], Problems]]
"""Returns the photos of a folder and their problems; writes nothing."""


def prepare_photos(read: Reader, preparation: Preparation) -> Prepared:
    """Read photos and captions, unpack the photos, and write manifest and vocabulary.

    Args:
        read: reader of the source.
        preparation: the data set.

    Raises:
        DataError: the data cannot be read, or have problems that are refused.
        VocabularyError: no word is frequent enough.
    """
    data = DataFolder(preparation.require_data(), preparation.folder)
    photos, problems = read(data)
    if not photos:
        raise DataError(
            f"{data.folder}: no photo has captions: {'; '.join(problems.summary())}; "
            "check that photos and captions come from the same data set"
        )
    problems.update(data.problems)
    if preparation.limit is not None:
        photos = first_of_each_split(photos, preparation.limit)
    preparation.record(problems)
    paths = {photo.path for photo in photos}
    places = data.places()
    packed = {name: p for name, p in data.photos.items() if places[name] in paths}
    problems.update(unpack(packed, data.unpacked, preparation.progress))
    damaged = missing_photos(packed, data.unpacked)
    photos = [photo for photo in photos if photo.path.name not in damaged]
    return _write(preparation, photos, problems)


def prepare_scenes(preparation: Preparation) -> Prepared:
    """Draw scenes, and write manifest and vocabulary."""
    photos = write_scenes(preparation.folder)
    if preparation.limit is not None:
        photos = first_of_each_split(photos, preparation.limit)
    return _write(preparation, photos, Problems())


def _write(
    preparation: Preparation, photos: list[Photo], problems: Problems
) -> Prepared:
    """Write the vocabulary, also of the sets of ``data.also``, then the manifest."""
    preparation.record(problems)
    experiment, folder = preparation.experiment, preparation.folder
    settings = experiment.data
    further = read_photos(experiment, folder.parent, further=True)
    vocabulary, coverage = _vocabulary([*photos, *further], settings)
    vocabulary.save(
        vocabulary_path(experiment, folder.parent),
        {"size": settings.vocabulary_size, "min_count": settings.min_count},
    )
    write_manifest(folder / MANIFEST, photos)
    counts = {photo.split: Counter() for photo in photos}
    for photo in photos:
        counts[photo.split].update(photos=1, captions=len(photo.captions))
    words = len(vocabulary) - len(SPECIAL)
    fact = f"vocabulary: {words:,} words cover {coverage:.2%} of the words of the "
    return Prepared(folder, counts, [fact + "training captions"], problems)


def _vocabulary(
    photos: list[Photo], settings: DataSettings
) -> tuple[Vocabulary, float]:
    """Build the vocabulary of the training split; return it and its coverage."""
    tokenizer = TOKENIZERS[settings.punctuation]
    captions = [
        tokenizer(caption)
        for photo in photos
        if photo.split == "train"
        for caption in photo.captions
    ]
    if not captions:
        raise DataError(
            "no training captions: the split 'train' must have photos with captions; "
            "check the lists of photos"
        )
    vocabulary = Vocabulary.build(
        captions, settings.vocabulary_size, settings.min_count
    )
    total = sum(map(len, captions))
    unknown = sum(vocabulary.encode(words).count(UNKNOWN) for words in captions)
    return vocabulary, 1 - unknown / total


def invert_split_lists(
    lists: Mapping[str, Iterable[str]], problems: Problems
) -> dict[str, str]:
    """Return the split of every listed photo.

    Args:
        lists: split -> names of its photos.
        problems: receives the photos of two lists. They have no split in the result,
            so that no photo is in both training and test set.

    Returns:
        Name -> split.
    """
    splits: dict[str, str] = {}
    for split, names in lists.items():
        for name in names:
            if splits.setdefault(name, split) != split:
                problems.add(TWO_SPLITS, name)
    twice = set(problems.names(TWO_SPLITS))
    return {name: split for name, split in splits.items() if name not in twice}


def join_by_name(
    places: Mapping[str, Path],
    captions: Mapping[str, Iterable[str]],
    splits: Mapping[str, str],
    problems: Problems,
    found_twice: Iterable[str] = (),
) -> list[Photo]:
    """Build the manifest's rows, sorted by photo name.

    Args:
        places: name -> path of the photo.
        captions: name -> its raw captions.
        splits: name -> its split; photos without a split get ``none``.
        problems: receives captions without a word, captioned or listed photos that
            are absent, and listed photos without captions. Photos that it records in
            two splits are skipped.
        found_twice: names that several files have; the photos among them become
            problems.
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
            split = splits.get(name, "none")
            photos.append(Photo(name, places[name], split, tuple(kept)))
    unknown = len(places.keys() - known)
    if unknown:
        problems.notes.append(
            f"photos skipped that have no caption and are in no list: {unknown}"
        )
    for photo in photos:
        if photo.id in found_twice:
            problems.add(DUPLICATE_FILE, photo.id)
    return photos
