"""Read captions from text files, plain or compressed by gzip, one caption a line."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.runtime.errors import DataError, one_line
from show_attend_tell.runtime.regular_files import (
    MAX_TEXT_BYTES,
    require_regular,
    require_within,
)

MAX_LINE_BYTES = 2000  # of a caption; the longest of COCO has 250
_GZIP = b"\x1f\x8b"  # the first bytes of a file compressed by gzip
_DAMAGE = (OSError, EOFError, zlib.error)


def read_text_captions(
    path: str | Path, tokenizer: Callable[[str], list[str]] = tokenize
) -> Iterator[list[str]]:
    """Yield the words of each caption of a text file; empty lines are ignored.

    The size limit :data:`~runtime.regular_files.MAX_TEXT_BYTES` is that of the
    uncompressed text.

    Args:
        path: path of the file, UTF-8, one caption a line. It is read as gzip if its
            first bytes are those of gzip, whatever its name is.
        tokenizer: splits a caption into words.

    Raises:
        DataError: the file is absent, damaged, larger than the limit, has a line of
            more than :data:`MAX_LINE_BYTES` bytes or no caption.
    """
    size, count = 0, 0
    with _errors_of(path), _open(Path(path)) as file:
        for number, line in enumerate(iter(lambda: _read_line(file), b""), start=1):
            size += len(line)
            require_within(size, MAX_TEXT_BYTES)
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}: line {number} must have at most {MAX_LINE_BYTES:,} "
                    "bytes; write one caption a line"
                )
            words = tokenizer(_decode(line, f"{path}: line {number}"))
            if words:
                count += 1
                yield words
    if not count:
        raise DataError(f"{path}: has no caption; write one caption a line")


def _read_line(file: io.BufferedIOBase) -> bytes:
    """Read a line, of a longer one no more than shows that it is too long."""
    return file.readline(MAX_LINE_BYTES + 1)


def _decode(line: bytes, place: str) -> str:
    try:
        text = line.decode("utf-8-sig")  # a byte order mark is dropped
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise DataError(
            f"{place} is not UTF-8 text; pass a text file, plain or compressed by gzip"
        )
    return text


def _open(path: Path) -> io.BufferedIOBase:
    require_regular(path)
    with path.open("rb") as file:
        compressed = file.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if compressed else path.open("rb")


@contextlib.contextmanager
def _errors_of(path: str | Path) -> Iterator[None]:
    """Raise DataError with the path in place of errors of the file."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such text file; correct the path") from None
    except _DAMAGE as error:
        raise DataError(
            f"{path}: cannot be read as text ({one_line(error)}); pass a text file, "
            "plain or compressed by gzip"
        ) from None
