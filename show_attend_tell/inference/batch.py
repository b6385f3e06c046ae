"""Captions of thousands of photos into a file, going on where an earlier run ended."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference.captioning import BATCH, caption_found, decoding_of
from show_attend_tell.inference.captioning import load as load_model
from show_attend_tell.inference.gallery import write_page
from show_attend_tell.inference.output_file import FORMATS, CaptionRows
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.runtime.errors import CaptionError
from show_attend_tell.runtime.progress import progress_bar


@dataclass(frozen=True)
class AlbumReport:
    """What came of an album.

    Attributes:
        out: the file asked for.
        written: captions written by this run.
        kept: photos that had theirs before.
        failures: photos without a caption.
    """

    out: Path
    written: int
    kept: int
    failures: tuple[Failure, ...]

    def line(self) -> str:
        """Return the sum of it."""
        parts = [f"{self.out}: {self.written} captions written"]
        if self.kept:
            parts.append(f"{self.kept} were there")
        if self.failures:
            parts.append(f"{len(self.failures)} photos skipped")
        return ", ".join(parts)


def caption_album(
    model: str | Path,
    paths: Iterable[str | Path],
    out: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
    locations: str | None = None,
    seed: int | None = None,
    shown: bool = True,
) -> AlbumReport:
    """Write the captions of many photos into a file.

    Args:
        model: a ``.keras`` file.
        paths: photos, and folders whose photos are taken, nested ones too.
        out: ``.jsonl``, ``.csv`` or ``.html``. The page comes last, from a ``.jsonl``
            of the same name that grows beside it.
        encoder_weights: as in :func:`~show_attend_tell.inference.captioning.load`.
        beam: hypotheses per photo; by default the model's.
        locations: as in :func:`~show_attend_tell.inference.captioning.caption_paths`.
        seed: likewise.
        shown: whether a progress bar is.

    Raises:
        CaptionError: ``out`` has another ending, or see ``caption.load``.
        OutputFileError: see :class:`~inference.output_file.CaptionRows`.
    """
    out = Path(out)
    is_page = out.suffix.lower() in (".html", ".htm")
    if not is_page and out.suffix.lower() not in FORMATS:
        raise CaptionError(
            f"`out` must end in .jsonl, .csv or .html. Received: {out}; choose another "
            "name"
        )
    captioner, encoder = load_model(model, encoder_weights)
    decoding = decoding_of(captioner, beam, locations, seed)
    found = _distinct(find_photos(paths))
    rows_file = out.with_suffix(".jsonl") if is_page else out
    with CaptionRows(rows_file, _made_by(model, decoding)) as rows:
        left = [one for one in found if isinstance(one, Failure) or one not in rows]
        kept, failures = len(found) - len(left), []
        results = caption_found(captioner, encoder, left, decoding)
        with progress_bar(len(found), "photo", "caption", kept, shown) as bar:
            while batch := list(itertools.islice(results, BATCH)):
                rows.add(one for one in batch if isinstance(one, Caption))
                failures += [one for one in batch if isinstance(one, Failure)]
                bar.update(len(batch))
        if is_page:
            write_page(out, rows.rows, failures)
    return AlbumReport(out, len(left) - len(failures), kept, tuple(failures))


def _distinct(found: Iterable[Path | Failure]) -> Sequence[Path | Failure]:
    """Leave out photos named twice, by whatever path."""
    photos: dict[object, Path | Failure] = {}
    for one in found:
        key = one if isinstance(one, Failure) else one.absolute()
        photos.setdefault(key, one)
    return list(photos.values())


def _made_by(model: str | Path, decoding: DecodingSettings) -> str:
    with open(model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    looked = "" if decoding.locations == "expected" else f", {decoding.locations}"
    if decoding.locations == "sampled":
        looked += f" with seed {decoding.seed}"
    return f"{Path(model).name} {digest[:12]}, beam {decoding.beam}{looked}"
