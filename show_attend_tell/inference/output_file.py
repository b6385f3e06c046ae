"""Captions of many photos in a file that grows row by row and survives being killed.

JSON Lines or CSV. A row is written whole with those of its batch; what a killed process
left half-written is cut off when the file is opened again.
"""

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import filelock

from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import OutputFileError

FIELDS = ("path", "caption", "log_prob", "score", "made_by")
FORMATS = (".jsonl", ".csv")
# Paths may hold bytes that are no text; in this form they come back as they were.
_TEXT = {"encoding": "utf-8", "errors": "surrogateescape"}


def row_of(caption: Caption, made_by: str) -> dict:
    """Return a caption as a row: what is worth keeping of thousands."""
    return {
        "path": str(caption.path),
        "caption": caption.text,
        "log_prob": round(caption.log_prob, 6),
        "score": round(caption.score, 6),
        "made_by": made_by,
    }


class CaptionRows:
    """An open file of captions; a context manager.

    Attributes:
        path: the file; its ending decides the format.
        made_by: the model and settings of the rows added.
        rows: all rows, those found in the file first.

    Raises:
        OutputFileError: another process writes the file, or it holds something else, or
            captions made otherwise.
        OSError: the file cannot be read or written.
    """

    def __init__(self, path: str | Path, made_by: str):
        self.path, self.made_by = Path(path), made_by
        if self.path.suffix.lower() not in FORMATS:
            raise OutputFileError(
                f"`path` must end in {' or '.join(FORMATS)}. Received: {self.path}; "
                "choose another name"
            )
        self._is_csv = self.path.suffix.lower() == ".csv"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(f"{self.path}.lock")
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise OutputFileError(
                f"{self.path}: another process is writing it; wait, or name another "
                "file"
            ) from None
        try:
            self.rows = self._open()
        except BaseException:
            self._release()
            raise
        self._done = {_key(row["path"]) for row in self.rows}

    def __enter__(self) -> "CaptionRows":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._release()

    def __contains__(self, photo: object) -> bool:
        """Tell whether a photo has its caption, by whatever path it was named."""
        return _key(str(photo)) in self._done

    def add(self, captions: Iterable[Caption]) -> None:
        """Append captions, of photos that have none yet, in one write."""
        rows = [row_of(caption, self.made_by) for caption in captions]
        self._file.write("".join(map(self._line, rows)).encode(**_TEXT))
        self._file.flush()
        self.rows.extend(rows)
        self._done.update(_key(row["path"]) for row in rows)

    def _release(self) -> None:
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _open(self) -> list[dict]:
        """Read the rows there are, cut off a torn one, and open for appending."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = _whole(content, self._is_csv)
        rows = self._parse(content[:whole].decode(**_TEXT))
        if not rows and not self._begins_as_ours(content):
            raise self._refusal(f"{content[:40]!r}")
        others = sorted({row["made_by"] for row in rows} - {self.made_by})
        if others:
            raise OutputFileError(
                f"{self.path}: its captions were made by {others[0]}, and not by "
                f"{self.made_by}; name another file, or remove this one"
            )
        self._file = open(self.path, "ab")
        self._file.truncate(whole)
        if self._is_csv and not whole:
            self._file.write(_csv_line(FIELDS).encode(**_TEXT))
            self._file.flush()
        return rows

    def _begins_as_ours(self, content: bytes) -> bool:
        head = _csv_line(FIELDS) if self._is_csv else '{"path": '
        return head.startswith(content[: len(head)].decode(**_TEXT))

    def _parse(self, text: str) -> list[dict]:
        if self._is_csv:
            lines = csv.reader(io.StringIO(text, newline=""))
            if tuple(next(lines, FIELDS)) != FIELDS:
                raise self._refusal(f"the columns {text.splitlines()[0][:60]!r}")
            found = [dict(zip(FIELDS, line, strict=False)) for line in lines]
        else:
            found = [self._loaded(line) for line in text.split("\n")[:-1]]
        for number, row in enumerate(found, start=1 + self._is_csv):
            if not isinstance(row, dict) or set(FIELDS) - row.keys():
                raise self._refusal(f"row {number}: {str(row)[:60]!r}")
        return [self._typed(row) for row in found]

    def _loaded(self, line: str) -> dict:
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            raise self._refusal(f"the line {line[:60]!r}") from None

    def _typed(self, row: dict) -> dict:
        try:
            numbers = {key: float(row[key]) for key in ("log_prob", "score")}
        except (TypeError, ValueError):
            raise self._refusal(f"the row {str(row)[:60]!r}") from None
        return {**row, **numbers}

    def _refusal(self, received: str) -> OutputFileError:
        return OutputFileError(
            f"{self.path}: must be absent, or hold captions of this program with "
            f"{', '.join(FIELDS)}. Received: {received}; name another file"
        )

    def _line(self, row: dict) -> str:
        if self._is_csv:
            return _csv_line(row.values())
        # A path that is no text has to be escaped; everything else stays readable.
        is_text = row["path"].isprintable()
        return json.dumps(row, ensure_ascii=not is_text) + "\n"


def _key(path: str) -> str:
    return os.path.abspath(path)


def _csv_line(values: Iterable) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def _whole(content: bytes, is_csv: bool) -> int:
    """Return how many bytes belong to whole rows; a quoted CSV field may have lines."""
    end = len(content)
    while end := content.rfind(b"\n", 0, end) + 1:
        if not is_csv or content.count(b'"', 0, end) % 2 == 0:
            return end
        end -= 1
    return 0
