"""Write captions as shards in a folder; an interrupted run resumes by photo.

The photos of a run are divided in their order into chunks of :data:`SHARD_PHOTOS`. A
shard holds the captions of one chunk and is written atomically. Its name,
``captions-<chunk>-<digest of the photos>.jsonl`` or ``.parquet``, depends on the photos
alone: two workers that caption the same photos write the same file.

``header.json`` names the model and the settings of all captions. ``index.json``,
written at the end, lists the shards, whose order by name is the order of the photos.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from show_attend_tell.inference.journal import ENCODING, FIELDS, row_line
from show_attend_tell.inference.result import Failure
from show_attend_tell.runtime.errors import ClusterError, OutputFileError, one_line
from show_attend_tell.runtime.files import (
    TEMPORARY,
    atomic_path,
    atomic_write,
    locked,
)
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

SHARD_PHOTOS = 256  # a multiple of the pipeline's batch
HEADER, INDEX = "header.json", "index.json"


def shard_name(chunk: int, paths: Sequence[str], form: str) -> str:
    """Return the name of the shard that holds a chunk's photos."""
    text = "\n".join(paths).encode(**ENCODING)
    return f"captions-{chunk:06d}-{hashlib.sha256(text).hexdigest()[:16]}.{form}"


def write_shard(path: Path, rows: Iterable[dict]) -> None:
    """Write the rows of captions as JSON Lines or Parquet, by the ending of the path.

    Several processes may write the same path.

    Raises:
        ClusterError: pyarrow, which writes Parquet, cannot be imported.
        OSError: the file cannot be written.
    """
    with atomic_path(path, unique=True) as temporary:
        if path.suffix == ".parquet":
            _write_parquet(temporary, list(rows))
        else:
            temporary.write_bytes("".join(map(row_line, rows)).encode(**ENCODING))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ClusterError(
            f"Parquet needs pyarrow, which cannot be imported ({one_line(error)}); "
            "run `pip install 'show-attend-tell[cluster]'`, or choose jsonl"
        ) from None
    return pyarrow


def _write_parquet(path: Path, rows: list[dict]) -> None:
    pyarrow = _pyarrow()
    number, text = pyarrow.float64(), pyarrow.string()
    kinds = {"log_prob": number, "score": number, "confidence": number}
    schema = pyarrow.schema([(name, kinds.get(name, text)) for name in FIELDS])
    stored = [{**row, "path": _stored_path(row["path"])} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(stored, schema), path)


def _stored_path(path: str) -> str:
    """Return a path for Parquet, which refuses bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_shard(path: Path) -> list[dict]:
    """Return the rows of a shard.

    Raises:
        OutputFileError: the shard is damaged.
    """
    with reading(path, OutputFileError, "delete it and run the same command again"):
        if path.suffix == ".parquet":
            return _pyarrow().parquet.read_table(path).to_pylist()
        lines = read_text_bytes(path).decode(**ENCODING).split("\n")[:-1]
        rows = [json.loads(line) for line in lines]
        if not all(isinstance(row["path"], str) for row in rows):
            raise ValueError("`path` must be a text")
        return rows


@contextlib.contextmanager
def caption_folder(
    path: str | Path, made_by: str, form: str
) -> Iterator["CaptionFolder"]:
    """Open and lock a folder of captions, which is made if absent.

    Args:
        path: the folder.
        made_by: the model and the settings of all captions.
        form: ``jsonl`` or ``parquet``.

    Raises:
        OutputFileError: another process writes the folder, or it holds something else,
            or captions made with another model, other settings or in another format.
        OSError: the folder cannot be read or written.
    """
    path = Path(path)
    _require_usable(path)
    taken = OutputFileError(
        f"{path}: another process is writing it; wait, or name another folder"
    )
    with locked(path / ".lock", taken):
        yield CaptionFolder(path, made_by, form)


def _require_usable(path: Path) -> None:
    """Raise an error, and write nothing, if the path has other content."""
    if not path.exists() or (path / HEADER).exists():
        return
    if not path.is_dir():
        raise OutputFileError(
            f"{path}: must be a folder with --cluster. Received: a file; name another "
            "folder"
        )
    if any(not file.name.startswith(".") for file in path.iterdir()):
        raise OutputFileError(
            f"{path}: must be empty, or begun by this command. Received: files without "
            "a header.json; name another folder"
        )


class CaptionFolder:
    """The captions of a run; see :func:`caption_folder`.

    Attributes:
        path: the folder.
        header_file: the file that names the model and the settings.
        form: ``jsonl`` or ``parquet``.
        rows: name of each shard -> number of its captions; workers write more.
    """

    def __init__(self, path: Path, made_by: str, form: str):
        self.path, self.header_file = path, path / HEADER
        self._made_by, self.form = made_by, form
        self._present: set[str] = set()  # paths as they are stored
        self.rows: dict[str, int] = {}
        header = {"made_by": made_by, "format": form}
        if not self.header_file.exists():
            atomic_write(self.header_file, json.dumps(header, indent=1))
        with reading(self.header_file, OutputFileError, "name another folder"):
            present = parse_json(read_text_bytes(self.header_file))
        if present != header:
            raise OutputFileError(
                f"{self.path}: must have captions of {header}. Received: "
                f"{one_line(present)}; name another folder, or remove this one"
            )
        for temporary in path.glob(f"{TEMPORARY}*"):  # of killed processes
            temporary.unlink(missing_ok=True)
        for file in sorted(path.glob(f"captions-*.{form}")):
            paths = {row["path"] for row in read_shard(file)}
            self.rows[file.name] = len(paths)
            self._present |= paths

    def __contains__(self, photo: Path | Failure) -> bool:
        """Return whether a photo has a caption from an earlier run."""
        if isinstance(photo, Failure):
            return False
        path = str(photo)
        return (_stored_path(path) if self.form == "parquet" else path) in self._present

    def finish(self) -> None:
        """Write the index of all shards."""
        shards = [{"name": name, "rows": n} for name, n in sorted(self.rows.items())]
        index = {
            "made_by": self._made_by,
            "captions": sum(self.rows.values()),
            "shards": shards,
        }
        atomic_write(self.path / INDEX, json.dumps(index, indent=1))
