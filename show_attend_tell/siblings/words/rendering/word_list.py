"""Sample words to render: listed words, numbers and random letters.

The lengths follow the words in IIIT5K's photos. Punctuation is part of the picture and
not of the word.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import MAX_LENGTH, read_word_file
from show_attend_tell.siblings.words.rendering.fonts import INSTALL

# Words of 1, 2, ... characters among the 2,000 of IIIT5K train, and a few longer ones.
_LENGTHS = (65, 257, 343, 358, 310, 228, 181, 91, 78, 34, 27, 12, 5, 6, 1, 1, 2, 1, 1)
_LENGTHS += (1, 1, 1)
_KINDS = (0.75, 0.15, 0.10)  # shares of listed words, random letters and numbers
_CASES = (0.50, 0.29, 0.21)  # upper, title, lower
_PUNCTUATED = 0.15
# The word is at the underscore.
_PUNCTUATION = """
    _. _, _! _? _: '_' "_" "_ _" -_ _- $_ (_) _) #_ +_ _!! *_ _*
""".split()
_INSIDE = "'-./&."
_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
_DIGITS = tuple("0123456789")
_SYSTEM_LISTS = ("/usr/share/dict/words", "/usr/share/dict/american-english")
_MOST_FREQUENT = 100_000


class WordList:
    """Words by length, and their frequency.

    For a length, half of the words are drawn uniformly and half by the square root of
    their frequency, so that both rare and frequent words occur.

    Args:
        frequencies: word in small letters -> frequency, any positive number.

    Attributes:
        digest: a digest of words and frequencies.
    """

    def __init__(self, frequencies: Mapping[str, float]):
        self.digest = hashlib.sha256(
            repr(sorted(frequencies.items())).encode()
        ).hexdigest()
        self._size = len(frequencies)
        by_length: dict[int, list[str]] = {}
        for word in sorted(frequencies):
            # Words longer than the table are drawn with its longest.
            by_length.setdefault(min(len(word), len(_LENGTHS)), []).append(word)
        self._words = list(by_length.values())
        self._lengths = np.cumsum([_LENGTHS[length - 1] for length in by_length])
        self._shares = []
        for words in self._words:
            weights = np.sqrt([frequencies[word] for word in words])
            # Both terms sum to 1 over the words of a length: half of the draws each.
            self._shares.append(np.cumsum(weights / weights.sum() + 1 / len(words)))

    def __len__(self) -> int:
        """Return the number of words."""
        return self._size

    def sample(self, rng: np.random.Generator) -> tuple[str, str]:
        """Return a word in small letters, a reader's label, and the text to draw."""
        kind = rng.choice(len(_KINDS), p=_KINDS)
        if kind == 0:
            word = self._listed(rng)
        elif kind == 1:
            word = "".join(rng.choice(_LETTERS, 1 + _sample(np.cumsum(_LENGTHS), rng)))
        else:
            word = "".join(rng.choice(_DIGITS, rng.integers(1, 6)))
        return word, _punctuated(_cased(word, rng), rng)

    def neighbour(self, rng: np.random.Generator) -> str:
        """Return the text of a neighbouring word."""
        return _cased(self._listed(rng), rng)

    def _listed(self, rng: np.random.Generator) -> str:
        length = _sample(self._lengths, rng)
        return self._words[length][_sample(self._shares[length], rng)]


def _sample(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """Return a random index in proportion to its weight."""
    place = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    # If the product is rounded up to the last sum, the index is one too large.
    return min(int(place), len(cumulative) - 1)


def _cased(word: str, rng: np.random.Generator) -> str:
    case = rng.choice(len(_CASES), p=_CASES)
    return (word.upper(), word.capitalize(), word)[case]


def _punctuated(text: str, rng: np.random.Generator) -> str:
    """Add punctuation to some words, as signs do."""
    if rng.random() >= _PUNCTUATED:
        return text
    if len(text) > 3 and rng.random() < 0.3:  # inside the word
        place = rng.integers(1, len(text))
        return text[:place] + _INSIDE[rng.integers(len(_INSIDE))] + text[place:]
    return _PUNCTUATION[rng.integers(len(_PUNCTUATION))].replace("_", text)


def load_words(path: str | Path | None = None) -> WordList:
    """Return the words of a file, or of an installed list.

    The installed list is the package ``wordfreq``, otherwise a list of the system.

    Args:
        path: see :func:`show_attend_tell.siblings.words.data.read_word_file`.

    Raises:
        DataError: the file cannot be read, or has no word; or no list is installed.
    """
    if path is None:
        try:
            import wordfreq
        except ImportError:
            path = next((p for p in _SYSTEM_LISTS if Path(p).is_file()), None)
        else:
            return WordList(
                {
                    word: wordfreq.word_frequency(word, "en")
                    for word in wordfreq.top_n_list("en", _MOST_FREQUENT)
                    if word.isascii() and word.isalpha() and len(word) <= MAX_LENGTH
                }
            )
    if path is None:
        raise DataError(
            "`data.words` must be a file of words where no list is installed. "
            f"Received: none; name a file with --set data.words=FILE, or {INSTALL}"
        )
    return WordList(dict.fromkeys(read_word_file(path), 1.0))
