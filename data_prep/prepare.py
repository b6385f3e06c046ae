"""Prepare a data set: write its manifest and its vocabulary to one folder."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep.locate import DataFolder, Packed
from data_prep.problems import DUPLICATE_FILE, Problems
from data_prep.scenes.scenes import write_scenes
from data_prep.sources.coco import read_coco
from data_prep.sources.flickr8k import read_flickr8k
from data_prep.sources.flickr30k import read_flickr30k
from data_prep.sources.folder import read_own_folder
from data_prep.unpack import Progress, missing_photos, unpack
from show_attend_tell.config.settings import DataSettings, Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.manifest import Photo, first_of_each_split
from show_attend_tell.data.splits import read_photos, vocabulary_path
from show_attend_tell.data.vocabulary import SPECIAL, TOKENIZERS, UNKNOWN, Vocabulary
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import locked

# Readers, keyed by `data.source` of an experiment. A reader receives
# the data folder and the folder of unpacked photos, and writes nothing.
SOURCES: dict[str, Callable[[DataFolder, Path], tuple[list[Photo], Problems]]] = {
    "flickr8k": read_flickr8k,
    "flickr30k": read_flickr30k,
    "coco": read_coco,
    "folder": read_own_folder,
}
DRAWN = "scenes"  # the one source that is drawn, not read

MANIFEST, PROBLEMS = "manifest.jsonl", "problems.txt"
PHOTOS = "photos"  # folder of unpacked photos, beside the manifest


@dataclass(frozen=True)
class PrepareReport:
    """Counts and problems of a prepared data set.

    Attributes:
        folder: the folder of manifest, vocabulary and, if any, ``problems.txt``.
        photos: split -> number of photos.
        captions: split -> number of captions.
        words: number of words kept, without the special tokens.
        coverage: share of the words of all training captions that are kept, 0 to 1.
        problems: skipped items, and notes.
        seconds: wall-clock time.
    """

    folder: Path
    photos: dict[str, int]
    captions: dict[str, int]
    words: int
    coverage: float
    problems: Problems
    seconds: float

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = [
            f"{split}: {count:,} photos, {self.captions[split]:,} captions"
            for split, count in self.photos.items()
        ]
        lines.append(
            f"vocabulary: {self.words:,} words cover {self.coverage:.2%} of the words "
            "of the training captions"
        )
        lines += [f"note: {note}" for note in self.problems.notes]
        lines += [f"skipped: {line}" for line in self.problems.summary()]
        if self.problems:
            lines.append(f"all skipped items: {self.folder / PROBLEMS}")
        lines.append(f"prepared in {self.folder} ({self.seconds:.0f} s)")
        return lines


def _read_source(
    source: str, data: Path | None, folder: Path
) -> tuple[list[Photo], Problems, dict[str, Packed]]:
    """Return photos, problems and the photos to unpack, without writing anything."""
    if data is None:
        raise DataError(
            f"`data` must be the folder of {source}'s photos and captions. "
            "Received: None; pass the folder with --data"
        )
    found = DataFolder(Path(data), leave_out=folder)
    photos, problems = SOURCES[source](found, folder / PHOTOS)
    if not photos:
        raise DataError(
            f"{data}: no photo has captions: {'; '.join(problems.summary())}; check "
            "that photos and captions come from the same data set"
        )
    for photo in photos:
        if photo.id in found.found_twice and source != "folder":
            problems.add(DUPLICATE_FILE, photo.id)
    problems.update(found.problems)
    paths = {photo.path for photo in photos}
    packed = missing_photos(found.photos, folder / PHOTOS)
    used = [name for name in packed if folder / PHOTOS / name in paths]
    return photos, problems, {name: packed[name] for name in used}


def _read_and_unpack(
    experiment: Experiment,
    data: Path | None,
    folder: Path,
    on_problem: str,
    progress: Progress | None,
    limit: int | None,
) -> tuple[list[Photo], Problems]:
    """Return the photos of a source after unpacking, without the damaged ones."""
    photos, problems, packed = _read_source(experiment.data.source, data, folder)
    if limit is not None:
        photos = first_of_each_split(photos, limit)
        paths = {photo.path for photo in photos}
        packed = {k: v for k, v in packed.items() if folder / PHOTOS / k in paths}
    if on_problem == "refuse":
        _refuse(problems, folder)
    damaged = unpack(packed, folder / PHOTOS, progress)
    if damaged:
        problems.update(damaged)
        if on_problem == "refuse":
            _refuse(problems, folder)
        missing = missing_photos(packed, folder / PHOTOS)
        photos = [photo for photo in photos if photo.path.name not in missing]
    return photos, problems


def _refuse(problems: Problems, folder: Path) -> None:
    """Raise an error if there is any problem, after writing the list of problems."""
    problems.write_listing(folder / PROBLEMS)
    problems.refuse(folder / PROBLEMS)


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


def prepare(
    experiment: Experiment,
    data: Path | None,
    work: Path,
    on_problem: Literal["skip", "refuse"] = "skip",
    progress: Progress | None = None,
    limit: int | None = None,
) -> PrepareReport:
    """Write the manifest and the vocabulary of an experiment's data set.

    The vocabulary is built from the training captions of ``data.name`` and of the sets
    of ``data.also``, which must be prepared before.

    Each file is written atomically; preparing again resumes unpacking. A second process
    is refused.

    Args:
        experiment: the experiment; its ``data`` table names the source and the size
            of the vocabulary.
        data: the user's folder; ignored if the scenes are drawn.
        work: the folder of all prepared data sets, each in a folder of its name.
        on_problem: ``skip`` skips items that have problems, ``refuse`` raises an
            error: before unpacking if the problem is already known.
        progress: called after every unpacked photo.
        limit: number of photos of each split, the first ones of the data set; all by
            default. Photos beyond it are not unpacked.

    Returns:
        Counts, coverage and problems.

    Raises:
        DataError: the data cannot be prepared, or have problems that are refused.
        ManifestError: a set of ``data.also`` is not prepared.
        VocabularyError: no word is frequent enough.
    """
    started = time.monotonic()
    settings = experiment.data
    folder = Path(work).absolute() / settings.name
    further = read_photos(experiment, folder.parent, further=True)
    taken = DataError(f"{folder}: another process is preparing it; wait for its end")
    with locked(folder / ".prepare.lock", taken):
        if settings.source == DRAWN:
            photos, problems = write_scenes(folder), Problems()
            photos = photos if limit is None else first_of_each_split(photos, limit)
        else:
            photos, problems = _read_and_unpack(
                experiment, data, folder, on_problem, progress, limit
            )
        problems.write_listing(folder / PROBLEMS)
        vocabulary, coverage = _vocabulary([*photos, *further], settings)
        vocabulary.save(
            vocabulary_path(experiment, folder.parent),
            {"size": settings.vocabulary_size, "min_count": settings.min_count},
        )
        manifest.write_manifest(folder / MANIFEST, photos)
    captions = Counter()
    for photo in photos:
        captions[photo.split] += len(photo.captions)
    return PrepareReport(
        folder=folder,
        photos=dict(Counter(photo.split for photo in photos)),
        captions=dict(captions),
        words=len(vocabulary) - len(SPECIAL),
        coverage=coverage,
        problems=problems,
        seconds=time.monotonic() - started,
    )
