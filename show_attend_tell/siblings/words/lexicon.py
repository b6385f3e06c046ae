"""Find the word of a list that differs least from the characters that a model read."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from show_attend_tell.data.characters import fold, read_word_file
from show_attend_tell.runtime.errors import WordsError


class Lexicon:
    """A list of words; each crop shows one of them.

    Attributes:
        words: the words, in small letters.
        digest: a digest of them.

    Args:
        words: the words, in any case.

    Raises:
        WordsError: a word is too long or has unknown characters, or there are no words.
    """

    def __init__(self, words: Sequence[str]):
        self.words = tuple(dict.fromkeys(map(fold, words)))
        if not self.words:
            raise WordsError("`lexicon` must have a word or more. Received: none")
        self.digest = hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a text file, see :func:`data.characters.read_word_file`.

        Raises:
            WordsError: the file is absent, cannot be read, or has no word.
        """
        return cls(read_word_file(path))

    def nearest(self, word: str) -> list[str]:
        """Return the words at the smallest Levenshtein distance from a word.

        The distance is the number of characters to insert, remove or replace. The word
        may be empty.
        """
        (distances,) = cdist([word], self.words, scorer=Levenshtein.distance)
        chosen = np.flatnonzero(distances == distances.min())
        return [self.words[k] for k in chosen]
