"""Read the words of crops in files, with the inputs and errors of ``caption``."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from show_attend_tell.inference.batch import (
    BatchReport,
    distinct_photos,
    file_identity,
)
from show_attend_tell.inference.journal import Journal, finite, text
from show_attend_tell.inference.photos import Failure, find_photos
from show_attend_tell.runtime.errors import CaptionError, PhotoError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.read_ahead import read_ahead
from show_attend_tell.siblings.words.data import decode, read_crop
from show_attend_tell.siblings.words.generation import Searcher

_FIELDS = {"path": text, "word": text, "log_prob": finite, "made_by": text}
_FLATTEST = 8  # grey levels between the darkest and the brightest pixel of a crop


# Without `==`, because arrays compare to arrays and not to a truth value.
@dataclass(frozen=True, eq=False)
class Reading:
    """The word of a crop; T characters."""

    path: Path
    word: str  # in small letters; empty if the model read none
    log_prob: float  # log p(word), its end included, in nats
    # (T,), p of each character that the model read, before a lexicon
    probabilities: np.ndarray = field(repr=False)
    characters: str = field(repr=False)  # that the model read, before a lexicon
    # (T, rows, columns), alpha of each character; None without places to attend to
    attention: np.ndarray | None = field(repr=False)
    crop: np.ndarray = field(repr=False)  # (32, 100) uint8, what the model sees

    @property
    def probability(self) -> float:
        """The probability of the word, between 0 and 1."""
        return float(np.exp(self.log_prob))


def best_readings(
    search: Searcher, crops: np.ndarray, paths: Sequence[Path] = ()
) -> list[Reading]:
    """Return the best word of each crop, (N, 32, 100) uint8, and of its path if any."""
    best = search(crops)
    grid = search.model.grid
    readings = []
    for row, crop in enumerate(crops):
        characters = decode(best.tokens[row, 0], search.model.characters)
        T = len(characters)
        read = float(best.log_probs[row, 0])
        word, log_prob = search.nearest(crop, characters, read)
        reading = Reading(
            path=paths[row] if paths else Path(),
            word=word,
            log_prob=log_prob,
            probabilities=np.exp(best.word_log_probs[row, 0, :T]),
            characters=characters,
            attention=grid and best.alpha[row, 0, :T].reshape(T, *grid),
            crop=crop,
        )
        readings.append(reading)
    return readings


def read_files(
    search: Searcher,
    files: Sequence[Path | Failure],
    describe: Callable[[Path], None] | None = None,
) -> Iterator[Reading | Failure]:
    """Yield the word of each crop, or the failure of a crop that cannot be read.

    Args:
        search: the compiled reader.
        files: crops; failures among them are passed through.
        describe: called with each crop before it is read.
    """
    size = search.batch

    def read(start: int) -> list[tuple[Path, np.ndarray] | Failure]:
        batch = files[start : start + size]
        if describe is not None:
            for file in batch:
                if not isinstance(file, Failure):
                    # Before it is read: the row of a crop that is replaced meanwhile is
                    # then outdated.
                    describe(file)
        return [_read(file) for file in batch]

    # A thread decodes the next crops while the model reads these.
    for results in read_ahead(read, range(0, len(files), size)):
        crops = [result for result in results if isinstance(result, tuple)]
        readings = iter(())
        if crops:
            paths, images = zip(*crops, strict=True)
            readings = iter(best_readings(search, np.stack(images), paths))
        for result in results:
            yield result if isinstance(result, Failure) else next(readings)


def _read(path: Path | Failure) -> tuple[Path, np.ndarray] | Failure:
    """Return a crop, or a Failure if it cannot be read or is empty."""
    if isinstance(path, Failure):
        return path
    try:
        crop = read_crop(path)
    except PhotoError as error:
        return Failure(path, str(error))
    if is_empty(crop):
        return Failure(
            path, f"{path}: an empty crop, of one grey level; cut out a word"
        )
    return path, crop


def is_empty(crop: np.ndarray) -> bool:
    """Return whether a crop has one grey level, or nearly so."""
    return int(np.ptp(crop)) < _FLATTEST


def require_jsonl(out: Path) -> None:
    """Raise a CaptionError unless a file of words ends in ``.jsonl``."""
    if out.suffix.lower() != ".jsonl":
        raise CaptionError(
            f"`out` must end in .jsonl. Received: {out}; choose another name"
        )


def read_into_file(
    search: Searcher,
    model_file: Path,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
) -> BatchReport:
    """Write the words of many crops to a file; resume the file of an interrupted run.

    Args:
        search: the compiled reader.
        model_file: the file of its model, whose identity each row records.
        paths: crops, and folders, which are searched recursively.
        out: a ``.jsonl`` file; see :class:`Journal`.
    """
    out = Path(out)
    files = distinct_photos(find_photos(paths))
    author = f"{file_identity(model_file)}, beam {search.beam}"
    if search.lexicon is not None:
        author += f", lexicon {search.lexicon.digest[:12]}"
    with Journal(out, author, _FIELDS, "words") as journal:
        left = [f for f in files if isinstance(f, Failure) or f not in journal]
        present = len(files) - len(left)
        failures = []
        results = read_files(search, left, journal.describe)
        with progress_bar(len(files), "crop", "read", done=present) as bar:
            while batch := list(itertools.islice(results, search.batch)):
                journal.append(
                    {
                        "path": os.fspath(reading.path),
                        "word": reading.word,
                        "log_prob": round(reading.log_prob, 6),
                        "made_by": author,
                    }
                    for reading in batch
                    if isinstance(reading, Reading)
                )
                failures += [r for r in batch if isinstance(r, Failure)]
                bar.update(len(batch))
        # A crop that was replaced, and cannot be read, loses its earlier word.
        outdated = journal.outdated(failure.path for failure in failures)
        if outdated:
            journal.remove(outdated)
    written = len(left) - len(failures)
    return BatchReport(
        out,
        written,
        present,
        tuple(failures),
        ("word", "crop"),
        outdated=len(outdated),
    )
