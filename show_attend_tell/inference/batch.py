"""Caption many photos into a file, and resume an interrupted run."""

import hashlib
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference.journal import CaptionJournal
from show_attend_tell.inference.metadata.writer import MetadataWriter
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.pipeline import (
    BATCH,
    CaptioningPipeline,
)
from show_attend_tell.inference.result import Caption, Failure, LowConfidence
from show_attend_tell.inference.sampled_captions import is_sampled
from show_attend_tell.inference.table import (
    COLUMNS,
    Columns,
    require_replaceable,
    write_table,
)
from show_attend_tell.inference.visualization.gallery import readable, write_gallery
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.progress import progress_bar

_ENDINGS = (".jsonl", ".csv", ".html", ".htm")


@dataclass(frozen=True)
class BatchReport:
    """The counts of a run of :func:`caption_into_file`.

    Attributes:
        out: the output file.
        written: captions written by this run.
        present: photos whose caption was already present.
        failures: photos without a caption, those left out included.
        nouns: what is written, and what it is made from, in the plural.
    """

    out: Path
    written: int
    present: int
    failures: tuple[Failure, ...]
    nouns: tuple[str, str] = ("captions", "photos")

    def summary(self) -> str:
        """Return the counts in one line."""
        results, inputs = self.nouns
        parts = [f"{readable(str(self.out))}: {self.written} {results} written"]
        if self.present:
            parts.append(f"{self.present} already present")
        low = sum(isinstance(one, LowConfidence) for one in self.failures)
        if low:
            parts.append(f"{low} left out for low confidence")
        if len(self.failures) > low:
            parts.append(f"{len(self.failures) - low} {inputs} skipped")
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
    paths: Iterable[str | os.PathLike],
    out: str | Path,
    decoding: DecodingSettings | None = None,
    shown: bool = True,
    columns: Columns = COLUMNS,
    metadata: MetadataWriter | None = None,
    min_confidence: float | None = None,
) -> BatchReport:
    """Write the captions of many photos into a file.

    An interrupted run is resumed from JSON Lines, to which captions are appended.

    Args:
        pipeline: a pipeline loaded from a file.
        paths: photos, and folders whose photos are captioned, nested ones too.
        out: ``.jsonl``; or ``.csv`` or ``.html``, written at the end from a ``.jsonl``
            of the same name beside it.
        decoding: settings of ``pipeline.decoding``; by default the model's.
        shown: whether to show a progress bar.
        columns: columns of a ``.csv``.
        metadata: writes every caption into the metadata of its photo too.
        min_confidence: captions below it are left out of the file, and reported.

    Raises:
        CaptionError: the ending of `out` is unknown, the pipeline has no file, or
            `min_confidence` is given and the model has no calibration.
        OutputFileError: see :class:`~show_attend_tell.inference.journal.CaptionJournal`
            and :func:`~show_attend_tell.inference.table.require_replaceable`.
    """
    require_known_ending(out)
    if pipeline.file is None:
        raise CaptionError(
            "`pipeline` must be loaded from a file, by which rows are recognised as "
            "its own. Received: one without a file; save its captioner and load it"
        )
    pipeline.require_calibration(min_confidence)
    out, decoding = Path(out), decoding or pipeline.decoding()
    kind = out.suffix.lower()
    journal_file = out if kind == ".jsonl" else out.with_suffix(".jsonl")
    found = distinct_photos(find_photos(paths))
    author = made_by(pipeline, decoding, min_confidence)
    with CaptionJournal(journal_file, author) as journal:
        if kind == ".csv":
            require_replaceable(out, journal.rows)
        left = [one for one in found if isinstance(one, Failure) or one not in journal]
        present, failures = len(found) - len(left), []
        if metadata is not None:
            _write_present(metadata, found, journal)

        def has_caption(one: object) -> bool:
            return not isinstance(one, Failure) and one in journal

        results = pipeline.caption_found(found, decoding, min_confidence, has_caption)
        with progress_bar(
            len(found), "photo", "caption", done=present, shown=shown
        ) as bar:
            while batch := list(itertools.islice(results, BATCH)):
                captions = [one for one in batch if isinstance(one, Caption)]
                journal.append(captions)
                if metadata is not None:
                    for one in captions:
                        metadata.write(one.path, one.text)
                failures += [one for one in batch if isinstance(one, Failure)]
                bar.update(len(batch))
        if kind == ".csv":
            write_table(out, journal.rows, columns)
        elif kind != ".jsonl":
            write_gallery(out, journal.rows, failures)
    return BatchReport(out, len(left) - len(failures), present, tuple(failures))


def _write_present(
    metadata: MetadataWriter,
    found: Iterable[Path | Failure],
    journal: CaptionJournal,
) -> None:
    """Write the metadata of photos whose rows an interrupted run has written."""
    captions = {os.path.abspath(row["path"]): row["caption"] for row in journal.rows}
    for one in found:
        if not isinstance(one, Failure) and one in journal:
            metadata.write(one, captions[os.path.abspath(one)])


def distinct_photos(found: Iterable[Path | Failure]) -> Sequence[Path | Failure]:
    """Remove photos named twice, by whatever path."""
    photos: dict[object, Path | Failure] = {}
    for one in found:
        key = one if isinstance(one, Failure) else one.absolute()
        photos.setdefault(key, one)
    return list(photos.values())


def made_by(
    pipeline: CaptioningPipeline,
    decoding: DecodingSettings,
    min_confidence: float | None = None,
) -> str:
    """Return the models and the settings that must not be mixed in one file."""
    files = pipeline.file if isinstance(pipeline.file, tuple) else (pipeline.file,)
    models = " + ".join(map(file_identity, files))
    how = f"beam {decoding.beam}"
    if decoding.method == "sample":
        how = f"words sampled at temperature {decoding.temperature}"
    if decoding.locations != "expected":
        how += f", {decoding.locations}"
    if is_sampled(decoding):
        how += f" with seed {decoding.seed}"
    if pipeline.generator.mirror:
        how += ", mirrored photos too"
    reranker = pipeline.generator.reranker_file(decoding)
    if reranker is not None:
        name = file_identity(reranker)
        how += f", ranked by {name} with weight {decoding.rerank_weight:g}"
    if min_confidence is not None:
        how += f", confidence at least {min_confidence:g}"
    return f"{models}, {how}"


def file_identity(model: Path) -> str:
    """Return the name of a model file and the first digits of its SHA-256."""
    with model.open("rb") as file:
        return f"{model.name} {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
