"""Caption many photos into a file, and resume an interrupted run."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.inference.gallery import readable, write_gallery
from show_attend_tell.inference.journal import Journal, Row, caption_row
from show_attend_tell.inference.metadata import MetadataWriter
from show_attend_tell.inference.photos import find_photos, photo_key
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.inference.result import (
    DOUBTFUL,
    Failure,
    LowConfidence,
    is_below,
)
from show_attend_tell.inference.table import (
    exiftool_table,
    require_replaceable,
    table,
)
from show_attend_tell.runtime.errors import CaptionError, plural
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.progress import progress_bar

_GALLERIES = (".html", ".htm")
_ENDINGS = (".jsonl", ".csv", *_GALLERIES)


@dataclass(frozen=True)
class BatchReport:
    """The counts of a run of :func:`caption_into_file`.

    Attributes:
        out: the output file.
        written: captions written by this run.
        present: photos captioned by an earlier run.
        failures: photos without a caption, including those left out.
        nouns: a result and its input.
        left_out: captions of low confidence that a table for exiftool omits.
        pruned: rows of deleted photos that were removed.
        gone: rows of deleted photos that remain.
    """

    out: Path
    written: int
    present: int
    failures: tuple[Failure, ...]
    nouns: tuple[str, str] = ("caption", "photo")
    left_out: int = 0
    pruned: int = 0
    gone: int = 0

    def summary(self) -> str:
        """Return the counts in one line."""
        result, photo = self.nouns
        written = plural(self.written, result)
        parts = [f"{readable(str(self.out))}: {written} written"]
        if self.present:
            parts.append(f"{self.present} already present")
        low = sum(isinstance(failure, LowConfidence) for failure in self.failures)
        if low:
            parts.append(f"{low} left out for low confidence")
        if self.left_out:
            parts.append(
                f"{self.left_out} kept from exiftool for a confidence below "
                f"{DOUBTFUL:g} (--min-confidence 0 includes all)"
            )
        if len(self.failures) > low:
            parts.append(f"{plural(len(self.failures) - low, photo)} skipped")
        if self.pruned:
            parts.append(f"{plural(self.pruned, 'row')} of deleted photos removed")
        if self.gone:
            parts.append(
                f"{plural(self.gone, 'row')} of deleted photos kept (--prune removes "
                "them)"
            )
        return ", ".join(parts)


def require_known_ending(out: str | Path) -> None:
    """Raise a CaptionError unless the ending of an output file is known."""
    if Path(out).suffix.lower() not in _ENDINGS:
        raise CaptionError(
            f"`out` must end in .jsonl, .csv or .html. Received: {out}; choose another "
            "name"
        )


def caption_into_file(
    pipeline: CaptioningPipeline,
    paths: Iterable[str | os.PathLike[str]],
    out: str | Path,
    request: CaptionRequest | None = None,
    exiftool_columns: bool = False,
    metadata: MetadataWriter | None = None,
    prune: bool = False,
) -> BatchReport:
    """Write the captions of many photos into a file.

    An interrupted run is resumed from JSON Lines, to which captions are appended. A
    photo that has been replaced since is captioned again.

    Args:
        pipeline: a pipeline loaded from a file.
        paths: photos, and folders, which are searched recursively.
        out: ``.jsonl``; or ``.csv`` or ``.html``, written at the end from a ``.jsonl``
            of the same name beside it.
        request: the user's choices; by default the model's own.
        exiftool_columns: whether a ``.csv`` has the columns that exiftool reads.
        metadata: writes every caption into the metadata of its photo too.
        prune: whether to remove the rows of photos that were deleted from `paths`.

    Raises:
        CaptionError: the ending of `out` is unknown, the pipeline has no file, or see
            :meth:`CaptioningPipeline.caption_photos`; or see
            :class:`~show_attend_tell.inference.journal.Journal` and
            :func:`~show_attend_tell.inference.table.require_replaceable`; or all photos
            of a folder are gone, and `prune` would remove all its rows.
    """
    require_known_ending(out)
    if pipeline.file is None:
        raise CaptionError(
            "`pipeline` must be loaded from a file, by which rows are recognised as "
            "its own. Received: one without a file; save its captioner and load it"
        )
    out = Path(out)
    request = request or CaptionRequest()
    pipeline.require_calibration(request)
    kind = out.suffix.lower()
    journal_file = out if kind == ".jsonl" else out.with_suffix(".jsonl")
    named = [Path(path) for path in paths]
    photos = distinct_photos(find_photos(named))
    failures: list[Failure] = []
    author = made_by(pipeline, request)
    with Journal(journal_file, author) as journal:
        if kind == ".csv":
            require_replaceable(out, journal.history)
        gone = _rows_of_deleted_photos(journal, named, photos, prune)
        present = [
            photo
            for photo in photos
            if not isinstance(photo, Failure) and photo in journal
        ]
        if metadata is not None:  # a run may have been interrupted before the metadata
            shown = bool(present)
            with progress_bar(len(present), "photo", "metadata", shown=shown) as bar:
                for photo in present:
                    if row := journal.row(photo):
                        metadata.write(photo, row["caption"], row["confidence"])
                    bar.update()

        results = pipeline.caption_inputs(photos, request, journal.__contains__)
        with progress_bar(len(photos), "photo", "caption", done=len(present)) as bar:
            for result in results:
                bar.update()
                if isinstance(result, Failure):
                    failures.append(result)
                    continue
                journal.append([caption_row(result, author)])
                if metadata is not None:
                    metadata.write(result.path, result.text, result.confidence)

        rows = journal.rows
        if prune:
            deleted = {photo_key(journal.location(row)) for row in gone}
            rows = [r for r in rows if photo_key(journal.location(r)) not in deleted]
        least = request.least_in_metadata
        if kind == ".csv" and exiftool_columns:
            atomic_write(out, exiftool_table(rows, least, journal.location))
        elif kind == ".csv":
            atomic_write(out, table(rows, failures))
        elif kind in _GALLERIES:
            write_gallery(out, rows, failures, journal.location)
        if prune and gone:  # last: until here the table is made from the journal
            journal.remove(gone)
    left_out = 0
    if exiftool_columns:
        left_out = sum(is_below(row.get("confidence"), least) for row in rows)
    return BatchReport(
        out,
        written=len(photos) - len(present) - len(failures),
        present=len(present),
        failures=tuple(failures),
        left_out=left_out,
        pruned=len(gone) if prune else 0,
        gone=0 if prune else len(gone),
    )


def _rows_of_deleted_photos(
    journal: Journal,
    paths: Sequence[Path],
    photos: Sequence[Path | Failure],
    prune: bool,
) -> list[Row]:
    """Return the rows of photos that were deleted from the folders of a run.

    Raises:
        CaptionError: `prune` is true, and a folder has rows but no photo at all: its
            drive may be away.
    """
    found = {photo_key(p) for p in photos if not isinstance(p, Failure)}
    named = set()
    folders = set()
    for path in paths:
        named.add(photo_key(path))
        if not os.path.lexists(path):
            continue
        folder = path if path.is_dir() else path.absolute().parent
        folders.add(os.path.join(os.path.realpath(folder), ""))
    deleted = []
    for row in journal.rows:
        place = photo_key(journal.location(row))
        if place in found or os.path.lexists(place):
            continue
        inside = [folder for folder in folders if place.startswith(folder)]
        if prune and inside:
            _require_photos(max(inside, key=len), found)
        if inside or place in named:
            deleted.append(row)
    return deleted


def _require_photos(folder: str, found: Iterable[str]) -> None:
    """Raise a CaptionError unless a photo was found in a folder."""
    if not any(place.startswith(folder) for place in found):
        raise CaptionError(
            f"{folder}: --prune must find a photo there. Received: none, though photos "
            "of this folder have captions; connect its drive, or remove the file of "
            "captions"
        )


def distinct_photos(photos: Iterable[Path | Failure]) -> Sequence[Path | Failure]:
    """Remove photos named twice, by whatever path."""
    distinct: dict[object, Path | Failure] = {}
    for photo in photos:
        key = photo if isinstance(photo, Failure) else photo_key(photo)
        distinct.setdefault(key, photo)
    return list(distinct.values())


def made_by(pipeline: CaptioningPipeline, request: CaptionRequest | None = None) -> str:
    """Return the models and the settings that must not be mixed in one file."""
    request = request or CaptionRequest()
    decoding = pipeline.decoding(request)
    models = " + ".join(map(file_identity, pipeline.files))
    how = f"beam {decoding.beam}"
    if decoding.method == "sample":
        how = f"words sampled at temperature {decoding.temperature}"
    if decoding.locations != "expected":
        how += f", {decoding.locations}"
    if is_sampled(decoding):
        how += f" with seed {decoding.seed}"
    generator = pipeline.engine.generator
    if generator.mirror:
        how += ", mirrored photos too"
    reranker = generator.reranker_file(decoding)
    if reranker is not None:
        name = file_identity(reranker)
        how += f", ranked by {name} with weight {decoding.rerank_weight:g}"
    if request.min_confidence:  # 0 leaves out nothing
        how += f", confidence at least {request.min_confidence:g}"
    return f"{models}, {how}"


def file_identity(model: Path) -> str:
    """Return the name of a model file and the first digits of its SHA-256."""
    with model.open("rb") as file:
        return f"{model.name} {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
