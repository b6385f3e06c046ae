"""Measure how many characters two words differ by, and find the nearest of a list."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.data.characters import PAD, encode_words, fold
from show_attend_tell.runtime.errors import WordsError, one_line
from show_attend_tell.runtime.regular_files import read_text_bytes

_MOST_BYTES = 100_000_000  # of a lexicon


def edit_distances(word: str, tokens: np.ndarray) -> np.ndarray:
    """Return the edit distance from a word to each of many, (N,).

    It is the least number of characters to insert, to remove or to replace
    (Levenshtein). The table of distances between beginnings is computed row by row, for
    all words together.

    Args:
        word: a word, or the empty one.
        tokens: the other words, see :func:`data.characters.encode_words`.
    """
    N, T = tokens.shape
    lengths = np.sum(tokens != PAD, axis=1) - 1  # without <end>
    own = encode_words([word])[0, : len(word)] if word else []
    # To the first k characters of each word from none of ours: k are inserted.
    row = np.repeat(np.arange(T + 1)[None], N, axis=0)  # (N, T + 1)
    for count, character in enumerate(own, start=1):
        replaced = row[:, :-1] + (tokens != character)
        best = np.minimum(row[:, 1:] + 1, replaced)  # one of ours is removed
        row = np.empty_like(row)
        row[:, 0] = count
        for k in range(T):  # one of theirs is inserted
            row[:, k + 1] = np.minimum(best[:, k], row[:, k] + 1)
    return row[np.arange(N), lengths]


def edit_distance(one: str, other: str) -> int:
    """Return the edit distance between two words, of which either may be empty."""
    if not other:
        return len(one)
    return int(edit_distances(one, encode_words([other]))[0])


class Lexicon:
    """A list of words, one of which is in each crop.

    Attributes:
        words: the words, in small letters.
        digest: a digest of them.

    Args:
        words: the words, in any case.

    Raises:
        WordsError: a word is too long or has unknown characters, or there is none.
    """

    def __init__(self, words: Sequence[str]):
        self.words = tuple(dict.fromkeys(map(fold, words)))
        if not self.words:
            raise WordsError("`lexicon` must have a word or more. Received: none")
        self.digest = hashlib.sha256("\n".join(self.words).encode()).hexdigest()
        self._tokens = encode_words(self.words)

    @classmethod
    def load(cls, path: Path) -> "Lexicon":
        """Load a text file, UTF-8, of one word a line; empty lines are ignored.

        Raises:
            WordsError: the file is absent, has no word, or one that cannot be read.
        """
        try:
            lines = read_text_bytes(path, _MOST_BYTES).decode().split()
            return cls(lines)
        except FileNotFoundError:
            raise WordsError(f"{path}: no such lexicon; correct the path") from None
        except WordsError as error:
            raise WordsError(f"{path}: {error}") from None
        except (OSError, ValueError) as error:  # not UTF-8
            raise WordsError(
                f"{path}: cannot be read as a lexicon ({one_line(error)}); write one "
                "word a line"
            ) from None

    def nearest(self, word: str) -> tuple[list[str], np.ndarray]:
        """Return the nearest words, more than one if they are equally near.

        Args:
            word: a word, or the empty one.

        Returns:
            The words, and their tokens (M, 24).
        """
        distances = edit_distances(word, self._tokens)
        chosen = np.flatnonzero(distances == distances.min())
        return [self.words[k] for k in chosen], self._tokens[chosen]
