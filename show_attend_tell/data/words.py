"""Read and write prepared words: crops in one array, and a manifest of their words.

``words.npy`` has the crops, (N, 32, 100) uint8. ``words.jsonl`` has one row for each,
in the same order: ``split``, ``word`` in small letters, and for the crop of a photo
``path``. The rows of a split follow each other.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from show_attend_tell.data.characters import fold
from show_attend_tell.data.word_crops import HEIGHT, WIDTH
from show_attend_tell.runtime.errors import WordsError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.json_text import is_encodable, parse_json
from show_attend_tell.runtime.regular_files import read_text_bytes

IMAGES, MANIFEST = "words.npy", "words.jsonl"
SPLITS = ("train", "val", "test")
_MOST_BYTES = 4_000_000_000  # of a manifest; a row has some 40


@dataclass(frozen=True)
class Word:
    """A row of the manifest.

    Attributes:
        split: one of :data:`SPLITS`.
        word: the word in small letters.
        path: the crop's path, as the data set names it; empty for a rendered word.
    """

    split: str
    word: str
    path: str = ""


@dataclass(frozen=True)
class WordData:
    """The crops of a split with their words.

    Attributes:
        images: (N, 32, 100) uint8, read from the file where they are used.
        words: the word of each crop, in small letters.
        paths: the path of each crop, empty for rendered words.
    """

    images: np.ndarray
    words: list[str]
    paths: list[str]

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    @classmethod
    def open(cls, folder: str | Path, split: str) -> "WordData":
        """Open a split of a prepared folder.

        Args:
            folder: the prepared folder.
            split: ``train``, ``val``, ``test``, or ``all`` of them.

        Raises:
            WordsError: a file is absent or damaged, the two do not fit each other, or
                there are no words of the split.
        """
        folder = Path(folder)
        rows = _read_manifest(folder / MANIFEST)
        images = _map_images(folder / IMAGES)
        if len(rows) != len(images):
            raise WordsError(
                f"{folder}: must have as many crops as words. Received: {len(images)} "
                f"and {len(rows)}; prepare the words again"
            )
        chosen = [k for k, row in enumerate(rows) if split in (row.split, "all")]
        if not chosen:
            known = sorted({row.split for row in rows}, key=SPLITS.index)
            raise WordsError(
                f"`split` must be {' or '.join(map(repr, known))} in {folder}. "
                f"Received: {quote(split)}; choose one of these"
            )
        first, last = chosen[0], chosen[-1] + 1
        if last - first != len(chosen):
            raise WordsError(
                f"{folder / MANIFEST}: the rows of {split} must follow each other; "
                "prepare the words again"
            )
        return cls(
            images[first:last],
            [row.word for row in rows[first:last]],
            [row.path for row in rows[first:last]],
        )


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
    try:
        text = read_text_bytes(path, _MOST_BYTES)
    except FileNotFoundError:
        raise WordsError(f"{path}: no such file; run `prepare` first") from None
    except OSError as error:
        raise _damaged(path, error) from None
    return [
        _parse_row(line, f"{path}: line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
    ]


def _parse_row(line: bytes, place: str) -> Word:
    try:
        values = parse_json(line)
        if not isinstance(values, dict) or not all(
            isinstance(value, str) and is_encodable(value) for value in values.values()
        ):
            raise ValueError("a row must be a JSON object of strings")
        row = Word(**values)
        if row.split not in SPLITS:
            raise ValueError(f"`split` must be one of {', '.join(SPLITS)}")
        if fold(row.word) != row.word:
            raise ValueError("`word` must be in small letters")
    except (ValueError, TypeError) as error:
        raise _damaged(place, error) from None
    return row


def _map_images(path: Path) -> np.ndarray:
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise WordsError(f"{path}: no such file; run `prepare` first") from None
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, error) from None
    shape = getattr(images, "shape", ())  # an archive of arrays has none
    if shape[1:] != (HEIGHT, WIDTH) or images.dtype != np.uint8:
        raise _damaged(path, f"its crops have the shape {shape}")
    return images


def _damaged(place: object, reason: object) -> WordsError:
    return WordsError(
        f"{place}: cannot be read ({one_line(reason)}); prepare the words again"
    )
