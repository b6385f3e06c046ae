"""Caption many photos into a file, and resume an interrupted run."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

from show_attend_tell.inference.journal import (
    Journal,
    Row,
    caption_row,
    require_replaceable,
    table,
)
from show_attend_tell.inference.metadata import MetadataWriter
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.inference.result import (
    CONFIDENCE_WORDS,
    DOUBTFUL,
    Failure,
    LowConfidence,
    as_sentence,
    confidence_word,
    is_below,
)
from show_attend_tell.inference.visualization.pages import stream_template
from show_attend_tell.runtime.errors import CaptionError, plural
from show_attend_tell.runtime.files import atomic_path, atomic_write
from show_attend_tell.runtime.progress import progress_bar

_ENDINGS = (".jsonl", ".csv", ".html", ".htm")


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
    """

    out: Path
    written: int
    present: int
    failures: tuple[Failure, ...]
    nouns: tuple[str, str] = ("caption", "photo")
    left_out: int = 0

    def summary(self) -> str:
        """Return the counts in one line."""
        result, photo = self.nouns
        written = plural(self.written, result)
        parts = [f"{_readable(str(self.out))}: {written} written"]
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
) -> BatchReport:
    """Write the captions of many photos into a file.

    An interrupted run is resumed from JSON Lines, to which captions are appended.

    Args:
        pipeline: a pipeline loaded from a file.
        paths: photos, and folders, which are searched recursively.
        out: ``.jsonl``; or ``.csv`` or ``.html``, written at the end from a ``.jsonl``
            of the same name beside it.
        request: the user's choices; by default the model's own.
        exiftool_columns: whether a ``.csv`` has the columns that exiftool reads.
        metadata: writes every caption into the metadata of its photo too.

    Raises:
        CaptionError: the ending of `out` is unknown, the pipeline has no file, or see
            :meth:`CaptioningPipeline.caption_photos`.
        OutputFileError: see :class:`~show_attend_tell.inference.journal.Journal` and
            :func:`~show_attend_tell.inference.journal.require_replaceable`.
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
    photos = distinct_photos(find_photos(paths))
    failures: list[Failure] = []
    author = made_by(pipeline, request)
    with Journal(journal_file, author) as journal:
        if kind == ".csv":
            require_replaceable(out, journal.rows, request.least_in_metadata)
        present = [
            photo
            for photo in photos
            if not isinstance(photo, Failure) and photo in journal
        ]
        if metadata is not None:  # a run may have been interrupted before the metadata
            rows = {os.path.abspath(row["path"]): row for row in journal.rows}
            for photo in present:
                row = rows[os.path.abspath(photo)]
                metadata.write(photo, row["caption"], row["confidence"])

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
        left_out = 0
        if kind == ".csv":
            least = request.least_in_metadata
            atomic_write(out, table(journal.rows, exiftool_columns, least))
            if exiftool_columns:
                left_out = sum(
                    is_below(row.get("confidence"), least) for row in journal.rows
                )
        elif kind != ".jsonl":
            write_gallery(out, journal.rows, failures)
    written = len(photos) - len(present) - len(failures)
    return BatchReport(out, written, len(present), tuple(failures), left_out=left_out)


def distinct_photos(photos: Iterable[Path | Failure]) -> Sequence[Path | Failure]:
    """Remove photos named twice, by whatever path."""
    distinct: dict[object, Path | Failure] = {}
    for photo in photos:
        key = photo if isinstance(photo, Failure) else photo.absolute()
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


def write_gallery(
    path: Path, rows: Sequence[Row], failures: Sequence[Failure] = ()
) -> None:
    """Write a page of photos with captions to copy as alternative texts, atomically.

    Args:
        path: path of the page; photos are linked relative to its folder, not copied.
        rows: rows with ``path``, ``caption``, ``log_prob`` and ``confidence``.
        failures: photos without a caption, listed at the end.
    """
    cards = (
        {
            "source": _source(row["path"], path.parent),
            "name": _readable(row["path"]),
            "sentence": as_sentence(row["caption"]),
            "log_prob": row["log_prob"],
            "confidence": row.get("confidence"),
            "word": confidence_word(row.get("confidence")),
            "doubtful": is_below(row.get("confidence"), DOUBTFUL),
        }
        for row in rows
    )
    pieces = stream_template(
        "gallery.html",
        count=len(rows),
        cards=cards,
        words=CONFIDENCE_WORDS.items(),
        reasons=[_readable(failure.reason) for failure in failures],
    )
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def _source(photo: str, folder: Path) -> str:
    """Return the relative URL of a photo, seen from a folder."""
    relative = os.path.relpath(photo, folder).replace(os.sep, "/")
    return quote_from_bytes(os.fsencode(relative), safe="/")


def _readable(text: str) -> str:
    """Replace bytes of a path that are not UTF-8, so that the text can be written."""
    return os.fsencode(text).decode("utf-8", "replace")
