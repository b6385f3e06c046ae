"""Caption many photos into a file, and resume an interrupted run."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.inference.gallery import readable, require_gallery, write_gallery
from show_attend_tell.inference.journal import Journal, Row, caption_row, tag_names
from show_attend_tell.inference.metadata import MetadataWriter
from show_attend_tell.inference.photos import Failure, find_photos, photo_key
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.inference.result import (
    DOUBTFUL,
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
        kept_from_exiftool: captions of low confidence that its table omits.
        pruned: rows of deleted photos that were removed.
        gone: rows of deleted photos that remain.
        outdated: rows that were removed, since their photos were replaced and have no
            new caption.
    """

    out: Path
    written: int
    present: int
    failures: tuple[Failure, ...]
    nouns: tuple[str, str] = ("caption", "photo")
    kept_from_exiftool: int = 0
    pruned: int = 0
    gone: int = 0
    outdated: int = 0

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
        if self.kept_from_exiftool:
            parts.append(
                f"{self.kept_from_exiftool} kept from exiftool for a confidence below "
                f"{DOUBTFUL:g} (--min-confidence 0 includes all)"
            )
        if len(self.failures) > low:
            parts.append(f"{plural(len(self.failures) - low, photo)} skipped")
        if self.outdated:
            rows = plural(self.outdated, "row")
            parts.append(f"{rows} of {photo}s replaced since removed")
        if self.pruned:
            parts.append(f"{plural(self.pruned, 'row')} of deleted photos removed")
        if self.gone:
            parts.append(
                f"{plural(self.gone, 'row')} of deleted photos kept (--prune removes "
                "them)"
            )
        return ", ".join(parts)


