"""Read a text file of words, one a line."""

import logging
from pathlib import Path

from show_attend_tell.data.characters import MAX_LENGTH, fold
from show_attend_tell.runtime.errors import WordsError, one_line, quote
from show_attend_tell.runtime.regular_files import read_text_bytes

_MOST_BYTES = 100_000_000
_LOGGER = logging.getLogger(__name__)


def read_word_file(path: str | Path) -> list[str]:
    """Return the words of a file in small letters, each once, in its order.

    Lines with other characters than letters and digits, or too many of them, are
    skipped; a warning has their number and the first of them.

    Args:
        path: text in UTF-8, one word a line; empty lines are ignored.

    Raises:
        WordsError: the file cannot be read, or has no word.
    """
    try:
        text = read_text_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise WordsError(f"{path}: no such file of words; correct the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise WordsError(
            f"{path}: cannot be read as words ({one_line(error)}); pass a text file in "
            "UTF-8, one word a line"
        ) from None
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
