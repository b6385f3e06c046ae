"""Spell words by the 36 characters of a word reader, and by their tokens.

The characters are the digits and the small letters. Capitals count as small letters, in
rendered words, in the labels of crops and in scores alike.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from show_attend_tell.runtime.errors import WordsError, quote

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
PAD, START, END = 0, 1, 2
TOKENS = ("<pad>", "<start>", "<end>", *CHARACTERS)  # their ids are their positions
MAX_LENGTH = 23  # characters of a word, before <end>
STEPS = MAX_LENGTH + 1  # T, with <end>

_ID_OF = {token: position for position, token in enumerate(TOKENS)}


def fold(word: str) -> str:
    """Return the word in small letters, the form in which words are compared.

    Raises:
        WordsError: the word is empty or too long, or has another character than
            0-9, A-Z and a-z.
    """
    folded = word.lower()
    others = [one for one in word if one.lower() not in CHARACTERS or not one.isascii()]
    if others:
        raise WordsError(
            f"`word` must have the characters 0-9, a-z and A-Z only. Received: "
            f"{quote(word)}, with {quote(others[0])}; remove the word"
        )
    if not 1 <= len(folded) <= MAX_LENGTH:
        raise WordsError(
            f"`word` must have 1 to {MAX_LENGTH} characters. Received: {quote(word)}, "
            f"with {len(folded)}; remove the word"
        )
    return folded


def encode(word: str) -> list[int]:
    """Return the tokens of a word, its characters and ``<end>``.

    Raises:
        WordsError: see :func:`fold`.
    """
    return [*(_ID_OF[one] for one in fold(word)), END]


def encode_words(words: Iterable[str]) -> np.ndarray:
    """Return the tokens of words, (N, 24) int32, with ``<pad>`` after each ``<end>``.

    Raises:
        WordsError: see :func:`fold`.
    """
    rows = [encode(word) for word in words]
    tokens = np.full((len(rows), STEPS), PAD, np.int32)
    for row, ids in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """Return the word of tokens: the characters before the first ``<end>``.

    ``<pad>`` and ``<start>`` are left out.

    Raises:
        WordsError: a token is no position in :data:`TOKENS`.
    """
    word = []
    for token in map(int, tokens):
        if not 0 <= token < len(TOKENS):
            raise WordsError(
                f"`tokens` must be 0 to {len(TOKENS) - 1}. Received: {token}; decode "
                "the tokens of a word reader"
            )
        if token == END:
            break
        if token > END:
            word.append(TOKENS[token])
    return "".join(word)
