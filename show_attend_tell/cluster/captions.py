"""Caption photos on a Ray cluster, one shard of captions for each work item.

The photos of a run are divided in their order into chunks of :data:`SHARD_PHOTOS`. A
shard holds the captions of one chunk and is written atomically. Its name,
``captions-<chunk>-<digest of the photos>.jsonl`` or ``.parquet``, depends on the photos
alone: two workers that caption the same photos write the same file. ``header.json``
names the model and the settings of all captions. ``index.json``, written at the end,
lists the shards, whose order by name is the order of the photos. An interrupted run
resumes by photo.

The numbers of a caption depend, by rounding, on the photo's row in its batch. A chunk
of photos is therefore captioned in the batches in which one machine would caption it;
a photo whose caption is already present keeps its row, which stays empty.
"""

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.cluster.pool import WorkItem, connected
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.inference.batch import BatchReport, distinct_photos, made_by
from show_attend_tell.inference.journal import ENCODING, FIELDS, caption_row, row_line
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.inference.pipeline import load_requested
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.runtime.errors import (
    CaptionError,
    ClusterError,
    OutputFileError,
    one_line,
)
from show_attend_tell.runtime.files import TEMPORARY, atomic_path, atomic_write, locked
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

SHARD_PHOTOS = 256  # a multiple of the pipeline's batch
HEADER, INDEX = "header.json", "index.json"


@dataclass(frozen=True)
class Chunk:
    """Consecutive photos of a run, and the shard of their captions.

    Attributes:
        file: the shard to write.
        photos: the photos, in the order of the run.
        present: photos whose caption an earlier run has written.
    """

    file: Path
    photos: tuple[Path | Failure, ...]
    present: frozenset[Path]


def shard_writer(
    request: CaptionRequest, author: str, encoder: dict, photos: int
) -> Callable[[Chunk], tuple[int, list[Failure]]]:
    """Load the model in a worker process; return the function that writes a shard.

    Args:
        request: the user's choices.
        author: the models and settings, from :func:`inference.batch.made_by`.
        encoder: identity of the driver's encoder.
        photos: number of photos of the run.

    Raises:
        CaptionError: the model or the encoder differs from the driver's.
    """
    pipeline = load_requested(request, photos)
    author_here, encoder_here = (
        made_by(pipeline, request),
        pipeline.engine.encoder.identity(),
    )
    difference = identity_difference(encoder, encoder_here, exact=True)
    if author_here != author:
        difference = f"{author_here} instead of {author}"
    if difference:
        raise CaptionError(
            "the model and the encoder must be the driver's. Received: "
            f"{difference}; copy the same files to every node"
        )

    def write(chunk: Chunk) -> tuple[int, list[Failure]]:
        """Write a shard; return the number of captions, and the failures."""
        rows, failures = [], []
        is_present = chunk.present.__contains__
        for result in pipeline.caption_inputs(
            chunk.photos, request, is_present, photos
        ):
            if isinstance(result, Caption):
                rows.append(caption_row(result, author))
            else:
                failures.append(result)
        if rows:
            write_shard(chunk.file, rows)
        return len(rows), failures

    return write


@dataclass(frozen=True)
class ClusterReport(BatchReport):
    """The counts of a run of :func:`caption_on_cluster`.

    Attributes:
        out: the folder.
        seconds: duration of the run without the start of the driver.
        price_per_hour: price of the whole cluster, in any currency; None: unknown.
    """

    seconds: float = 0.0
    price_per_hour: float | None = None

    def lines(self) -> list[str]:
        """Return the counts, the rate and the cost as lines to print."""
        lines = [self.summary()]
        if self.written:
            rate = self.written / self.seconds
            speed = f"{rate:.2f} photos/s, the start of the workers included"
            if self.price_per_hour is not None:
                cost = self.price_per_hour / 3600 / rate * 1e6
                speed += f"; {cost:,.2f} per million photos"
            lines.append(speed)
        return lines


def find_all_photos(paths: Iterable[str | os.PathLike]) -> list[Path | Failure]:
    """Return the photos of files, folders and manifests, with absolute paths.

    A path that ends in ``.jsonl`` is a manifest.

    Raises:
        ManifestError: a manifest is absent or malformed.
    """
    named: list[Path] = []
    for path in map(Path, paths):
        if path.suffix.lower() == ".jsonl":
            named += [photo.path for photo in read_manifest(path)]
        else:
            named.append(path.absolute())
    return list(distinct_photos(find_photos(named)))


def caption_on_cluster(
    address: str,
    request: CaptionRequest,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    workers: int | None = None,
    form: str = "jsonl",
    price_per_hour: float | None = None,
) -> ClusterReport:
    """Write the captions of photos as shards in a folder; resume an interrupted run.

    Args:
        address: see :func:`cluster.pool.connected`.
        request: the user's choices; all nodes see its files.
        paths: see :func:`find_all_photos`; all nodes see the photos.
        out: the folder, which all nodes see.
        workers: number of workers; by default one per processor.
        form: ``jsonl`` or ``parquet``.
        price_per_hour: price of the whole cluster.

    Raises:
        CaptionError: a setting is out of range, or the model cannot be loaded.
        ClusterError: see :func:`cluster.pool.connected` and
            :meth:`cluster.pool.Cluster.run`.
        OutputFileError: see :func:`caption_folder`.
    """
    with connected(address) as cluster:
        pipeline = load_requested(request)
        pipeline.require_calibration(request)
        photos, author = find_all_photos(paths), made_by(pipeline, request)
        count = sum(not isinstance(photo, Failure) for photo in photos)
        arguments = request, author, pipeline.engine.encoder.identity(), count
        start = time.perf_counter()
        with caption_folder(out, author, form) as folder:
            items = _items(photos, folder)
            done = cluster.run(shard_writer, arguments, items, workers)
            written, failures = _collect(done, photos, folder)
            folder.finish()
        return ClusterReport(
            Path(out),
            written,
            len(photos) - written - len(failures),
            tuple(failures),
            seconds=time.perf_counter() - start,
            price_per_hour=price_per_hour,
        )


def _collect(
    done: Iterable[tuple[WorkItem, tuple[int, list[Failure]]]],
    photos: Sequence[Path | Failure],
    folder: "CaptionFolder",
) -> tuple[int, list[Failure]]:
    """Return the number of captions written, and the failures in the photos' order."""
    written, failures = 0, {}
    present = sum(photo in folder for photo in photos)
    with progress_bar(len(photos), "photo", "caption", done=present) as bar:
        for item, (rows, failed) in done:
            if rows:
                folder.rows[item.payload.file.name] = rows
            written += rows
            failures[item.name] = failed
            bar.update(rows + len(failed))
    ordered = (failures[name] for name in sorted(failures))
    return written, list(itertools.chain.from_iterable(ordered))


def _items(
    photos: Sequence[Path | Failure], folder: "CaptionFolder"
) -> Iterator[WorkItem]:
    """Yield the chunks with a photo that has no caption yet."""
    for number, first in enumerate(range(0, len(photos), SHARD_PHOTOS)):
        chunk = tuple(photos[first : first + SHARD_PHOTOS])
        present = frozenset(photo for photo in chunk if photo in folder)
        absent = [photo for photo in chunk if photo not in present]
        if not absent:
            continue
        paths = [str(photo) for photo in absent if not isinstance(photo, Failure)]
        file = folder.path / shard_name(number, paths, folder.form)
        # The header and photos show whether a worker sees the same folders.
        files = folder.header_file, *paths
        name = f"photos of {file.name}"
        yield WorkItem(name, Chunk(file, chunk, present), files)


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
