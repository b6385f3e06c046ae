"""Caption photos on a Ray cluster, one shard of captions for each work item.

The photos of a run are divided in their order into chunks of :data:`SHARD_PHOTOS`. A
shard holds the captions of one chunk and is written atomically. Its name,
``captions-<chunk>-<digest of the photos>.jsonl``, depends on the number of the chunk
and on the paths of its photos that have no caption yet: two workers that caption the
same chunk write the same file, and a resumed run writes further shards. ``header.json``
names the model and the settings of all captions. ``index.json``, written at the end,
lists the shards by name; that is the order of the photos unless the run was resumed. An
interrupted run resumes by photo.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from show_attend_tell.cluster.pool import WorkItem, connected
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.inference.batch import BatchReport, distinct_photos, made_by
from show_attend_tell.inference.journal import ENCODING, caption_row, row_line
from show_attend_tell.inference.photos import Failure, find_photos
from show_attend_tell.inference.pipeline import load_requested
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import (
    CaptionError,
    one_line,
)
from show_attend_tell.runtime.files import TEMPORARY, atomic_path, atomic_write, locked
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

SHARD_PHOTOS = 256  # a multiple of the pipeline's batch
HEADER = "header.json"
INDEX = "index.json"


class Chunk(NamedTuple):
    """Consecutive photos of a run."""

    shard: Path  # the file to write
    photos: tuple[Path | Failure, ...]
    present: frozenset[Path]  # photos whose caption an earlier run has written


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
    pipeline = load_requested(request)
    author_here = made_by(pipeline, request)
    encoder_here = pipeline.engine.encoder.identity()
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
        rows = []
        failures = []
        is_present = chunk.present.__contains__
        results = pipeline.caption_inputs(chunk.photos, request, is_present, photos)
        for result in results:
            if isinstance(result, Caption):
                rows.append(caption_row(result, author))
            else:
                failures.append(result)
        if rows:
            write_shard(chunk.shard, rows)
        return len(rows), failures

    return write


def find_all_photos(paths: Iterable[str | os.PathLike]) -> list[Path | Failure]:
    """Return the photos of files, folders and manifests, with absolute paths.

    A path that ends in ``.jsonl`` is a manifest.

    Raises:
        DataError: a manifest is absent or malformed.
    """
    named: list[Path] = []
    for path in map(Path, paths):
        if path.suffix.lower() == ".jsonl":
            named += [photo.path for photo in read_manifest(path)]
        else:
            # Workers and later runs have other working directories.
            named.append(path.absolute())
    return list(distinct_photos(find_photos(named)))


def caption_on_cluster(
    address: str,
    request: CaptionRequest,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    workers: int | None = None,
) -> tuple[BatchReport, float]:
    """Write the captions of photos as shards in a folder; resume an interrupted run.

    Args:
        address: see :func:`cluster.pool.connected`.
        request: the user's choices; all nodes see its files.
        paths: see :func:`find_all_photos`; all nodes see the photos.
        out: the folder, which all nodes see.
        workers: number of workers; by default one per processor.

    Returns:
        The counts, and the photos captioned per second without the driver's start.

    Raises:
        CaptionError: a setting is out of range, or the model cannot be loaded; or see
            :func:`caption_folder`.
        SetupError: see :func:`cluster.pool.connected` and
            :meth:`cluster.pool.Cluster.run`.
    """
    with connected(address) as cluster:
        pipeline = load_requested(request)
        pipeline.require_calibration(request)
        photos = find_all_photos(paths)
        author = made_by(pipeline, request)
        count = sum(not isinstance(photo, Failure) for photo in photos)
        encoder = pipeline.engine.encoder.identity()
        # The model is loaded; the time of reading the folder and of starting workers
        # counts.
        start = time.perf_counter()
        out = Path(out)
        failures = {}
        written = 0
        with caption_folder(out, {"made_by": author}) as shards:
            stored = set().union(*shards.values())
            readable = [photo for photo in photos if not isinstance(photo, Failure)]
            present = frozenset(path for path in readable if str(path) in stored)
            counts = {name: len(shard) for name, shard in shards.items()}
            done = cluster.run(
                shard_writer,
                (request, author, encoder, count),
                _items(photos, present, out),
                workers,
            )
            with progress_bar(
                len(photos), "photo", "caption", done=len(present)
            ) as bar:
                for item, (rows, failed) in done:
                    name = item.payload.shard.name
                    if rows:
                        counts[name] = rows
                    written += rows
                    failures[name] = failed
                    bar.update(rows + len(failed))
            index = {
                "made_by": author,
                "captions": sum(counts.values()),
                "shards": [{"name": k, "rows": n} for k, n in sorted(counts.items())],
            }
            atomic_write(out / INDEX, json.dumps(index, indent=1))
        rate = written / (time.perf_counter() - start)
    failed = tuple(itertools.chain(*(failures[name] for name in sorted(failures))))
    kept = len(photos) - written - len(failed)
    return BatchReport(out, written, kept, failed), rate


def _items(
    photos: Sequence[Path | Failure], present: frozenset[Path], out: Path
) -> Iterator[WorkItem]:
    """Yield the chunks with a photo that has no caption yet."""
    # Chunks keep their number in resumed runs, also where all captions are present.
    for number, first in enumerate(range(0, len(photos), SHARD_PHOTOS)):
        inputs = tuple(photos[first : first + SHARD_PHOTOS])
        absent = [photo for photo in inputs if photo not in present]
        if not absent:
            continue
        paths = [str(photo) for photo in absent if not isinstance(photo, Failure)]
        file = out / shard_name(number, paths)
        # The header and photos show whether a worker sees the same folders.
        files: tuple[str | Path, ...] = (out / HEADER, *paths)
        chunk = Chunk(file, inputs, present.intersection(inputs))
        yield WorkItem(f"photos of {file.name}", chunk, files)


def shard_name(chunk: int, paths: Sequence[str]) -> str:
    """Return the name of the shard that holds a chunk's photos."""
    text = "\n".join(paths).encode(**ENCODING)
    return f"captions-{chunk:06d}-{hashlib.sha256(text).hexdigest()[:16]}.jsonl"


