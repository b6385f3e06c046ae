"""Encode words and read crops, prepared as crops in one array and a manifest of words.

``words.npy`` has the crops, (N, 32, 100) uint8. ``words.jsonl`` has one row for each,
in the same order: ``split``, ``word`` in small letters, and for the crop of a photo
``path``. The rows of a split are adjacent.

Preparation, evaluation and the verb ``read`` share the functions for crops, so that
training and inference see the same pixels. The tokens of a word are the characters of
an alphabet, by default the digits and the small letters of English, and three special
tokens; capitals count as small letters in rendered words, labels and scores.
"""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import numpy as np
import pydantic
from PIL import Image

from show_attend_tell.config.settings import AnyExperiment
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.data.unicode_text import visible_text
from show_attend_tell.runtime.errors import DataError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.untrusted import read_text_bytes, reading
from show_attend_tell.siblings.common.arrays import map_array

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
PAD = 0
START = 1
END = 2
SPECIAL = ("<pad>", "<start>", "<end>")
MAX_LENGTH = 23  # characters of a word, before <end>
STEPS = MAX_LENGTH + 1  # T, with <end>
MOST_CHARACTERS = 20_000  # of an alphabet; more than the characters in use of Chinese
_MOST_LISTED = 100_000_000  # bytes of a file of words
_LOGGER = logging.getLogger(__name__)
# pixels of a crop
HEIGHT = 32
WIDTH = 100
# The least grey levels by which a crop is divided: noise of one level in an empty crop
# must not become a picture.
LEAST_DEVIATION = 1.0
IMAGES = "words.npy"
MANIFEST = "words.jsonl"
SPLITS = ("train", "val", "test")
_ABSENT = "file; run `prepare` first"
_AGAIN = "prepare the words again"
_MOST_BYTES = 4_000_000_000  # of a manifest; a row has some 40


def tokens_of(characters: str) -> tuple[str, ...]:
    """Return the tokens of an alphabet; their ids are their positions."""
    return (*SPECIAL, *characters)


TOKENS = tokens_of(CHARACTERS)


def fold(word: str, characters: str | None = CHARACTERS) -> str:
    """Return the word in small letters, the form in which words are compared.

    Args:
        word: the word.
        characters: the alphabet, or None for any character that can be seen.

    Raises:
        DataError: the word is empty or too long, or has other characters.
    """
    folded = word.lower()
    if characters is None:
        odd = [c for c in folded if c.isspace() or not c.isprintable()]
        named = "visible characters"
    else:
        odd = [c for c in folded if c not in characters]
        # Signs whose small letter is one of English, such as that of Kelvin.
        odd += [c for c in word if c.lower().isascii() and not c.isascii()]
        named = f"the characters {describe_characters(characters)}"
    if odd:
        raise DataError(
            f"`word` must have {named} only. Received: {quote(word)}, with "
            f"{quote(odd[0])}; remove the word"
        )
    if not 1 <= len(folded) <= MAX_LENGTH:
        raise DataError(
            f"`word` must have 1 to {MAX_LENGTH} characters. Received: {quote(word)}, "
            f"with {len(folded)}; remove the word"
        )
    return folded


def describe_characters(characters: str) -> str:
    """Return an alphabet as text for a message."""
    if characters == CHARACTERS:
        return "0-9, a-z and A-Z"
    return quote(characters)


def characters_of(words: Iterable[str]) -> str:
    """Return the alphabet of words in small letters, sorted."""
    return "".join(sorted(set().union(*words)))


def require_alphabet(characters: str) -> str:
    """Return an alphabet; raise a ValueError unless each character is in it once."""
    if not 1 <= len(set(characters)) == len(characters) <= MOST_CHARACTERS:
        raise ValueError("an alphabet must have each of its characters once")
    for character in characters:
        if fold(character, None) != character:
            raise ValueError("an alphabet must have small letters")
    return characters


