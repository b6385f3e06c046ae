"""Prepare the words of an experiment: render them, or read the crops of IIIT5K."""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from data_prep.problems import Problems
from data_prep.words.fonts import find_families
from data_prep.words.grounds import load_grounds
from data_prep.words.iiit5k import read_iiit5k
from data_prep.words.parts import SHEET, render_words
from data_prep.words.render import Renderer, contact_sheet
from data_prep.words.word_list import load_words
from show_attend_tell.config.words import WordSettings
from show_attend_tell.data.words import IMAGES, write_manifest
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import atomic_path, locked

_LISTING = "problems.txt"
_SHOWN = 96  # crops on the contact sheet


@dataclass(frozen=True)
class WordsReport:
    """Counts of prepared words.

    Attributes:
        folder: the prepared folder.
        counts: split -> number of words.
        seconds: wall-clock time.
        origin: what the words are made of, in a line.
        problems: crops that were skipped.
    """

    folder: Path
    counts: dict[str, int]
    seconds: float
    origin: str
    problems: Problems = field(default_factory=Problems)

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = [f"{split}: {count:,} words" for split, count in self.counts.items()]
        lines += [self.origin, *self.problems.summary()]
        if self.problems:
            lines.append(f"problems are listed in {self.folder / _LISTING}")
        lines.append(f"look at {self.folder / SHEET}")
        return [*lines, f"prepared in {self.folder} ({self.seconds:.0f} s)"]


def prepare_words(
    settings: WordSettings,
    data: str | Path | None,
    work: str | Path,
    workers: int | None = None,
    shown: bool = True,
) -> WordsReport:
    """Prepare words in the folder ``<work>/<settings.name>``.

    Args:
        settings: the table [data] of an experiment.
        data: the user's folder of IIIT5K; rendered words need none.
        work: the folder of all prepared data sets.
        workers: number of processes that render; by default that of processor cores.
        shown: whether a progress bar is shown.

    Raises:
        DataError: a file or font is absent or malformed, or the folder cannot be
            written.
    """
    folder = Path(work).absolute() / settings.name
    if settings.source == "iiit5k":
        return _prepare_iiit5k(data, folder, settings.held_out)
    return prepare_rendered(
        folder,
        settings.count,
        settings.held_out,
        fonts=settings.fonts,
        words=settings.words,
        photos=settings.photos,
        seed=settings.seed,
        workers=workers,
        shown=shown,
    )


def prepare_rendered(
    folder: str | Path,
    train: int,
    validation: int,
    *,
    fonts: str | Path | None = None,
    words: str | Path | None = None,
    photos: str | Path | None = None,
    seed: int = 0,
    workers: int | None = None,
    shown: bool = True,
) -> WordsReport:
    """Render words into a folder.

    Args:
        folder: the folder to write to; made if absent.
        train: number of training words.
        validation: number of validation words.
        fonts: folder of font files; installed fonts if empty.
        words: file of words, one a line; an installed list if empty.
        photos: folder of photos for grounds; none if empty.
        seed: seed of all words.
        workers: number of processes; by default that of processor cores.
        shown: whether a progress bar is shown.

    Raises:
        DataError: a file or font is absent or malformed, or the folder cannot be
            written.
    """
    started, folder = time.monotonic(), Path(folder)
    families, listed = find_families(fonts or None), load_words(words or None)
    renderer = Renderer(families, listed, seed, load_grounds(photos or None))
    rendered = render_words(renderer, train, validation, folder, workers, shown)
    return WordsReport(
        folder=folder,
        counts={"train": train, "val": validation},
        seconds=time.monotonic() - started,
        origin=f"{'rendered' if rendered else 'already rendered'} from {len(listed):,} "
        f"words in {len(families)} font families, "
        f"{sum(len(family.fonts) for family in families)} fonts",
    )


def _prepare_iiit5k(data: str | Path | None, folder: Path, held: int) -> WordsReport:
    started = time.monotonic()
    if data is None:
        raise DataError(
            "`data` must be the folder of IIIT5K's files. Received: None; pass the "
            "folder with --data"
        )
    crops, problems = read_iiit5k(data, held)
    images = np.stack([crop.image for crop in crops])
    rows = [crop.row for crop in crops]
    taken = DataError(f"{folder}: another process is preparing it; wait for its end")
    with locked(folder / ".prepare.lock", taken):
        with atomic_path(folder / IMAGES) as temporary:
            np.save(temporary, images)
        with atomic_path(folder / SHEET) as temporary:
            words = [row.word for row in rows[:_SHOWN]]
            contact_sheet(images[:_SHOWN], words).save(temporary)
        write_manifest(folder, rows)
        problems.write_listing(folder / _LISTING)
    return WordsReport(
        folder=folder,
        counts=dict(Counter(row.split for row in rows)),
        seconds=time.monotonic() - started,
        origin=f"crops of {data}",
        problems=problems,
    )
