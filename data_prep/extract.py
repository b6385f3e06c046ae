"""Extract the features of a prepared data set: read the manifest, run the encoder."""

import contextlib
import dataclasses
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.disk import format_bytes, free_bytes
from data_prep.feature_part import Part, PartContent
from data_prep.feature_writer import FeatureWriter
from data_prep.photo_features import decoded_photos, encode_photos
from data_prep.photo_files import changed_photos, has_changed
from show_attend_tell.config.experiments import whole_folder
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data import manifest
from show_attend_tell.data.features import (
    FeatureReader,
    feature_path,
    require_no_shards,
)
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.data.splits import data_folders
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import DataError, PhotoError, plural
from show_attend_tell.runtime.machine import usable_cores
from show_attend_tell.runtime.read_ahead import read_ahead

_FLOAT16 = 2  # bytes of a value

_logger = logging.getLogger(__name__)


class _Job(NamedTuple):
    """A feature file to write."""

    path: Path
    photos: list[Photo]
    mirror: bool  # whether the photos are mirrored


@dataclass(frozen=True)
class FeatureReport:
    """Counts, sizes and problems of one feature file."""

    path: Path
    photos: int
    extracted: int  # photos whose features this run has added
    seconds: float  # duration of this run's extraction
    size: int  # bytes of the file
    dense_size: int  # bytes of its values without compression
    unreadable: dict[str, str]  # id -> reason, of each photo without features

    def lines(self) -> list[str]:
        """Return the report as lines to print, the unreadable photos at the end."""
        rate = f"{self.extracted} new, {self.extracted / self.seconds:.1f} photos/s"
        photos = plural(self.photos, "photo")
        if self.unreadable:
            photos = f"{self.photos - len(self.unreadable):,} of {photos}"
        return [
            f"{self.path}: {photos} ({rate if self.extracted else 'none new'}), "
            f"{format_bytes(self.size)}, "
            f"{self.size / self.dense_size:.0%} of dense float16",
            *(f"unreadable: {reason}" for reason in self.unreadable.values()),
        ]


def extract(
    experiment: Experiment,
    work: str | Path,
    encoder_weights: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    mirror_splits: Sequence[str] = (),
    write_parts: Callable | None = None,
) -> list[FeatureReport]:
    """Extract the features of the photos of all splits of an experiment's data sets.

    After an interruption the next call resumes, and the files have the same bytes.
    Photos that could not be read are tried again by every call.

    Args:
        experiment: the experiment; its data sets and ``encoder`` are used. With
            ``encoder.mirror`` the features of the mirrored training photos are
            written to a second file.
        work: the folder of prepared data.
        encoder_weights: weights file that replaces ``encoder.weights``.
        overwrite: whether to replace existing features.
        progress: whether to draw a progress bar on standard error.
        mirror_splits: further splits whose mirrored photos are extracted, each to a
            file of its own.
        write_parts: function that writes the missing parts of a
            :class:`FeatureWriter`, whose rows are photos; :func:`write_parts_here` by
            default.

    Raises:
        ModelFileError: the encoder cannot be built.
        DataError: no photo can be read, or with `overwrite` a photo that has features
            is absent; existing features belong to another encoder or to other photos,
            another extraction is running, or the disk is too small; or a manifest is
            absent or malformed.
    """
    settings = experiment.encoder
    if encoder_weights is not None:
        settings = dataclasses.replace(settings, weights=str(encoder_weights))
    # A file for all photos of each data set, and one for each mirrored split of it.
    jobs: list[_Job] = []
    for folder in data_folders(experiment, work):
        everything = manifest.read_manifest(folder / "manifest.jsonl")
        photos = [photo for photo in everything if photo.split != "none"]
        if not photos:
            raise DataError(
                f"{folder}: the manifest must have photos in a split. Received: none; "
                "prepare the data again"
            )
        jobs.append(_Job(feature_path(folder, settings), photos, mirror=False))
        mirrored = (*(["train"] if settings.mirror else []), *mirror_splits)
        for split in dict.fromkeys(mirrored):
            if chosen := [photo for photo in photos if photo.split == split]:
                path = feature_path(folder, settings, split)
                jobs.append(_Job(path, chosen, mirror=True))
    known = {photo.split for job in jobs for photo in job.photos}
    if not known.issuperset(mirror_splits):
        raise DataError(
            "`mirror_splits` must name splits of the manifest, which has "
            f"{sorted(known)}. Received: {list(mirror_splits)}; leave the option out"
        )
    encoder = Encoder(settings)
    encoder.expect(sum(len(job.photos) for job in jobs if not job.mirror))
    write_parts = write_parts or write_parts_here
    # Refusals come first: otherwise a later file could be refused after an earlier
    # one has been replaced.
    for job in jobs:  # before any is written
        require_no_shards(job.path)
        if overwrite:
            _require_replaceable(job.path, job.photos)
    reports = []
    for job in jobs:
        ids = [photo.id for photo in job.photos]
        identity = encoder.identity()
        writer = FeatureWriter(job.path, identity, ids, job.mirror, overwrite)
        report = _extract_file(encoder, writer, job.photos, write_parts, progress)
        reports.append(report)
    return reports


