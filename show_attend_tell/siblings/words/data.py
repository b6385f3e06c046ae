"""Encode words and read crops, prepared as crops in one array and a manifest of words.

``words.npy`` has the crops, (N, 32, 100) uint8. ``words.jsonl`` has one row for each,
in the same order: ``split``, ``word`` in small letters, and for the crop of a photo
``path``. The rows of a split are adjacent.

Preparation, evaluation and the verb ``read`` share the functions for crops, so that
training and inference see the same pixels. The tokens of a word are the digits, the
small letters and three special tokens; capitals count as small letters in rendered
words, labels and scores.
"""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal

import numpy as np
import pydantic
from PIL import Image

from show_attend_tell.config.settings import AnyExperiment
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.runtime.errors import DataError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.untrusted import read_text_bytes, reading
from show_attend_tell.siblings.common.arrays import map_array

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
PAD = 0
START = 1
END = 2
TOKENS = ("<pad>", "<start>", "<end>", *CHARACTERS)  # their ids are their positions
MAX_LENGTH = 23  # characters of a word, before <end>
STEPS = MAX_LENGTH + 1  # T, with <end>
_MOST_LISTED = 100_000_000  # bytes of a file of words
_LOGGER = logging.getLogger(__name__)
_ID_OF = {token: position for position, token in enumerate(TOKENS)}
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


def fold(word: str) -> str:
    """Return the word in small letters, the form in which words are compared.

    Raises:
        DataError: the word is empty or too long, or has characters other than 0-9,
            A-Z and a-z.
    """
    folded = word.lower()
    odd = [c for c in word if c.lower() not in CHARACTERS or not c.isascii()]
    if odd:
        raise DataError(
            f"`word` must have the characters 0-9, a-z and A-Z only. Received: "
            f"{quote(word)}, with {quote(odd[0])}; remove the word"
        )
    if not 1 <= len(folded) <= MAX_LENGTH:
        raise DataError(
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
        DataError: the file cannot be read, or has no word.
    """
    remedy = "pass a text file in UTF-8, one word a line"
    with reading(path, DataError, remedy, "file of words; correct the path"):
        text = read_text_bytes(path, _MOST_LISTED).decode("utf-8-sig")
    words = []
    first = ""
    skipped = 0
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line:
            continue
        try:
            words.append(fold(line))
        except DataError:
            skipped += 1
            first = first or f"line {number}, {quote(line, 40)}"
    if not words:
        raise DataError(
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


def _require_folded(word: str) -> str:
    """Raise a ValueError unless a word is in the form in which words are compared."""
    if fold(word) != word:
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

    split: Literal[SPLITS]
    word: Annotated[str, pydantic.AfterValidator(_require_folded)]
    path: str = ""


@dataclass(frozen=True)
class WordData:
    """The crops of a split with their words.

    Attributes:
        images: (N, 32, 100) uint8, mapped from the file.
        words: the word of each crop, in small letters.
    """

    images: np.ndarray
    words: list[str]

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    def digest(self) -> str:
        """Return a digest of words and pixels; it takes a second per gigabyte."""
        digest = hashlib.sha256("\n".join(self.words).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        return digest.hexdigest()

    @classmethod
    def open(cls, folder: str | Path, split: str) -> "WordData":
        """Open a split of a prepared folder.

        Args:
            folder: the prepared folder.
            split: ``train``, ``val``, ``test``, or ``all`` of them.

        Raises:
            DataError: a file is absent or damaged, the numbers of crops and words
                differ, or there are no words of the split.
        """
        folder = Path(folder)
        rows = _read_manifest(folder / MANIFEST)
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
        first = chosen[0]
        end = chosen[-1] + 1
        if end - first != len(chosen):
            raise DataError(
                f"{folder / MANIFEST}: the rows of {split} must follow each other; "
                "prepare the words again"
            )
        return cls(images[first:end], [row.word for row in rows[first:end]])


def read_split(experiment: AnyExperiment, work: Path, split: str) -> WordData:
    """Return the prepared words of an experiment; see :meth:`WordData.open`."""
    return WordData.open(work / experiment.data.name, split)


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


def _read_manifest(path: Path) -> list[Word]:
    with reading(path, DataError, _AGAIN, _ABSENT):
        lines = read_text_bytes(path, _MOST_BYTES).splitlines()
    rows = []
    parser = pydantic.TypeAdapter(Word)
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(parser.validate_json(line))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            reason = one_line(": ".join(map(str, (*first["loc"], first["msg"]))))
            raise DataError(
                f"{path}: line {number}: cannot be read ({reason}); {_AGAIN}"
            ) from None
    return rows
