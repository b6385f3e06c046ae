"""Sample words to render: listed words, numbers, addresses and random letters.

The lengths follow the words in IIIT5K's photos, with more long words. Punctuation is
part of the picture and not of the word.
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
# To 22 characters. Long words are rare in photos, and the hardest ones to read.
_LENGTHS = np.repeat([10, 3], [15, MAX_LENGTH - 16])
_LENGTHS[: len(_COUNTS)] += _COUNTS
_FEW = 100  # listed words of a length, too few to be chosen often
# Shares: words of the list, random letters, numbers, one or two characters, addresses.
_KINDS = (0.69, 0.10, 0.12, 0.05, 0.04)
_CASES = (0.48, 0.27, 0.20, 0.05)  # upper, title, lower, mixed
_PUNCTUATED = 0.15
# The word is at the underscore.
_PUNCTUATION = """
    _. _, _! _? _: '_' "_" "_ _" -_ _- $_ (_) _) #_ +_ _!! *_ _*
""".split()
# A digit is written for each 0. Numbers of one to five digits are the most frequent.
_FORMATS = "0 00 000 0000 00000".split() * 6
_FORMATS += """
    000000 0000000 00000000 0000000000 000-0000 000-000-0000
    0% 00% 00% $0 $00 $0.00 $00.00 $000 0.0 00.0
    0,000 00,000 0:00 00:00 0/0 00/00 0-0 00-00 +00
    0st 0nd 0rd 0th 00th 00s 0000s 00km 000m 00kg
""".split()
_ENDS = ("com", "net", "org", "co.uk", "in", "de", "edu", "info")
_INSIDE = "'-./&."
_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
_DIGITS = tuple("0123456789")
_SYSTEM_LISTS = ("/usr/share/dict/words", "/usr/share/dict/american-english")
_MOST_FREQUENT = 100_000


@dataclass(frozen=True)
class Shown:
    """A word and the text that its picture shows.

    Attributes:
        word: the word in small letters, the label for a reader.
        text: the word in capitals or small letters, perhaps with punctuation.
    """

    word: str
    text: str

    def plain(self) -> str:
        """Return the text without punctuation."""
        return "".join(filter(str.isalnum, self.text))


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
        by_length: dict[int, list[str]] = {}
        for word in sorted(frequencies):
            by_length.setdefault(len(word), []).append(word)
        self._by_length = {}
        for length, words in by_length.items():
            weights = np.sqrt([frequencies[word] for word in words])
            self._by_length[length] = words, np.cumsum(weights / weights.sum())
        known = set(range(1, len(_LENGTHS) + 1))
        many = [n for n in known & set(by_length) if len(by_length[n]) >= _FEW]
        lengths = sorted(many or known & set(by_length))
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
            text = self._listed(rng)
        elif kind == 1:
            text = _random_letters(rng, 1 + sample_index(np.cumsum(_LENGTHS), rng))
        elif kind == 2:
            text = _number(rng)
        elif kind == 3:
            text = _random_letters(rng, rng.integers(1, 3))
        else:
            text = self._address(rng)
        word = "".join(filter(str.isalnum, text))
        text = _cased(text, rng)
        return Shown(word, _punctuated(text, rng) if text.isalnum() else text)

    def neighbour(self, rng: np.random.Generator) -> str:
        """Return the text of a neighbouring word."""
        return _cased(self._listed(rng), rng)

    def _address(self, rng: np.random.Generator) -> str:
        """Return an internet address, or two words in one."""
        while True:
            first, second = self._listed(rng), self._listed(rng)
            end = _ENDS[rng.integers(len(_ENDS))]
            forms = (
                f"www.{first}.{end}",
                f"{first}.{end}",
                f"{first}@{second}.{end}",
                f"{first}{second}",
                f"{first}-{second}",
                f"www.{first}{second}.{end}",
            )
            text = forms[rng.integers(len(forms))]
            if sum(map(str.isalnum, text)) <= MAX_LENGTH:
                return text

    def _listed(self, rng: np.random.Generator) -> str:
        words, shares = self._by_length[self._lengths[sample_index(self._shares, rng)]]
        if rng.random() < 0.5:
            return words[rng.integers(len(words))]
        return words[sample_index(shares, rng)]


def sample_index(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """Return a random index in proportion to its weight."""
    place = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return min(int(place), len(cumulative) - 1)


def _random_letters(rng: np.random.Generator, length: int) -> str:
    return "".join(rng.choice(_LETTERS, length))


def _number(rng: np.random.Generator) -> str:
    """Return a number in one of the formats; one in ten has letters too."""
    text = _FORMATS[rng.integers(len(_FORMATS))]
    text = "".join(rng.choice(_DIGITS) if sign == "0" else sign for sign in text)
    if rng.random() >= 0.1 or not text.isdigit():
        return text
    letters = _random_letters(rng, rng.integers(1, 3))
    return text + letters if rng.random() < 0.5 else letters + text


def _cased(word: str, rng: np.random.Generator) -> str:
    case = rng.choice(len(_CASES), p=_CASES)
    if case == 0:
        return word.upper()
    if case == 1:
        return word.capitalize()
    if case == 2:
        return word
    letters = zip(word, rng.random(len(word)) < 0.5, strict=True)
    return "".join(letter.upper() if upper else letter for letter, upper in letters)


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
        frequencies = {
            word: wordfreq.word_frequency(word, "en")
            for word in wordfreq.top_n_list("en", _MOST_FREQUENT)
            if word.isascii() and word.isalpha() and len(word) <= MAX_LENGTH
        }
        return WordList(frequencies)
    for system in map(Path, _SYSTEM_LISTS):
        if system.is_file():
            return WordList(dict.fromkeys(read_word_file(system), 1.0))
    raise DataError(
        "`data.words` must be a file of words where no list is installed. Received: "
        f"none; name a file with --set data.words=FILE, or {INSTALL}"
    )