def write_shard(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of captions as JSON Lines.

    Several processes may write the same path.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_path(path, unique=True) as temporary:
        temporary.write_bytes("".join(map(row_line, rows)).encode(**ENCODING))
        # A power failure must not leave an empty shard that counts as complete.
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())


def read_shard(path: Path) -> list[dict]:
    """Return the rows of a shard.

    Raises:
        CaptionError: the shard is damaged.
    """
    with reading(path, CaptionError, "delete it and run the same command again"):
        # Not by splitlines, because captions may contain U+2028. The last line feed
        # leaves an empty text.
        lines = read_text_bytes(path).decode(**ENCODING).split("\n")[:-1]
        rows = [parse_json(line) for line in lines]
        if not all(
            isinstance(row, dict) and isinstance(row.get("path"), str) for row in rows
        ):
            raise ValueError("`path` must be a text")
        return rows


@contextlib.contextmanager
def caption_folder(path: Path, header: dict) -> Iterator[dict[str, set[str]]]:
    """Lock a folder of captions, which is made if absent.

    Args:
        path: the folder.
        header: ``made_by``, the model and the settings of all captions.

    Yields:
        Name of each shard -> its photos, as texts.

    Raises:
        CaptionError: another process writes the folder, or it holds something else,
            or captions made with another model or other settings.
        OSError: the folder cannot be read or written.
    """
    header_file = path / HEADER
    if path.exists() and not path.is_dir():
        raise CaptionError(
            f"{path}: must be a folder with --cluster. Received: a file; name another "
            "folder"
        )
    # Hidden files do not count: the lock, and what a killed process was writing.
    if not header_file.exists() and any(path.glob("[!.]*")):
        raise CaptionError(
            f"{path}: must be empty, or begun by this command. Received: files without "
            "a header.json; name another folder"
        )
    taken = CaptionError(
        f"{path}: another process is writing it; wait, or name another folder"
    )
    with locked(path / ".lock", taken):
        # Under the lock, so that two runs do not write different headers.
        if not header_file.exists():
            atomic_write(header_file, json.dumps(header, indent=1))
        with reading(header_file, CaptionError, "name another folder"):
            present = parse_json(read_text_bytes(header_file))
        if present != header:
            raise CaptionError(
                f"{path}: must have captions of {header}. Received: "
                f"{one_line(present)}; name another folder, or remove this one"
            )
        for temporary in path.glob(f"{TEMPORARY}*"):  # of killed processes
            temporary.unlink(missing_ok=True)
        files = sorted(path.glob("captions-*.jsonl"))
        yield {file.name: {row["path"] for row in read_shard(file)} for file in files}