def _is_readable(photo: Photo) -> bool:
    try:
        load_photo(photo.path)
    except PhotoError:
        return False
    return True


def _require_readable(path: Path, photos: Sequence[Photo]) -> None:
    """Raise a DataError if none of the photos can be read."""
    reason = ""
    for photo in photos:
        try:
            load_photo(photo.path)
            return
        except PhotoError as error:
            reason = reason or str(error)
    raise DataError(
        f"{path}: none of {plural(len(photos), 'photo')} can be read, the first fault: "
        f"{reason}; mount the drive or restore the folder of the photos, or run "
        "`prepare` again if they have moved"
    )


def _require_replaceable(path: Path, photos: Sequence[Photo]) -> None:
    """Raise a DataError if features would be lost that cannot be extracted again."""
    if not path.exists():
        return
    _require_readable(path, photos)
    try:
        with FeatureReader(path) as reader:
            present = reader.rows
    except DataError:  # damaged features are worth nothing
        return
    lost = [p for p in photos if p.id in present and not os.path.exists(p.path)]
    if lost:
        raise DataError(
            f"{path}: has features of {plural(len(lost), 'photo')} whose files are "
            f"absent now, the first is {lost[0].path}; mount the drive or restore the "
            "files, or run `prepare` again and delete the features to do without them"
        )


def _extract_file(
    encoder: Encoder,
    writer: FeatureWriter,
    photos: list[Photo],
    write_parts: Callable,
    progress: bool,
) -> FeatureReport:
    """Write one feature file unless it is complete."""
    L = encoder.grid[0] * encoder.grid[1]
    dense_size = len(photos) * L * encoder.width * _FLOAT16
    start = time.perf_counter()
    tried: set[str] = set()  # ids of photos that this run adds, or tries to
    with writer:
        if writer.complete:
            tried = _extract_changed(encoder, writer, photos, write_parts, progress)
        else:
            _discard_changed_parts(writer, photos)
            rows = [row for number in writer.missing for row in writer.rows(number)]
            # Before features are copied, which count as added too.
            tried = {photos[row].id for row in rows}
            # --overwrite asks for new features, not for copies of present ones.
            if not writer.overwrite:
                _copy_from_whole(writer, photos)
            rows = [row for number in writer.missing for row in writer.rows(number)]
            if rows:
                # Photos whose features have been copied may be absent.
                _require_readable(writer.path, [photos[row] for row in rows])
            _logger.info(
                "%s: %d photos, at most %s before compression; %s free",
                writer.path,
                len(photos),
                format_bytes(dense_size),
                format_bytes(free_bytes(writer.path.parent)),
            )
            while writer.missing:
                write_parts(encoder, writer, photos, progress)
                writer.missing = []
                # Photos may be replaced while others are read.
                _discard_changed_parts(writer, photos)
            writer.finish()
        size = writer.path.stat().st_size
    seconds = time.perf_counter() - start
    with FeatureReader(writer.path) as reader:
        return FeatureReport(
            path=writer.path,
            photos=len(photos),
            extracted=len(tried - reader.problems.keys()),
            seconds=seconds,
            size=size,
            dense_size=dense_size,
            unreadable=reader.problems,
        )


def _copy_from_whole(writer: FeatureWriter, photos: list[Photo]) -> None:
    """Write the missing parts whose photos the whole data set has features of.

    The whole set is not used unless it was made exactly as this file says of itself, in
    the same precision and by the same versions of the libraries.
    """
    whole = whole_folder(writer.path.parent)
    path = None if whole is None else whole / writer.path.name
    if path is None or not path.is_file():
        return
    try:
        reader = FeatureReader(path, writer.identity)
    except DataError as error:  # of another encoder, or incomplete
        _logger.info("the whole set is not used: %s", error)
        return
    with reader:
        if reader.attributes["identity"] != writer.identity:
            _logger.info("%s: not used, made with other weights or versions", path)
            return
        usable = reader.rows.keys() - changed_photos(reader, photos)
        stored = reader.photo_files()
        # A list of its own, as numbers are removed in the loop.
        for number in list(writer.missing):
            ids = [photos[row].id for row in writer.rows(number)]
            if usable.issuperset(ids):
                rows = [reader.rows[name] for name in ids]
                files = [stored[row] for row in rows]
                content = PartContent(reader.read(rows), [""] * len(ids), files)
                writer.part(number).write(content)
                writer.missing.remove(number)


