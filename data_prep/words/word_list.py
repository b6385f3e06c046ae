"""Choose the words to render: from a list, numbers, and random letters.

The lengths are those of the words in IIIT5K's photos. Punctuation around a word is part
of the picture and not of the word.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.words.fonts import INSTALL
from show_attend_tell.data.characters import MAX_LENGTH, read_word_file
from show_attend_tell.runtime.errors import DataError

# Words of 1, 2, ... characters among the 2,000 of IIIT5K train.
_COUNTS = (65, 257, 343, 358, 310, 228, 181, 91, 78, 34, 27, 12, 5, 6, 0, 0, 2, 1, 1)
_LENGTHS = np.maximum(1, [*_COUNTS, *[0] * (MAX_LENGTH - 1 - len(_COUNTS))])  # to 22
# Shares of words of the list, random letters, numbers, and one or two characters.
_KINDS = (0.75, 0.10, 0.10, 0.05)
_CASES = (0.48, 0.27, 0.20, 0.05)  # upper, title, lower, mixed
_PUNCTUATED = 0.15
_PAIRS = (("", "."), ("", ","), ("", "!"), ("", "?"), ("", ":"), ("'", "'"))
_PAIRS += (('"', '"'), ('"', ""), ("", '"'), ("-", ""), ("", "-"), ("$", ""))
_INSIDE = "'-./&."
_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
_DIGITS = tuple("0123456789")
_SYSTEM_LISTS = ("/usr/share/dict/words", "/usr/share/dict/american-english")
_MOST_FREQUENT = 100_000


@dataclass(frozen=True)
class Shown:
    """A word and its picture's text.

    Attributes:
        word: the word in small letters, what a reader must return.
        text: the word in capitals or small letters, perhaps with punctuation.
    """

    word: str
    text: str

    def plain(self) -> str:
        """Return the text without punctuation."""
        return "".join(filter(str.isalnum, self.text))


class WordList:
    """Words by length, and their frequency.

    Half of the words are chosen uniformly among those of a length, half by the square
    root of their frequency, so that rare and frequent ones both occur.

    Args:
        frequencies: word in small letters -> frequency, any positive number.

    Attributes:
        digest: a digest of words and frequencies.
    """

    def __init__(self, frequencies: Mapping[str, float]):
        by_length: dict[int, list[str]] = {}
        for word in sorted(frequencies):
            by_length.setdefault(len(word), []).append(word)
        self._by_length = {}
        for length, words in by_length.items():
            weights = np.sqrt([frequencies[word] for word in words])
            self._by_length[length] = words, np.cumsum(weights / weights.sum())
        lengths = sorted(set(by_length) & set(range(1, len(_LENGTHS) + 1)))
        self._lengths = lengths or sorted(by_length)
        shares = [_LENGTHS[min(n, len(_LENGTHS)) - 1] for n in self._lengths]
        self._shares = np.cumsum(shares) / np.sum(shares)
        self._size = len(frequencies)
        content = repr(sorted(frequencies.items())).encode()
        self.digest = hashlib.sha256(content).hexdigest()

    def __len__(self) -> int:
        """Return the number of words."""
        return self._size

    def sample(self, rng: np.random.Generator) -> Shown:
        """Return a word with its text."""
        kind = rng.choice(len(_KINDS), p=_KINDS)
        if kind == 0:
            word = self._listed(rng)
        elif kind == 1:
            word = _random_letters(rng, 1 + sample_index(np.cumsum(_LENGTHS), rng))
        elif kind == 2:
            word = _number(rng)
        else:
            word = _random_letters(rng, rng.integers(1, 3))
        text = _cased(word, rng)
        return Shown(word, _punctuated(text, rng))

    def neighbour(self, rng: np.random.Generator) -> str:
        """Return the text of a word beside another one."""
        return _cased(self._listed(rng), rng)

    def _listed(self, rng: np.random.Generator) -> str:
        words, shares = self._by_length[self._lengths[sample_index(self._shares, rng)]]
        if rng.random() < 0.5:
            return words[rng.integers(len(words))]
        return words[sample_index(shares, rng)]


def sample_index(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """Return a random position, by cumulative weights."""
    place = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return min(int(place), len(cumulative) - 1)


def _random_letters(rng: np.random.Generator, length: int) -> str:
    return "".join(rng.choice(_LETTERS, length))


def _number(rng: np.random.Generator) -> str:
    """Return one to five digits, in a fifth of the cases with one or two letters."""
    digits = "".join(rng.choice(_DIGITS, rng.integers(1, 6)))
    if rng.random() >= 0.2:
        return digits
    letters = _random_letters(rng, rng.integers(1, 3))
    return digits + letters if rng.random() < 0.5 else letters + digits


def _cased(word: str, rng: np.random.Generator) -> str:
    case = rng.choice(len(_CASES), p=_CASES)
    if case == 0:
        return word.upper()
    if case == 1:
        return word.capitalize()
    if case == 2:
        return word
    upper = rng.random(len(word)) < 0.5
    pairs = zip(word, upper, strict=True)
    return "".join(one.upper() if up else one for one, up in pairs)


def _punctuated(text: str, rng: np.random.Generator) -> str:
    """Add punctuation, as around some words of photos."""
    if rng.random() >= _PUNCTUATED:
        return text
    if len(text) > 3 and rng.random() < 0.3:  # inside the word
        place = rng.integers(1, len(text))
        return text[:place] + _INSIDE[rng.integers(len(_INSIDE))] + text[place:]
    before, after = _PAIRS[rng.integers(len(_PAIRS))]
    return before + text + after


def load_words(path: str | Path | None = None) -> WordList:
    """Return the words of a file, or those of an installed list.

    The installed list is that of the package ``wordfreq``, else that of the system.

    Args:
        path: see :func:`show_attend_tell.data.characters.read_word_file`.

    Raises:
        WordsError: the file cannot be read, or has no word.
        DataError: no list is installed.
    """
    if path is not None:
        return WordList(dict.fromkeys(read_word_file(path), 1.0))
    try:
        import wordfreq
    except ImportError:
        pass
    else:
        words = wordfreq.top_n_list("en", _MOST_FREQUENT)
        kept = (word for word in words if word.isascii() and word.isalpha())
        return WordList(
            {
                word: wordfreq.word_frequency(word, "en")
                for word in kept
                if len(word) <= MAX_LENGTH
            }
        )
    for system in map(Path, _SYSTEM_LISTS):
        if system.is_file():
            return WordList(dict.fromkeys(read_word_file(system), 1.0))
    raise DataError(
        "`words` must be a file of words where no list is installed. Received: None; "
        f"name a file with --words, or {INSTALL}"
    )
