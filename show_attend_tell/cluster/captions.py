"""Caption photos in the workers of a Ray cluster, a shard of them at a time in each.

The numbers of a caption depend, by rounding, on the photo's row in its batch. A chunk
of photos is therefore captioned in the batches in which one machine would caption it;
photos whose caption is already present keep their rows, which stay empty.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.cluster.caption_shards import (
    SHARD_PHOTOS,
    CaptionFolder,
    shard_name,
    write_shard,
)
from show_attend_tell.cluster.pool import Cluster, connected
from show_attend_tell.cluster.worker import Task, visible
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.inference.batch import distinct_photos, made_by
from show_attend_tell.inference.journal import caption_row
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.inference.result import Caption, Failure, LowConfidence
from show_attend_tell.models.reranker_file import NONE
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.progress import progress_bar


@dataclass(frozen=True)
class Loading:
    """The arguments of :func:`inference.pipeline.load` in every process."""

    models: tuple[str, ...]
    encoder_weights: str | None = None
    mirror: bool = False
    reranker: str | None = None

    def load(self) -> CaptioningPipeline:
        """Load the pipeline."""
        model = self.models[0] if len(self.models) == 1 else self.models
        return load(
            model, self.encoder_weights, mirror=self.mirror, reranker=self.reranker
        )


@dataclass(frozen=True)
class Settings:
    """What all captions of a run share.

    Attributes:
        decoding: settings of ``pipeline.decoding``.
        min_confidence: captions below it are left out.
        made_by: the models and settings, from :func:`inference.batch.made_by`.
        encoder: identity of the driver's encoder.
        photos: number of photos of the run.
    """

    decoding: DecodingSettings
    min_confidence: float | None
    made_by: str
    encoder: dict
    photos: int


@dataclass(frozen=True)
class ChunkJob:
    """The payload of a task.

    Attributes:
        file: the shard to write.
        found: photos of a chunk, in their order.
        present: places of those whose caption is already present.
    """

    file: Path
    found: tuple[Path | Failure, ...]
    present: frozenset[Path]


class CaptionWorker:
    """Caption chunks of photos and write shards in a worker process."""

    def __init__(self, loading: Loading, settings: Settings):
        """Load the model and its encoder.

        Raises:
            CaptionError: the model or the encoder is not that of the driver.
        """
        self._pipeline, self._settings = loading.load(), settings
        decoding, lowest = settings.decoding, settings.min_confidence
        found = made_by(self._pipeline, decoding, lowest)
        encoder = self._pipeline.encoder.identity()
        difference = identity_difference(settings.encoder, encoder, exact=True)
        if found != settings.made_by:
            difference = f"{found} instead of {settings.made_by}"
        if difference:
            raise CaptionError(
                "the model and the encoder must be those of the driver. Received: "
                f"{difference}; copy the same files to every node"
            )

    def run(self, job: ChunkJob) -> tuple[int, list[Failure]]:
        """Write a shard; return the number of its captions, and the failures.

        Raises:
            OSError: the shard cannot be written.
        """
        rows, failures = [], []
        settings = self._settings
        for one in self._pipeline.caption_found(
            job.found,
            settings.decoding,
            settings.min_confidence,
            job.present.__contains__,
            settings.photos,
        ):
            if isinstance(one, Caption):
                rows.append(caption_row(one, settings.made_by))
            else:
                failures.append(one)
        if rows:
            write_shard(job.file, rows)
        return len(rows), failures


def make_worker(loading: Loading, settings: Settings) -> CaptionWorker:
    """Start TensorFlow in a worker process and return its worker."""
    from show_attend_tell.runtime.tensorflow_startup import start_keras

    start_keras()
    return CaptionWorker(loading, settings)


@dataclass(frozen=True)
class ClusterReport:
    """The counts of a run of :func:`caption_on_cluster`.

    Attributes:
        out: the folder.
        written: captions written by this run.
        present: photos whose caption was already present.
        failures: photos without a caption, those left out included.
        seconds: duration of the run without the start of the driver.
        price_per_hour: price of the whole cluster, in any currency; None: unknown.
    """

    out: Path
    written: int
    present: int
    failures: tuple[Failure, ...]
    seconds: float
    price_per_hour: float | None = None

    def lines(self) -> list[str]:
        """Return the counts, the rate and the cost as lines to print."""
        parts = [f"{self.out}: {self.written} captions written"]
        if self.present:
            parts.append(f"{self.present} already present")
        low = sum(isinstance(one, LowConfidence) for one in self.failures)
        if low:
            parts.append(f"{low} left out for low confidence")
        if len(self.failures) > low:
            parts.append(f"{len(self.failures) - low} photos skipped")
        lines = [", ".join(parts)]
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
            named.append(path.absolute())  # workers have another working directory
    return list(distinct_photos(find_photos(named)))


def caption_on_cluster(
    address: str,
    loading: Loading,
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    decoding: dict | None = None,
    min_confidence: float | None = None,
    workers: int | None = None,
    form: str = "jsonl",
    price_per_hour: float | None = None,
    shown: bool = True,
) -> ClusterReport:
    """Write the captions of photos as shards in a folder; resume an interrupted run.

    Args:
        address: see :func:`cluster.pool.connected`.
        loading: the model, which all nodes see.
        paths: see :func:`find_all_photos`; all nodes see the photos.
        out: the folder, which all nodes see.
        decoding: arguments of ``CaptioningPipeline.decoding``.
        min_confidence: captions below it are left out, and reported.
        workers: number of workers; by default one for each processor.
        form: ``jsonl`` or ``parquet``.
        price_per_hour: price of the whole cluster.
        shown: whether to show a progress bar.

    Raises:
        CaptionError: a setting is out of range, or the model cannot be loaded.
        ClusterError: see :func:`cluster.pool.connected` and
            :meth:`cluster.pool.Cluster.run`.
        OutputFileError: see :class:`CaptionFolder`.
    """
    with connected(address) as cluster:
        pipeline = loading.load()
        loading = _absolute(loading, pipeline)
        pipeline.require_calibration(min_confidence)
        found = find_all_photos(paths)
        chosen = pipeline.decoding(**(decoding or {}))
        settings = Settings(
            chosen,
            min_confidence,
            made_by(pipeline, chosen, min_confidence),
            pipeline.encoder.identity(),
            sum(not isinstance(one, Failure) for one in found),
        )
        start = time.perf_counter()
        out = Path(os.path.abspath(out))
        with CaptionFolder(out, settings.made_by, form) as folder:
            written, failures = _caption_all(
                cluster, (loading, settings), found, folder, workers, shown
            )
            folder.finish()
        seconds = time.perf_counter() - start
        present = len(found) - written - len(failures)
        return ClusterReport(
            out, written, present, tuple(failures), seconds, price_per_hour
        )


def _caption_all(
    cluster: Cluster,
    arguments: tuple[Loading, Settings],
    found: Sequence[Path | Failure],
    folder: CaptionFolder,
    workers: int | None,
    shown: bool,
) -> tuple[int, list[Failure]]:
    """Write all absent shards; return the number of captions, and the failures."""
    failures: list[tuple[str, list[Failure]]] = []
    written = 0
    present = sum(_is_present(one, folder) for one in found)
    with progress_bar(len(found), "photo", "caption", done=present, shown=shown) as bar:
        for task, (rows, failed) in cluster.run(
            make_worker, arguments, _tasks(found, folder), workers
        ):
            if rows:
                folder.add(task.payload.file.name, rows)
            written += rows
            failures.append((task.name, failed))
            bar.update(rows + len(failed))
    in_order = sorted(failures, key=lambda named: named[0])
    return written, [one for _, failed in in_order for one in failed]


def _absolute(loading: Loading, pipeline: CaptioningPipeline) -> Loading:
    """Return absolute paths, as workers have another working directory."""
    files = pipeline.file if isinstance(pipeline.file, tuple) else (pipeline.file,)
    weights = loading.encoder_weights
    if weights is not None and os.path.isfile(weights):
        weights = os.path.abspath(weights)
    reranker = loading.reranker
    if reranker not in (None, NONE):
        reranker = os.path.abspath(reranker)
    files = tuple(map(os.path.abspath, files))
    return Loading(files, weights, loading.mirror, reranker)


def _is_present(one: Path | Failure, folder: CaptionFolder) -> bool:
    return not isinstance(one, Failure) and str(one) in folder


def _tasks(found: Sequence[Path | Failure], folder: CaptionFolder) -> Iterator[Task]:
    """Yield the tasks of the chunks of which a photo has no caption yet."""
    header = visible(folder.header_file)
    for chunk, first in enumerate(range(0, len(found), SHARD_PHOTOS)):
        photos = tuple(found[first : first + SHARD_PHOTOS])
        present = frozenset(one for one in photos if _is_present(one, folder))
        left = [one for one in photos if one not in present]
        if not left:
            continue
        paths = [str(one) for one in left if not isinstance(one, Failure)]
        seen = (header, *(visible(path) for path in _first_readable(paths)))
        file = folder.path / shard_name(chunk, paths, folder.form)
        yield Task(f"photos of {file.name}", ChunkJob(file, photos, present), seen)


def _first_readable(paths: Sequence[str]) -> list[str]:
    """Return the first path of a file that exists, in a list."""
    return next(([path] for path in paths if os.path.isfile(path)), [])
