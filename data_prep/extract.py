"""Extract the features of a prepared data set: manifest in, feature file out."""

import dataclasses
import io
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from data_prep.feature_writer import FeatureWriter
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.features import COMPRESSION, FeatureReader, feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import FeatureError, PhotoError
from show_attend_tell.runtime.progress import progress_bar

BATCH = 32  # photos a step of the network; part of what makes the bytes repeatable
_AHEAD = 4  # parts decoded ahead of the network
_SAMPLE = 8  # photos that the estimate of size and time is made from

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileReport:
    """What became of one feature file.

    Attributes:
        path: the file.
        photos: rows of the file.
        extracted: photos that went through the network in this run; the others were
            there already.
        seconds: of this run's extraction.
        size: of the file, in bytes. dense_size: of its values without compression.
        unreadable: id -> reason of every photo without features.
    """

    path: Path
    photos: int
    extracted: int
    seconds: float
    size: int
    dense_size: int
    unreadable: dict[str, str]

    @property
    def photos_per_second(self) -> float:
        """Rate of this run, 0 when nothing was left to do."""
        return self.extracted / self.seconds if self.extracted else 0.0

    def lines(self) -> list[str]:
        """Describe the file for a person, unreadable photos by name at the end."""
        rate = f"{self.extracted} new, {self.photos_per_second:.1f} photos/s"
        return [
            f"{self.path}: {self.photos} photos "
            f"({rate if self.extracted else 'all there already'}), "
            f"{self.size / 1e6:.1f} MB, "
            f"{self.size / self.dense_size:.0%} of dense float16",
            *(f"not read: {reason}" for reason in self.unreadable.values()),
        ]


@dataclass(frozen=True)
class ExtractReport:
    """The files of one call of :func:`extract`, the mirrored one last."""

    files: tuple[FileReport, ...]

    def lines(self) -> list[str]:
        """Describe all files for a person."""
        return [line for file in self.files for line in file.lines()]


def extract(
    experiment: Experiment,
    work: str | Path,
    encoder_weights: str | Path | None = None,
    overwrite: bool = False,
    splits: Sequence[str] | None = None,
    progress: bool = True,
) -> ExtractReport:
    """Extract the features of all photos of an experiment's data.

    Interrupt it at will: the next call goes on, and the file has the same bytes.

    Args:
        experiment: its ``data.name`` and ``encoder`` are used; with
            ``encoder.mirror`` the mirrored training photos go to a file beside.
        work: folder that holds ``<data.name>/manifest.jsonl``.
        encoder_weights: file to take instead of ``encoder.weights``.
        overwrite: throw away features that exist.
        splits: the splits wanted; every one but ``none`` by default.
        progress: whether to draw a progress bar on standard error.

    Raises:
        EncoderError: the encoder cannot be made.
        FeatureError: features of another encoder or of other photos are in the way,
            or another extraction is running.
        ManifestError: there is no usable manifest.
    """
    folder = Path(work) / experiment.data.name
    photos = _select(manifest.read_manifest(folder / "manifest.jsonl"), splits)
    settings = experiment.encoder
    if encoder_weights is not None:
        settings = dataclasses.replace(settings, weights=str(encoder_weights))
    encoder = Encoder(settings)
    path = feature_path(folder, settings)
    jobs = [(path, photos, False)]
    trained = [photo for photo in photos if photo.split == "train"]
    if settings.mirror and trained:
        jobs.append((feature_path(folder, settings, mirror=True), trained, True))
    _log_expectation(encoder, jobs, overwrite)
    files = [
        _extract_file(encoder, *job, overwrite=overwrite, progress=progress)
        for job in jobs
    ]
    return ExtractReport(tuple(files))


_Job = tuple[Path, list[Photo], bool]


def _select(photos: list[Photo], splits: Sequence[str] | None) -> list[Photo]:
    if splits is None:
        chosen = [photo for photo in photos if photo.split != "none"]
    else:
        chosen = [photo for photo in photos if photo.split in splits]
    if not chosen:
        known = sorted({photo.split for photo in photos})
        raise FeatureError(
            f"`splits` must name splits of the manifest, which has {known}. "
            f"Received: {splits}"
        )
    return chosen


