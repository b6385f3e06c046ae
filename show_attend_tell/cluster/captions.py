"""Caption photos on a Ray cluster, one shard of captions for each work item.

The numbers of a caption depend, by rounding, on the photo's row in its batch. A chunk
of photos is therefore captioned in the batches in which one machine would caption it;
a photo whose caption is already present keeps its row, which stays empty.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.cluster.caption_shards import (
    SHARD_PHOTOS,
    CaptionFolder,
    caption_folder,
    shard_name,
    write_shard,
)
from show_attend_tell.cluster.pool import WorkItem, connected
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.inference.batch import BatchReport, distinct_photos, made_by
from show_attend_tell.inference.journal import caption_row
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.inference.pipeline import load_requested
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.progress import progress_bar


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
    shown: bool = True,
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
        shown: whether to show a progress bar.

    Raises:
        CaptionError: a setting is out of range, or the model cannot be loaded.
        ClusterError: see :func:`cluster.pool.connected` and
            :meth:`cluster.pool.Cluster.run`.
        OutputFileError: see :func:`cluster.caption_shards.caption_folder`.
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
            written, failures = _collect(done, photos, folder, shown)
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
    folder: CaptionFolder,
    shown: bool,
) -> tuple[int, list[Failure]]:
    """Return the number of captions written, and the failures in the photos' order."""
    written, failures = 0, {}
    present = sum(photo in folder for photo in photos)
    with progress_bar(
        len(photos), "photo", "caption", done=present, shown=shown
    ) as bar:
        for item, (rows, failed) in done:
            if rows:
                folder.rows[item.payload.file.name] = rows
            written += rows
            failures[item.name] = failed
            bar.update(rows + len(failed))
    ordered = (failures[name] for name in sorted(failures))
    return written, list(itertools.chain.from_iterable(ordered))


def _items(
    photos: Sequence[Path | Failure], folder: CaptionFolder
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
        # The header and a photo show whether a worker sees the same folders.
        files = filter(os.path.isfile, (folder.header_file, *paths))
        yield WorkItem(
            f"photos of {file.name}",
            Chunk(file, chunk, present),
            tuple(itertools.islice(files, 2)),
        )
