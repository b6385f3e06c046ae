"""Prepare a data set: manifest and vocabulary in one folder."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep.estimate import of_survey, require_room
from data_prep.problems import Problems
from data_prep.survey import PHOTOS, survey
from data_prep.unpack import Progress, unpack, waiting
from show_attend_tell.config.settings import DataSettings, Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import SPECIAL, UNKNOWN, Vocabulary, tokenize
from show_attend_tell.runtime.errors import DataError

MANIFEST, VOCABULARY, PROBLEMS = "manifest.jsonl", "vocabulary.json", "problems.txt"


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
    experiment: Experiment,
    data: Path | None,
    folder: Path,
    on_problem: str,
    progress: Progress | None,
) -> tuple[list[Photo], Problems]:
    found = survey(experiment.data.source, data, folder)
    if on_problem == "refuse":
        _refuse(found.problems, folder)
    expected = of_survey(found, experiment, folder)
    if not any(folder.glob("features*.h5")):
        require_room(expected, folder)
    damaged = unpack(found.packed, folder / PHOTOS, progress)
    found.problems.update(damaged)
    if not damaged:
        return found.photos, found.problems
    if on_problem == "refuse":
        _refuse(found.problems, folder)
    missing = waiting(found.packed, folder / PHOTOS).keys()
    photos = [photo for photo in found.photos if photo.path.name not in missing]
    return photos, found.problems


def _refuse(problems: Problems, folder: Path) -> None:
    """Stop if there is any problem, after writing all of them down."""
    problems.write(folder / PROBLEMS)
    problems.refuse(folder / PROBLEMS)


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
        from data_prep.scenes import scenes

        photos, problems = scenes.generate(folder), Problems()
    else:
        photos, problems = _from_source(experiment, data, folder, on_problem, progress)
    problems.write(folder / PROBLEMS)
    vocabulary, coverage = _vocabulary(photos, settings)
    vocabulary.save(
        folder / VOCABULARY,
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
