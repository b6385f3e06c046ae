"""Read the words of crops in files, with the inputs and errors of ``caption``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from show_attend_tell.data.characters import decode, encode_words
from show_attend_tell.data.word_crops import read_crop
from show_attend_tell.inference.photos import read_ahead
from show_attend_tell.inference.result import Failure
from show_attend_tell.runtime.errors import PhotoError
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