def encode_words(words: Iterable[str], characters: str = CHARACTERS) -> np.ndarray:
    """Return the tokens of words, (N, 24) int32, padded after each ``<end>``."""
    ids = {token: position for position, token in enumerate(tokens_of(characters))}
    rows = [[ids[c] for c in fold(word, characters)] + [END] for word in words]
    tokens = np.full((len(rows), STEPS), PAD, np.int32)
    for row, of_word in zip(tokens, rows, strict=True):
        row[: len(of_word)] = of_word
    return tokens


def decode(tokens: Sequence[int], characters: str = CHARACTERS) -> str:
    """Return the characters before the first ``<end>``, without special tokens."""
    before_end = itertools.takewhile(lambda token: token != END, map(int, tokens))
    first = len(SPECIAL)
    return "".join(characters[token - first] for token in before_end if token > END)


def read_word_file(path: str | Path, characters: str = CHARACTERS) -> list[str]:
    """Return the words of a file in small letters, each once, in its order.

    Lines with characters outside of the alphabet, or too many of them, are skipped; a
    warning has their number and the first of them.

    Args:
        path: text in UTF-8, one word a line; empty lines are ignored.
        characters: the alphabet.

    Raises:
        DataError: the file cannot be read, or has no word.
    """
    remedy = "pass a text file in UTF-8, one word a line"
    with reading(path, DataError, remedy, "file of words; correct the path"):
        text = read_text_bytes(path, _MOST_LISTED).decode("utf-8-sig")
    words = []
    first = ""
    skipped = 0
    for number, line in enumerate(text.splitlines(), start=1):
        # In NFC and without invisible characters, as the words of a table.
        line = visible_text(line).strip()
        if not line:
            continue
        try:
            words.append(fold(line, characters))
        except DataError:
            skipped += 1
            first = first or f"line {number}, {quote(line, 40)}"
    if not words:
        raise DataError(
            f"{path}: must have words of 1 to {MAX_LENGTH} of the characters "
            f"{describe_characters(characters)}, one a line. Received: "
            f"{first or 'an empty file'}; correct the file"
        )
    if skipped:
        _LOGGER.warning(
            "%s: %d lines skipped, words are 1 to %d of %s; the first is %s",
            path,
            skipped,
            MAX_LENGTH,
            describe_characters(characters),
            first,
        )
    return list(dict.fromkeys(words))


def read_crop(file: str | os.PathLike | IO[bytes]) -> np.ndarray:
    """Read the crop of a word, (32, 100) uint8, after applying its EXIF orientation.

    Args:
        file: path or open binary file.

    Raises:
        PhotoError: the file is absent, not a regular file, or cannot be decoded.
    """
    return resize_crop(load_photo(file))


def resize_crop(image: Image.Image) -> np.ndarray:
    """Convert an image of a word to (32, 100) uint8: grey, bicubic, any proportions."""
    grey = image.convert("L")
    return np.asarray(grey.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.uint8)


def normalise(crops: np.ndarray) -> np.ndarray:
    """Return (x - mean) / deviation, with the statistics of each crop.

    Args:
        crops: (..., 32, 100) grey levels from 0 to 255.

    Returns:
        The same shape in float32; a crop of one grey level is 0 everywhere.
    """
    x = np.asarray(crops, np.float32)
    mean = x.mean(axis=(-2, -1), keepdims=True)
    deviation = x.std(axis=(-2, -1), keepdims=True)
    return (x - mean) / np.maximum(deviation, LEAST_DEVIATION)


def _require_split(split: str) -> str:
    """Raise a ValueError unless a split has one of the known names."""
    if split not in SPLITS:
        raise ValueError("`split` must be train, val or test")
    return split


def _require_folded(word: str) -> str:
    """Raise a ValueError unless a word is in the form in which words are compared."""
    # Its DataError is a ValueError, which pydantic reports with the field.
    if fold(word, None) != word:
        raise ValueError("`word` must be in small letters")
    return word


@dataclass(frozen=True)
class Word:
    """A row of the manifest.

    Attributes:
        split: one of :data:`SPLITS`.
        word: the word in small letters.
        path: path of the crop in its data set; empty for a rendered word.
    """

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")  # of rows in files

    split: Annotated[str, pydantic.AfterValidator(_require_split)]
    word: Annotated[str, pydantic.AfterValidator(_require_folded)]
    path: str = ""


