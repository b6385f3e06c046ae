"""Prepare a data set: manifest and vocabulary in one folder."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep import flickr8k
from data_prep.locate import DataFolder
from data_prep.problems import DAMAGED_ENTRY, DataError, Problems
from data_prep.unpack import Progress, unpack
from show_attend_tell import manifest
from show_attend_tell.config import DataSettings, Experiment
from show_attend_tell.manifest import Photo
from show_attend_tell.vocabulary import SPECIAL, UNKNOWN, Vocabulary, tokenize

MANIFEST, VOCABULARY, PROBLEMS = "manifest.jsonl", "vocabulary.json", "problems.txt"
PHOTOS = "photos"

Reader = Callable[[DataFolder, Path], tuple[list[Photo], Problems]]
_READERS: dict[str, Reader] = {
    "flickr8k": flickr8k.read,
}
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareReport:
    """What was prepared.

    Attributes:
        folder: holds manifest, vocabulary and, if any, ``problems.txt``.
        photos: split -> number of photos.
        captions: split -> number of captions.
        words: words kept, without the special tokens.
        coverage: share of the words of all training captions that are kept, 0 to 1.
        problems: what was skipped, and notes.
        seconds: wall-clock time taken.
    """

    folder: Path
    photos: dict[str, int]
    captions: dict[str, int]
    words: int
    coverage: float
    problems: Problems
    seconds: float

    def lines(self) -> list[str]:
        """Return the report as lines for the screen."""
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
            lines.append(f"every name skipped: {self.folder / PROBLEMS}")
        lines.append(f"prepared in {self.folder} ({self.seconds:.0f} s)")
        return lines


def _from_source(
    source: str,
    data: Path | None,
    folder: Path,
    on_problem: str,
    progress: Progress | None,
) -> tuple[list[Photo], Problems]:
    if data is None:
        raise DataError(
            f"`data` must be the folder of photos and captions of {source}. "
            "Received: None; name it"
        )
    photo_folder = folder / PHOTOS
    place = DataFolder(data, leave_out=folder)
    photos, problems = _READERS[source](place, photo_folder)
    problems.update(place.problems)
    if on_problem == "refuse":
        problems.write(folder / PROBLEMS)
        problems.refuse(folder / PROBLEMS)
    wanted = {photo.path.name for photo in photos}
    packed = {name: at for name, at in place.photos.items() if name in wanted}
    damaged = unpack(packed, photo_folder, progress)
    problems.update(damaged)
    if damaged:
        lost = {name.split(": ", 1)[1] for name in damaged.names(DAMAGED_ENTRY)}
        photos = [photo for photo in photos if photo.path.name not in lost]
    return photos, problems


def _vocabulary(
    photos: list[Photo], settings: DataSettings
) -> tuple[Vocabulary, float]:
    """Build the vocabulary of the training split; return it and its coverage."""
    captions = [
        tokenize(caption)
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
) -> PrepareReport:
    """Make the manifest and the vocabulary of an experiment's data set.

    Both files appear whole or not at all; preparing again resumes unpacking.

    Args:
        experiment: its ``data`` table says which source and which words.
        data: the user's folder; not needed for drawn scenes.
        work: the folder that holds prepared data sets, each under its name.
        on_problem: leave out what is odd, or stop before any work.
        progress: called while photos are unpacked.

    Returns:
        Counts, coverage and problems.

    Raises:
        DataError: the data cannot be prepared, or has problems to be refused.
        VocabularyError: no word occurs often enough.
    """
    started = time.monotonic()
    settings = experiment.data
    folder = Path(work).absolute() / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    if settings.source == "scenes":
        from data_prep import scenes

        photos, problems = scenes.generate(folder), Problems()
    else:
        photos, problems = _from_source(
            settings.source, data, folder, on_problem, progress
        )
    problems.write(folder / PROBLEMS)
    if on_problem == "refuse":
        problems.refuse(folder / PROBLEMS)
    vocabulary, coverage = _vocabulary(photos, settings)
    vocabulary.save(
        folder / VOCABULARY,
        {"size": settings.vocabulary_size, "min_count": settings.min_count},
    )
    manifest.write(folder / MANIFEST, photos)
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