def require_output(out: str | Path) -> None:
    """Raise a CaptionError if an output file has another ending, or is a folder."""
    if Path(out).suffix.lower() not in _ENDINGS:
        raise CaptionError(
            f"`out` must end in .jsonl, .csv or .html. Received: {out}; choose another "
            "name"
        )
    if Path(out).is_dir():
        raise CaptionError(
            f"`out` must be a file. Received: a folder, {out}; choose another name"
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
    photo that has been replaced since is captioned again; without a new caption, as it
    is damaged or its confidence is too low, it loses the old one.

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
        CaptionError: see :func:`require_output`, the pipeline has no file, or see
            :meth:`CaptioningPipeline.caption_photos`; or see
            :class:`~show_attend_tell.inference.journal.Journal`,
            :func:`~show_attend_tell.inference.gallery.require_gallery` and
            :func:`~show_attend_tell.inference.table.require_replaceable`; or all photos
            of a folder are gone, and `prune` would remove all its rows.
    """
    require_output(out)
    if pipeline.file is None:
        raise CaptionError(
            "`pipeline` must be loaded from a file, by which rows are recognised as "
            "its own. Received: one without a file; save its captioner and load it"
        )
    out = Path(out)
    request = request or CaptionRequest()
    # Refused here, before the journal makes its file.
    pipeline.require_calibration(request)
    kind = out.suffix.lower()
    if kind in _GALLERIES:
        require_gallery(out)
    journal_file = out if kind == ".jsonl" else out.with_suffix(".jsonl")
    named = [Path(path) for path in paths]
    photos = distinct_photos(find_photos(named))
    failures: list[Failure] = []
    author = made_by(pipeline, request)
    with Journal(journal_file, author) as journal:
        # Inside of the journal: what it raises removes a journal that is new and empty.
        if kind == ".csv":
            require_replaceable(out, journal.history)
        gone = _rows_of_deleted_photos(journal, named, photos, prune)
        present = [
            photo
            for photo in photos
            if not isinstance(photo, Failure) and photo in journal
        ]
        if metadata is not None:  # a run may have been interrupted before the metadata
            _write_metadata(metadata, journal, present)

        def is_done(photo: object) -> bool:
            """Return whether a photo has a row; describe one that is read next."""
            if photo in journal:
                return True
            if isinstance(photo, Path):
                journal.describe(photo)
            return False

        # All photos, with `is_done`: a photo keeps its row in its batch, and so its
        # last digits.
        results = pipeline.caption_inputs(photos, request, is_done)
        with progress_bar(len(photos), "photo", "caption", done=len(present)) as bar:
            for result in results:
                bar.update()
                if isinstance(result, Failure):
                    failures.append(result)
                    if metadata is not None:
                        # Its sidecar may describe an earlier photo at this path.
                        metadata.write_none(result.path)
                    continue
                # The row is on disk before the sidecar: a killed run writes the sidecar
                # again from it.
                row = journal.append([caption_row(result, author)])[0]
                if metadata is not None:
                    metadata.write(
                        result.path,
                        result.text,
                        result.confidence,
                        result.tag_names,
                        row.get("photo"),
                    )

        outdated = journal.outdated(failure.path for failure in failures)
        removed = [*outdated, *gone] if prune else outdated
        # By key: a row may name its photo by another path than this run.
        left = {photo_key(journal.location(row)) for row in removed}
        rows = [r for r in journal.rows if photo_key(journal.location(r)) not in left]
        minimum = request.min_confidence_in_metadata
        if kind == ".csv":  # a person may have changed it while this run took hours
            require_replaceable(out, journal.history)
        if kind == ".csv" and exiftool_columns:
            atomic_write(out, exiftool_table(rows, minimum, journal.location))
        elif kind == ".csv":
            atomic_write(out, table(rows, failures))
        elif kind in _GALLERIES:
            write_gallery(out, rows, failures, journal.location)
        if removed:  # last: a table must not have rows that it lacks
            journal.remove(removed)
    kept_from_exiftool = 0
    if exiftool_columns:
        low = [row for row in rows if is_below(row.get("confidence"), minimum)]
        kept_from_exiftool = len(low)
    return BatchReport(
        out,
        written=len(photos) - len(present) - len(failures),
        present=len(present),
        failures=tuple(failures),
        kept_from_exiftool=kept_from_exiftool,
        pruned=len(gone) if prune else 0,
        gone=0 if prune else len(gone),
        outdated=len(outdated),
    )


def _write_metadata(
    writer: MetadataWriter, journal: Journal, photos: Sequence[Path]
) -> None:
    """Write the captions that a journal has of photos into their metadata."""
    with progress_bar(len(photos), "photo", "metadata", shown=bool(photos)) as bar:
        for photo in photos:
            if row := journal.row(photo):
                writer.write(photo, row["caption"], row["confidence"], tag_names(row))
            bar.update()


def _rows_of_deleted_photos(
    journal: Journal,
    paths: Sequence[Path],
    photos: Sequence[Path | Failure],
    prune: bool,
) -> list[Row]:
    """Return the rows of photos that were deleted from the folders of a run.

    Raises:
        CaptionError: `prune` is true, and a folder has rows but no photo at all, or
            one below it is empty: its drive may be away.
    """
    found = {photo_key(p) for p in photos if not isinstance(p, Failure)}
    named = set()
    folders = set()
    for path in paths:
        named.add(photo_key(path))
        if not os.path.lexists(path):
            continue
        folder = path if path.is_dir() else path.absolute().parent
        # The empty name adds a separator, so that /photos is not the start of
        # /photos-2.
        folders.add(os.path.join(os.path.realpath(folder), ""))
    deleted = []
    for row in journal.rows:
        photo = photo_key(journal.location(row))
        if photo in found or not _is_gone(photo):
            continue
        around = [folder for folder in folders if photo.startswith(folder)]
        if prune and around:
            _require_photos(max(around, key=len), found)  # the innermost
            _require_content(photo)
        if around or photo in named:
            deleted.append(row)
    return deleted


def _is_gone(photo: str) -> bool:
    """Return whether a file is known to be absent: its folder can be searched."""
    try:
        os.lstat(photo)
    # A ValueError is for a name with a null byte, which no file has.
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    # A folder without permission, or a drive that does not answer: the photo may exist.
    except OSError:
        return False
    return False


def _require_photos(folder: str, found: Iterable[str]) -> None:
    """Raise a CaptionError unless a photo was found in a folder."""
    if not any(photo.startswith(folder) for photo in found):
        raise CaptionError(
            f"{folder}: --prune must find a photo there. Received: none, though photos "
            "of this folder have captions; connect its drive, or remove the file of "
            "captions"
        )


def _require_content(photo: str) -> None:
    """Raise a CaptionError if the folder of a deleted photo is empty.

    Where a drive was mounted, an empty folder remains.
    """
    folder = Path(photo).parent
    while not folder.exists():
        folder = folder.parent
    try:
        is_empty = next(folder.iterdir(), None) is None
    except OSError:  # it may not be listed, but is known to lack the photo
        is_empty = False
    if is_empty:
        raise CaptionError(
            f"{folder}: --prune must find a file there. Received: an empty folder, "
            "though photos of it have captions; connect its drive, or remove the folder"
        )


def distinct_photos(photos: Iterable[Path | Failure]) -> Sequence[Path | Failure]:
    """Return the photos, each once although several paths may name it."""
    distinct: dict[object, Path | Failure] = {}
    for photo in photos:
        key = photo if isinstance(photo, Failure) else photo_key(photo)
        distinct.setdefault(key, photo)
    return list(distinct.values())


def made_by(pipeline: CaptioningPipeline, request: CaptionRequest | None = None) -> str:
    """Return one line that names what captions in one file must have in common.

    These are the models and their settings, such as ``everyday.safetensors
    0123456789ab, beam 5``.
    """
    request = request or CaptionRequest()
    decoding = pipeline.decoding(request)
    models = " + ".join(map(file_identity, pipeline.files))
    # The name and the content of a model count, not its folder: a moved model continues
    # the file.
    line = f"{models}, beam {decoding.beam}"
    if decoding.method == "sample":
        line = f"{models}, words sampled at temperature {decoding.temperature}"
    if decoding.locations != "expected":
        line += f", {decoding.locations}"
    if is_sampled(decoding):
        line += f" with seed {decoding.seed}"
    generator = pipeline.engine.generator
    if generator.mirror:
        line += ", mirrored photos too"
    reranker = generator.reranker_file(decoding)
    if reranker is not None:
        # A reranker in the model's own file is named too, since another one, or none,
        # may rank.
        name = file_identity(reranker)
        line += f", ranked by {name} with weight {decoding.rerank_weight:g}"
    if request.min_confidence:  # 0 leaves out nothing
        line += f", confidence at least {request.min_confidence:g}"
    if request.tags:
        line += f", tags from {request.tag_threshold:g}"
    return line


def file_identity(model: Path) -> str:
    """Return the name of a model file and the first digits of its SHA-256."""
    with model.open("rb") as file:
        return f"{model.name} {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