@dataclass(frozen=True)
class WordData:
    """The crops of a split with their words.

    Attributes:
        images: (N, 32, 100) uint8, mapped from the file.
        words: the word of each crop, in small letters.
        characters: the alphabet.
    """

    images: np.ndarray
    words: list[str]
    characters: str = CHARACTERS

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    def digest(self) -> str:
        """Return a digest of words and pixels; it takes a second per gigabyte."""
        digest = hashlib.sha256("\n".join(self.words).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        return digest.hexdigest()

    @classmethod
    def open(
        cls, folder: str | Path, split: str, characters: str | None = CHARACTERS
    ) -> "WordData":
        """Open a split of a prepared folder.

        Args:
            folder: the prepared folder.
            split: ``train``, ``val``, ``test``, or ``all`` of them.
            characters: the alphabet, or None for the characters of all its words.

        Raises:
            DataError: a file is absent or damaged, the numbers of crops and words
                differ, or there are no words of the split.
        """
        folder = Path(folder)
        rows = _read_manifest(folder / MANIFEST, characters)
        if characters is None:
            characters = characters_of(row.word for row in rows)
        with reading(folder / IMAGES, DataError, _AGAIN, _ABSENT):
            images = map_array(folder / IMAGES)
            if images.shape[1:] != (HEIGHT, WIDTH) or images.dtype != np.uint8:
                raise ValueError(f"its crops have the shape {images.shape}")
        if len(rows) != len(images):
            raise DataError(
                f"{folder}: must have as many crops as words. Received: {len(images)} "
                f"and {len(rows)}; prepare the words again"
            )
        chosen = [k for k, row in enumerate(rows) if split in (row.split, "all")]
        if not chosen:
            known = sorted({row.split for row in rows}, key=SPLITS.index)
            raise DataError(
                f"`split` must be {' or '.join(map(repr, known))} in {folder}. "
                f"Received: {quote(split)}; choose one of these"
            )
        # A slice of the mapped file reads nothing; a list of rows would copy all of
        # them.
        first = chosen[0]
        end = chosen[-1] + 1
        if end - first != len(chosen):
            raise DataError(
                f"{folder / MANIFEST}: the rows of {split} must follow each other; "
                "prepare the words again"
            )
        words = [row.word for row in rows[first:end]]
        return cls(images[first:end], words, characters)


def read_split(experiment: AnyExperiment, work: Path, split: str) -> WordData:
    """Return the prepared words of an experiment; see :meth:`WordData.open`."""
    data = experiment.data
    characters = None if data.source == "word_table" else CHARACTERS
    return WordData.open(work / data.name, split, characters)


def write_manifest(folder: Path, rows: Iterable[Word]) -> None:
    """Write the manifest of a prepared folder atomically."""
    with (
        atomic_path(Path(folder) / MANIFEST) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        for row in rows:
            values = {"split": row.split, "word": row.word}
            values |= {"path": row.path} if row.path else {}
            file.write(json.dumps(values) + "\n")


def _read_manifest(path: Path, characters: str | None) -> list[Word]:
    with reading(path, DataError, _AGAIN, _ABSENT):
        lines = read_text_bytes(path, _MOST_BYTES).splitlines()
    rows = []
    parser = pydantic.TypeAdapter(Word)
    for number, line in enumerate(lines, start=1):
        try:
            row = parser.validate_json(line)
            # `Word` accepts every visible character; here the alphabet is known.
            fold(row.word, characters)
        except (pydantic.ValidationError, DataError) as error:
            reason = one_line(error)
            if isinstance(error, pydantic.ValidationError):
                first = error.errors()[0]
                reason = one_line(": ".join(map(str, (*first["loc"], first["msg"]))))
            raise DataError(
                f"{path}: line {number}: cannot be read ({reason}); {_AGAIN}"
            ) from None
        rows.append(row)
    return rows
