"""Encode words as tokens: the digits, the small letters and three special tokens.

Capitals count as small letters in rendered words, labels and scores.
"""

import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.runtime.errors import WordsError, quote
from show_attend_tell.runtime.untrusted import read_text_bytes, reading

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
PAD, START, END = 0, 1, 2
TOKENS = ("<pad>", "<start>", "<end>", *CHARACTERS)  # their ids are their positions
MAX_LENGTH = 23  # characters of a word, before <end>
STEPS = MAX_LENGTH + 1  # T, with <end>

_MOST_BYTES = 100_000_000  # of a file of words
_LOGGER = logging.getLogger(__name__)
_ID_OF = {token: position for position, token in enumerate(TOKENS)}


def fold(word: str) -> str:
    """Return the word in small letters, the form in which words are compared.

    Raises:
        WordsError: the word is empty or too long, or has characters other than 0-9,
            A-Z and a-z.
    """
    folded = word.lower()
    odd = [c for c in word if c.lower() not in CHARACTERS or not c.isascii()]
    if odd:
        raise WordsError(
            f"`word` must have the characters 0-9, a-z and A-Z only. Received: "
            f"{quote(word)}, with {quote(odd[0])}; remove the word"
        )
    if not 1 <= len(folded) <= MAX_LENGTH:
        raise WordsError(
            f"`word` must have 1 to {MAX_LENGTH} characters. Received: {quote(word)}, "
            f"with {len(folded)}; remove the word"
        )
    return folded


def encode_words(words: Iterable[str]) -> np.ndarray:
    """Return the tokens of words, (N, 24) int32, padded after each ``<end>``."""
    rows = [[*map(_ID_OF.get, fold(word)), END] for word in words]
    tokens = np.full((len(rows), STEPS), PAD, np.int32)
    for row, ids in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """Return the characters before the first ``<end>``, without special tokens."""
    characters = itertools.takewhile(lambda token: token != END, map(int, tokens))
    return "".join(TOKENS[token] for token in characters if token > END)


def read_word_file(path: str | Path) -> list[str]:
    """Return the words of a file in small letters, each once, in its order.

    Lines with other characters than letters and digits, or too many of them, are
    skipped; a warning has their number and the first of them.

    Args:
        path: text in UTF-8, one word a line; empty lines are ignored.

    Raises:
        WordsError: the file cannot be read, or has no word.
    """
    remedy = "pass a text file in UTF-8, one word a line"
    with reading(path, WordsError, remedy, "file of words; correct the path"):
        text = read_text_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    words, first, skipped = [], "", 0
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line:
            continue
        try:
            words.append(fold(line))
        except WordsError:
            skipped += 1
            first = first or f"line {number}, {quote(line, 40)}"
    if not words:
        raise WordsError(
            f"{path}: must have words of 1 to {MAX_LENGTH} letters and digits, one a "
            f"line. Received: {first or 'an empty file'}; correct the file"
        )
    if skipped:
        _LOGGER.warning(
            "%s: %d lines skipped, words are 1 to %d of 0-9, a-z and A-Z; the first is "
            "%s",
            *(path, skipped, MAX_LENGTH, first),
        )
    return list(dict.fromkeys(words))
