"""Extract the features of a prepared data set: read the manifest, run the encoder."""

import dataclasses
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.disk import format_bytes, free_bytes, require_space
from data_prep.feature_writer import FeatureWriter
from data_prep.shard_writer import open_writer
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.feature_shards import shards_folder
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.shard_store import require_url
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import FeatureError, PhotoError
from show_attend_tell.runtime.progress import ProgressBar, progress_bar

BATCH = 32  # photos per step; another size may change the last bits of the features
_AHEAD = 4  # parts decoded ahead of the network
_FLOAT16 = 2  # bytes of a value

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileReport:
    """Counts, sizes and problems of one feature file or folder of shards.

    Attributes:
        path: the file or folder.
        photos: number of rows of the file.
        extracted: number of photos encoded in this run; the others were already
            present.
        seconds: duration of this run's extraction.
        size: size of the file, in bytes.
        dense_size: size of its values without compression, in bytes.
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
        """Rate of this run, 0 if all features were already present."""
        return self.extracted / self.seconds if self.extracted else 0.0

    def lines(self) -> list[str]:
        """Return the report as lines to print, the unreadable photos at the end."""
        rate = f"{self.extracted} new, {self.photos_per_second:.1f} photos/s"
        return [
            f"{self.path}: {self.photos} photos "
            f"({rate if self.extracted else 'all already present'}), "
            f"{format_bytes(self.size)}, "
            f"{self.size / self.dense_size:.0%} of dense float16",
            *(f"unreadable: {reason}" for reason in self.unreadable.values()),
        ]


@dataclass(frozen=True)
class ExtractReport:
    """Reports of the files of one call of :func:`extract`, the mirrored file last."""

    files: tuple[FileReport, ...]

    def lines(self) -> list[str]:
        """Return the reports as lines to print."""
        return [line for file in self.files for line in file.lines()]


def extract(
    experiment: Experiment,
    work: str | Path,
    encoder_weights: str | Path | None = None,
    overwrite: bool = False,
    splits: Sequence[str] | None = None,
    progress: bool = True,
    mirror_splits: Sequence[str] = (),
    shards: bool = False,
    write_parts: Callable | None = None,
    store: str | None = None,
) -> ExtractReport:
    """Extract the features of all photos of an experiment's data.

    After an interruption the next call resumes, and the file has the same bytes.
    Features that exist as a file or as shards, complete or not, keep their form.

    Args:
        experiment: the experiment; its ``data.name`` and ``encoder`` are used. With
            ``encoder.mirror`` the features of the mirrored training photos are
            written to a second file.
        work: the folder of ``<data.name>/manifest.jsonl``.
        encoder_weights: weights file that replaces ``encoder.weights``.
        overwrite: replace existing features.
        splits: the splits to extract; by default all but ``none``.
        progress: whether to draw a progress bar on standard error.
        mirror_splits: further splits whose mirrored photos are extracted, each to a
            file of its own.
        shards: whether new features become a folder of shards in place of a file, see
            :mod:`data.feature_shards`.
        write_parts: writes the missing parts of a :class:`FeatureWriter`, with the
            arguments of :func:`write_parts_here`, the default.
        store: URL below which new shards become objects, such as
            ``s3://bucket/folder``; see :mod:`data.shard_store`.

    Raises:
        EncoderError: the encoder cannot be built.
        FeatureError: existing features are of another encoder or of other photos,
            another extraction is running, or the disk is too small.
        ManifestError: the manifest is absent or malformed.
    """
    store = None if store is None else require_url(store)
    folder = Path(work) / experiment.data.name
    photos = _select(manifest.read_manifest(folder / "manifest.jsonl"), splits)
    settings = experiment.encoder
    if encoder_weights is not None:
        settings = dataclasses.replace(settings, weights=str(encoder_weights))
    encoder = Encoder(settings)
    encoder.expect(len(photos))
    path = feature_path(folder, settings)
    jobs = [(path, photos, False)]
    trained = [photo for photo in photos if photo.split == "train"]
    if settings.mirror and trained:
        jobs.append((feature_path(folder, settings, mirror=True), trained, True))
    for split in mirror_splits:
        own = _select(photos, [split])
        jobs.append((feature_path(folder, settings, True, split), own, True))
    files = [
        _extract_file(
            *(encoder, *job, overwrite, progress, shards),
            write_parts or write_parts_here,
            store,
        )
        for job in jobs
    ]
    return ExtractReport(tuple(files))


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
    shards: bool,
    write_parts: Callable,
    store: str | None,
) -> FileReport:
    ids = [photo.id for photo in photos]
    dense_size = len(ids) * encoder.grid[0] * encoder.grid[1] * encoder.width * _FLOAT16
    start, extracted = time.perf_counter(), 0
    identity, url = encoder.identity(), None
    if store is not None:
        url = f"{store}/{path.parent.name}/{shards_folder(path).name}"
    with open_writer(path, identity, ids, mirror, overwrite, shards, url) as writer:
        if not writer.complete:
            extracted = sum(len(writer.rows(part)) for part in writer.missing)
            _logger.info(
                "%s: %d photos, at most %s before compression; %s free",
                writer.path,
                len(ids),
                format_bytes(dense_size),
                format_bytes(free_bytes(path.parent)),
            )
            write_parts(encoder, writer, photos, progress)
            writer.finish()
        size = writer.size()
    seconds = time.perf_counter() - start
    with FeatureReader(writer.path) as reader:
        return FileReport(
            path=writer.path,
            photos=len(ids),
            extracted=extracted,
            seconds=seconds,
            size=size,
            dense_size=dense_size,
            unreadable=reader.problems,
        )


def write_parts_here(
    encoder: Encoder, writer: FeatureWriter, photos: list[Photo], progress: bool
) -> None:
    """Write all missing parts; decode photos and write parts in threads.

    Args:
        encoder: computes the features.
        writer: has the missing parts.
        photos: photos in the order of the rows.
        progress: whether to draw a progress bar on standard error.
    """
    bar = extraction_bar(writer, progress)
    stored: Future | None = None
    with ThreadPoolExecutor(1) as store, bar:
        for count, (part, squares, problems) in enumerate(
            _decode_parts(encoder, writer, photos)
        ):
            batches = (
                (squares[first : first + BATCH], problems[first : first + BATCH])
                for first in range(0, len(squares), BATCH)
            )
            features, _ = encode_batches(encoder, batches, bar.update)  # (n, L, D)
            if stored:
                stored.result()
            if count == 1:  # the size of one part is known
                require_disk_space(writer)
            stored = store.submit(writer.write, part, features, problems)
        if stored:
            stored.result()


def extraction_bar(writer: FeatureWriter, shown: bool) -> ProgressBar:
    """Return a progress bar of the photos of a writer."""
    total = len(writer.image_ids)
    left = sum(len(writer.rows(part)) for part in writer.missing)
    return progress_bar(
        total, "photo", writer.path.name, done=total - left, shown=shown
    )


def encode_batches(
    encoder: Encoder,
    batches: Iterable[tuple[np.ndarray, Sequence[str]]],
    advance: Callable[[int], object] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Return the features of a part and its problems.

    Args:
        encoder: computes the features.
        batches: the part's photos from its first row on, in batches of :data:`BATCH`:
            (b, S, S, 3) uint8, and b reasons, "" for a photo that was decoded.
        advance: is called with the number of photos of each batch.

    Returns:
        (n, L, D) float16, zeros where there is a problem, and n reasons.
    """
    features, reasons = [], []
    for squares, problems in batches:
        encoded = encoder.encode(squares)  # (b, S, S, 3) -> (b, L, D)
        encoded[np.array([bool(problem) for problem in problems])] = 0
        features.append(encoded)
        reasons += problems
        if advance:
            advance(len(encoded))
    return np.concatenate(features), reasons