def _discard_changed_parts(writer: FeatureWriter, photos: Sequence[Photo]) -> None:
    """Delete the parts whose photos have changed since they were read."""
    # A part is written some seconds after its photos were read, so its own time would
    # be too late.
    started = writer.header_file.stat().st_mtime
    for number in writer.written:
        part = writer.part(number)
        files = part.read_index().files
        if any(
            has_changed(photos[row].path, stored, started)
            for row, stored in zip(writer.rows(number), files, strict=True)
        ):
            _logger.info("%s: its photos have changed", part.file)
            writer.discard(number)


def _extract_changed(
    encoder: Encoder,
    writer: FeatureWriter,
    photos: list[Photo],
    write_parts: Callable,
    progress: bool,
) -> set[str]:
    """Extract again the photos of a complete file that have changed since.

    These are photos that could not be read before and can be now, and photos whose
    files have another content.

    Returns:
        The ids of these photos.

    Raises:
        DataError: the file has no features, and still no photo can be read.
    """
    with FeatureReader(writer.path) as present:
        if not present.rows:
            _require_readable(writer.path, photos)
        changed = changed_photos(present, photos)
        if changed:
            _logger.info("%s: %d photos have changed", writer.path, len(changed))
        rows = {
            row
            for row, photo in enumerate(photos)
            if photo.id in changed
            or (photo.id in present.problems and _is_readable(photo))
        }
        if not rows:
            return set()
        # All parts are written again, as the file is joined from them; most of them are
        # copied from the present file.
        writer.reopen()
        empty = []  # parts without features, which are extracted as usual
        for number in writer.missing:
            if any(photos[row].id in present.rows for row in writer.rows(number)):
                _complete_part(encoder, writer, photos, present, number, rows)
            else:
                empty.append(number)
    writer.missing = empty
    if empty:
        write_parts(encoder, writer, photos, progress)
    writer.finish()
    return {photos[row].id for row in rows}


def _complete_part(
    encoder: Encoder,
    writer: FeatureWriter,
    photos: list[Photo],
    present: FeatureReader,
    number: int,
    changed: set[int],
) -> None:
    """Write a part from its present features and those of changed photos.

    Args:
        encoder: computes the features.
        writer: writes the part.
        photos: the photo of each row.
        present: reader of the complete file.
        number: the part.
        changed: rows of the photos to encode.
    """
    rows = writer.rows(number)
    problems = [present.problems.get(photos[row].id, "") for row in rows]
    features = np.zeros((len(rows), *present.shape[1:]), np.float16)
    files = present.photo_files()[rows.start : rows.stop]
    new = [row for row in rows if row in changed]
    kept = [row for row in set(rows) - changed if photos[row].id in present.rows]
    # Of an empty list NumPy would make float64, which is no index.
    features[np.array(kept, np.int64) - rows.start] = present.read(kept)
    if new:
        paths = [photos[row].path for row in new]
        threads = min(8, usable_cores())
        decoded = decoded_photos(encoder, paths, writer.mirrored, threads)
        with contextlib.closing(decoded):
            renewed = encode_photos(encoder, decoded)
        assert renewed.files is not None, "the encoder has read the files"
        for index, row in enumerate(new):
            place = row - rows.start
            features[place] = renewed.features[index]
            problems[place] = renewed.problems[index]
            files[place] = renewed.files[index]
    writer.part(number).write(PartContent(features, problems, files))


def write_parts_here(
    encoder: Encoder, writer: FeatureWriter, photos: list[Photo], progress: bool
) -> None:
    """Write all missing parts; decode photos and write parts in threads."""
    paths = (photos[row].path for n in writer.missing for row in writer.rows(n))
    threads = min(8, usable_cores())
    decoded = decoded_photos(encoder, paths, writer.mirrored, threads)
    # Closing the generator ends its threads, also after an error.
    with contextlib.closing(decoded), writer.progress_bar(progress) as bar:

        def encode(number: int) -> tuple[Part, PartContent]:
            of_part = itertools.islice(decoded, len(writer.rows(number)))
            return writer.part(number), encode_photos(encoder, of_part, bar.update)

        def write(encoded: tuple[Part, PartContent]) -> None:
            part, content = encoded
            part.write(content)

        # The encoder runs in this thread, in which read_ahead advances `map`.
        for _ in read_ahead(write, map(encode, writer.missing)):
            pass  # a thread writes a part while the next one is encoded