def _extract_file(
    encoder: Encoder,
    path: Path,
    photos: list[Photo],
    mirror: bool,
    overwrite: bool,
    progress: bool,
) -> FileReport:
    ids = [photo.id for photo in photos]
    start, extracted = time.perf_counter(), 0
    with FeatureWriter(path, encoder.identity(), ids, mirror, overwrite) as writer:
        if not writer.complete:
            extracted = sum(len(writer.rows(part)) for part in writer.missing)
            _write_parts(encoder, writer, photos, progress)
            writer.finish()
    seconds = time.perf_counter() - start
    with FeatureReader(path) as reader:
        return FileReport(
            path=path,
            photos=len(ids),
            extracted=extracted,
            seconds=seconds,
            size=path.stat().st_size,
            dense_size=int(np.prod(reader.shape)) * 2,
            unreadable=reader.problems,
        )


def _write_parts(
    encoder: Encoder, writer: FeatureWriter, photos: list[Photo], progress: bool
) -> None:
    """Write all missing parts; photos are decoded and parts stored in background."""
    left = sum(len(writer.rows(part)) for part in writer.missing)
    done, title = len(photos) - left, writer.path.name
    bar = progress_bar(len(photos), "photo", title, done, progress)
    stored: Future | None = None
    with ThreadPoolExecutor(1) as store, bar:
        for part, squares, problems in _decoded(encoder, writer, photos):
            batches = []
            for first in range(0, len(squares), BATCH):
                batches.append(encoder.encode(squares[first : first + BATCH]))
                bar.update(len(batches[-1]))
            features = np.concatenate(batches)
            features[np.array([bool(problem) for problem in problems])] = 0
            if stored:
                stored.result()
            stored = store.submit(writer.write, part, features, problems)
        if stored:
            stored.result()


def _decoded(
    encoder: Encoder, writer: FeatureWriter, photos: list[Photo]
) -> Iterator[tuple[int, np.ndarray, list[str]]]:
    """Yield the missing parts in order: number, (n, S, S, 3) uint8, problems."""
    workers = min(8, os.cpu_count() or 1)
    waiting: deque[tuple[int, list[Future]]] = deque()
    parts = iter(writer.missing)
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while len(waiting) < _AHEAD and (part := next(parts, None)) is not None:
                    rows = writer.rows(part)
                    jobs = [
                        pool.submit(_square, encoder, photos[row], writer.mirrored)
                        for row in rows
                    ]
                    waiting.append((part, jobs))
                if not waiting:
                    return
                part, jobs = waiting.popleft()
                squares, problems = zip(*(job.result() for job in jobs), strict=True)
                yield part, np.stack(squares), list(problems)
        finally:
            pool.shutdown(cancel_futures=True)


def _square(encoder: Encoder, photo: Photo, mirror: bool) -> tuple[np.ndarray, str]:
    """Return the network's square of a photo, black if unreadable, and why."""
    try:
        image = encoder.load_photo(photo.path)
    except PhotoError as error:
        side = encoder.settings.image_size
        return np.zeros((side, side, 3), np.uint8), str(error)
    return encoder.preprocess(image, mirror), ""


def _log_expectation(encoder: Encoder, jobs: list[_Job], overwrite: bool) -> None:
    """Log size and time to expect, measured on the first photos."""
    photos = sum(
        len(chosen) for path, chosen, _ in jobs if overwrite or not path.exists()
    )
    if not photos:
        return
    sample = jobs[0][1][:_SAMPLE]
    squares = np.stack([_square(encoder, photo, mirror=False)[0] for photo in sample])
    encoder.encode(squares)  # compiles
    start = time.perf_counter()
    features = encoder.encode(squares)
    seconds = (time.perf_counter() - start) / len(sample)
    with h5py.File(io.BytesIO(), "w") as file:
        chunks = (1, *features.shape[1:])
        stored = file.create_dataset("f", data=features, chunks=chunks, **COMPRESSION)
        size = stored.id.get_storage_size() / len(sample)
    folder = jobs[0][0].parent
    free = shutil.disk_usage(folder).free
    _logger.info(
        "%d photos: about %.1f MB in %s and %.1f minutes, less what an earlier run "
        "left; %.1f MB are free, and twice the size is used at the end of a file",
        photos,
        photos * size / 1e6,
        folder,
        photos * seconds / 60,
        free / 1e6,
    )