def require_disk_space(writer: FeatureWriter) -> None:
    """Raise a FeatureError if the parts still to be written do not fit on the disk."""
    folder = writer.path.parent
    require_space(writer.remaining_bytes(), folder, "features", FeatureError)


def _decode_parts(
    encoder: Encoder, writer: FeatureWriter, photos: list[Photo]
) -> Iterator[tuple[int, np.ndarray, list[str]]]:
    """Yield the missing parts in order: number, (n, S, S, 3) uint8, problems."""
    workers = min(8, os.cpu_count() or 1)
    queue: deque[tuple[int, list[Future]]] = deque()
    parts = iter(writer.missing)
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while len(queue) < _AHEAD and (part := next(parts, None)) is not None:
                    jobs = [
                        pool.submit(decode, encoder, photos[row].path, writer.mirrored)
                        for row in writer.rows(part)
                    ]
                    queue.append((part, jobs))
                if not queue:
                    return
                part, jobs = queue.popleft()
                squares, problems = zip(*(job.result() for job in jobs), strict=True)
                yield part, np.stack(squares), list(problems)
        finally:
            pool.shutdown(cancel_futures=True)


def decode(encoder: Encoder, path: Path, mirror: bool) -> tuple[np.ndarray, str]:
    """Return the encoder's input (S, S, 3) and "", or a black one and the reason."""
    try:
        image = encoder.load_photo(path)
    except PhotoError as error:
        side = encoder.settings.image_size
        return np.zeros((side, side, 3), np.uint8), str(error)
    return encoder.preprocess(image, mirror), ""
