"""Read the words of crops in files, with the inputs and errors of ``caption``."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from show_attend_tell.data.characters import decode, encode_words
from show_attend_tell.data.word_crops import read_crop
from show_attend_tell.inference.batch import (
    BatchReport,
    distinct_photos,
    file_identity,
)
from show_attend_tell.inference.journal import Journal
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.read_ahead import read_ahead
from show_attend_tell.inference.result import Failure
from show_attend_tell.runtime.errors import OutputFileError, PhotoError
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.lexicon import Lexicon

_FLATTEST = 8  # grey levels between the darkest and the brightest pixel of a crop


@dataclass(frozen=True, eq=False)
class Reading:
    """The word of a crop.

    Attributes:
        path: path of the crop.
        word: the word in small letters; empty if none was found.
        log_prob: log p(word), its end included, in nats.
        probabilities: (T,) p of each character that was read, before a lexicon.
        characters: the T characters that were read, before a lexicon.
        attention: (T, rows, columns) weights alpha of each character; None if the
            model attends to no places.
        crop: (32, 100) uint8, what the model sees.
    """

    path: Path
    word: str
    log_prob: float
    probabilities: np.ndarray = field(repr=False)
    characters: str = field(repr=False)
    attention: np.ndarray | None = field(repr=False)
    crop: np.ndarray = field(repr=False)

    @property
    def probability(self) -> float:
        """The probability of the word, between 0 and 1."""
        return float(np.exp(self.log_prob))


def best_readings(
    search: Searcher,
    crops: np.ndarray,
    lexicon: Lexicon | None = None,
    paths: Sequence[Path] = (),
) -> list[Reading]:
    """Read crops; return the best word of each.

    Args:
        search: the compiled reader.
        crops: (N, 32, 100) uint8.
        lexicon: words of which each crop has one: the nearest to what was read, of
            equally near ones the most probable.
        paths: path of each crop; none by default.
    """
    found, grid, readings = search(crops), search.model.grid, []
    for row, crop in enumerate(crops):
        characters = decode(found.tokens[row, 0])
        T, log_prob = len(characters), float(found.log_probs[row, 0])
        word, attention = characters, None
        if lexicon is not None:
            word, log_prob = _nearest(search, crop, (word, log_prob), lexicon)
        if grid is not None:
            attention = found.alpha[row, 0, :T].reshape(T, *grid)
        path = paths[row] if paths else Path()
        probabilities = np.exp(found.word_log_probs[row, 0, :T])
        readings.append(
            Reading(path, word, log_prob, probabilities, characters, attention, crop)
        )
    return readings


def _nearest(
    search: Searcher, crop: np.ndarray, read: tuple[str, float], lexicon: Lexicon
) -> tuple[str, float]:
    """Return the nearest word of a lexicon and its log p.

    Args:
        search: the compiled reader.
        crop: (32, 100) uint8.
        read: the characters that were read, and their log p.
        lexicon: the lexicon.
    """
    words = lexicon.nearest(read[0])
    if words == [read[0]]:
        return read
    log_probs = search.log_probs(crop, encode_words(words))
    best = int(log_probs.argmax())
    return words[best], float(log_probs[best])


def read_files(
    search: Searcher,
    found: Sequence[Path | Failure],
    lexicon: Lexicon | None = None,
) -> Iterator[Reading | Failure]:
    """Yield the word of each crop, or the failure of one that cannot be read.

    Args:
        search: the compiled reader.
        found: files of crops; failures are passed through.
        lexicon: see :func:`best_readings`.
    """

    def read(one: Path | Failure) -> tuple[Path, np.ndarray] | Failure:
        return one if isinstance(one, Failure) else _read(one)

    for results in read_ahead(read, found, search.batch):
        crops = [one for one in results if isinstance(one, tuple)]
        readings = iter(())
        if crops:
            paths, images = zip(*crops, strict=True)
            readings = iter(best_readings(search, np.stack(images), lexicon, paths))
        for one in results:
            yield one if isinstance(one, Failure) else next(readings)


def _read(path: Path) -> tuple[Path, np.ndarray] | Failure:
    """Return a crop, or a Failure if it cannot be read or is empty."""
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


class WordJournal(Journal):
    """An open JSON Lines file of words, see :class:`Journal`."""

    texts = ("path", "word", "made_by")
    numbers = ("log_prob",)
    noun = "words"

    def row_of(self, result: Reading) -> dict:
        """Return the row of a word."""
        return {
            "path": os.fspath(result.path),
            "word": result.word,
            "log_prob": round(result.log_prob, 6),
            "made_by": self.made_by,
        }


def require_jsonl(out: Path) -> None:
    """Raise an OutputFileError unless a file of words ends in ``.jsonl``."""
    if out.suffix.lower() != ".jsonl":
        raise OutputFileError(
            f"`out` must end in .jsonl. Received: {out}; choose another name"
        )


def read_into_file(
    search: Searcher,
    model_file: Path,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    lexicon: Lexicon | None = None,
    shown: bool = True,
) -> BatchReport:
    """Write the words of many crops into a file, of which an earlier run resumes.

    Args:
        search: the compiled reader.
        model_file: the file of its model, by which rows are recognised as its own.
        paths: crops, and folders whose crops are read, nested ones too.
        out: a ``.jsonl`` file.
        lexicon: see :func:`reading.best_readings`.
        shown: whether to show a progress bar.

    Raises:
        OutputFileError: the ending of `out` is another, or see :class:`Journal`.
    """
    out = Path(out)
    require_jsonl(out)
    found = distinct_photos(find_photos(paths))
    author = f"{file_identity(model_file)}, beam {search.beam}"
    if lexicon is not None:
        author += f", lexicon {lexicon.digest[:12]}"
    with WordJournal(out, author) as journal:
        left = [one for one in found if isinstance(one, Failure) or one not in journal]
        present, failures = len(found) - len(left), []
        results = read_files(search, left, lexicon)
        with progress_bar(len(found), "crop", "read", done=present, shown=shown) as bar:
            while batch := list(itertools.islice(results, search.batch)):
                journal.append(one for one in batch if isinstance(one, Reading))
                failures += [one for one in batch if isinstance(one, Failure)]
                bar.update(len(batch))
    nouns = ("words", "crops")
    written = len(left) - len(failures)
    return BatchReport(out, written, present, tuple(failures), nouns)
