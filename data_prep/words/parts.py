"""Render many words on several processor cores, in parts that outlive an interruption.

A part is a file of at most 250 words of a split in a folder beside the result, whose
name has the digest of the renderer. Run again, the words of finished parts are not
rendered again, whatever the number of words. As each word has its own generator, the
number of processes does not change a byte.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import shutil
import signal
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.disk import require_space
from data_prep.words.render import Renderer, contact_sheet
from show_attend_tell.data.word_crops import HEIGHT, WIDTH
from show_attend_tell.data.words import IMAGES, MANIFEST, Word, write_manifest
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import atomic_path, atomic_write, locked
from show_attend_tell.runtime.progress import progress_bar

PART = 250  # most words of a part, rendered in a second
SHEET = "contact_sheet.png"
RECORD = "rendering.json"  # how the words were rendered
_SHOWN = 96  # words on the contact sheet
_DAMAGE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)

_renderer: Renderer  # of a worker process


class Part(NamedTuple):
    """Words of a split, from one number up to another."""

    split: str
    start: int
    stop: int

    @property
    def words(self) -> int:
        """Return how many they are."""
        return self.stop - self.start

    def path(self, folder: Path) -> Path:
        """Return the part's file."""
        return folder / f"{self.split}-{self.start:09d}-{self.stop:09d}.npz"


def render_words(
    renderer: Renderer,
    train: int,
    validation: int,
    folder: str | Path,
    workers: int | None = None,
    shown: bool = True,
) -> bool:
    """Render words into a folder: crops, manifest, record and contact sheet.

    Args:
        renderer: renders a word by its number.
        train: number of training words.
        validation: number of validation words, of their own generators.
        folder: the folder to write to; made if absent.
        workers: number of processes; by default that of processor cores.
        shown: whether a progress bar is shown.

    Returns:
        Whether words were rendered: if not, the folder has the same ones already.

    Raises:
        DataError: the disk is full, a worker was killed, or another process renders
            into the folder.
    """
    folder = Path(folder).absolute()
    taken = DataError(f"{folder}: another process is preparing it; wait for its end")
    with locked(folder / ".prepare.lock", taken):
        record = _record(renderer, train, validation)
        if _is_rendered(folder, record):
            return False
        parts = folder / f".parts-{PART}-{record['digest'][:16]}"
        jobs = [
            Part(split, start, min(start + PART, count))
            for split, count in (("train", train), ("val", validation))
            for start in range(0, count, PART)
        ]
        size = 2 * (train + validation) * HEIGHT * WIDTH  # the parts, and the words
        require_space(size, folder, "rendered words", DataError)
        _render_parts(renderer, jobs, parts, workers or _cores(), shown)
        _assemble(parts, jobs, folder)
        atomic_write(folder / RECORD, json.dumps(record, indent=2) + "\n")
        for unfinished in folder.glob(".parts-*"):
            shutil.rmtree(unfinished)
    return True


def _cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _record(renderer: Renderer, train: int, validation: int) -> dict:
    return {
        "digest": renderer.digest(),
        "seed": renderer.seed,
        "train": train,
        "validation": validation,
        "list": len(renderer.words),
        "photos": len(renderer.photos),
        "families": [family.name for family in renderer.families],
    }


def _is_rendered(folder: Path, record: dict) -> bool:
    """Return whether the folder has the words of a record."""
    files = (folder / name for name in (IMAGES, MANIFEST, SHEET))
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found == record and all(path.is_file() for path in files)


def _render_parts(
    renderer: Renderer, parts: list[Part], folder: Path, workers: int, shown: bool
) -> None:
    """Render the parts whose files are absent."""
    absent = [part for part in parts if not part.path(folder).is_file()]
    render = functools.partial(_render_part, folder=folder)
    total = sum(part.words for part in parts)
    done = total - sum(part.words for part in absent)
    with (
        progress_bar(total, "word", "rendering", done=done, shown=shown) as bar,
        _runner(renderer, min(workers, len(absent))) as run,
    ):
        bar.update(0)  # the time of the first part is that of rendering
        for count in run(render, absent):
            bar.update(count)


@contextlib.contextmanager
def _runner(renderer: Renderer, workers: int) -> Iterator:
    """Yield a function that calls another one on jobs, here or in processes."""
    if workers <= 1:
        _start(renderer)
        yield map
        return
    # A new process has no threads of this one, and none of its locks.
    pool = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(renderer,),
    )

    def run(function, jobs: Iterable) -> Iterator[int]:
        for future in as_completed([pool.submit(function, job) for job in jobs]):
            yield future.result()

    try:
        yield run
    except BrokenProcessPool:
        raise DataError(
            "a process that renders words was killed, perhaps for its memory; run the "
            "same command again to continue, with fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(renderer: Renderer) -> None:
    global _renderer
    _renderer = renderer


def _start_worker(renderer: Renderer) -> None:
    """Prepare a worker process: it ends with its parent, which handles Ctrl-C."""
    _start(renderer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _render_part(part: Part, folder: Path) -> int:
    """Render one part into its file; return the number of words."""
    numbers = range(part.start, part.stop)
    rendered = (_renderer.render(part.split, number) for number in numbers)
    crops, words = zip(*rendered, strict=True)
    with atomic_path(part.path(folder)) as temporary:
        np.savez(temporary, crops=np.stack(crops), words=np.array(words))
    return part.words


def _assemble(stored: Path, parts: list[Part], folder: Path) -> None:
    """Write the words of all parts as the files of a prepared folder."""
    for name in (RECORD, MANIFEST):  # they describe the words of before
        (folder / name).unlink(missing_ok=True)
    rows, first = [], None
    shape = sum(part.words for part in parts), HEIGHT, WIDTH
    with atomic_path(folder / IMAGES) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        for part in parts:
            crops, words = _read_part(part.path(stored))
            array[len(rows) : len(rows) + part.words] = crops
            rows += (Word(part.split, word) for word in words)
            if first is None:
                first = contact_sheet(crops[:_SHOWN], words[:_SHOWN])
        array.flush()
        del array
    with atomic_path(folder / SHEET) as temporary:
        first.save(temporary)
    write_manifest(folder, rows)


def _read_part(path: Path) -> tuple[np.ndarray, list[str]]:
    """Return the crops and words of a part; remove it if it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return stored["crops"], stored["words"].tolist()
    except _DAMAGE:
        path.unlink(missing_ok=True)
        raise DataError(
            f"{path}: a part is damaged and was removed; run the same command again to "
            "render it again"
        ) from None
