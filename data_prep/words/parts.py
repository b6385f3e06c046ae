"""Render many words on several processor cores, and resume after an interruption.

A part is a file of at most 250 words of a split, in a folder whose name has the digest
of the renderer. The next run reuses finished parts, even for another number of words.
Each word has its own generator, so the number of processes changes no byte.
"""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.disk import require_space
from data_prep.unpack import Progress
from data_prep.words.render import Renderer, contact_sheet
from show_attend_tell.data.words import (
    HEIGHT,
    IMAGES,
    MANIFEST,
    WIDTH,
    Word,
    write_manifest,
)
from show_attend_tell.runtime.array_file import DAMAGED
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import atomic_path, atomic_write

PART = 250  # most words of a part, rendered in a second
SHEET = "contact_sheet.png"
SHOWN = 96  # words on the contact sheet
RECORD = "rendering.json"  # how the words were rendered

_LOGGER = logging.getLogger(__name__)
_renderer: Renderer  # of a worker process


class Part(NamedTuple):
    """Words `start` to `stop` of a split, and their file."""

    split: str
    start: int
    stop: int
    path: Path


def render_words(
    renderer: Renderer,
    counts: Mapping[str, int],
    folder: Path,
    workers: int | None = None,
    progress: Progress | None = None,
) -> bool:
    """Render words into a folder: crops, manifest, record and contact sheet.

    Args:
        renderer: renders a word by its number.
        counts: split -> number of words, each with its own generator.
        folder: the folder to write to; made if absent.
        workers: number of processes; by default the number of processor cores.
        progress: called after every part.

    Returns:
        Whether words were rendered; False if the folder already holds the same words.

    Raises:
        DataError: the disk is full, or a worker was killed.
    """
    record = {
        "digest": renderer.digest(),
        "seed": renderer.seed,
        "train": counts["train"],
        "validation": counts["val"],
        "list": len(renderer.words),
        "photos": len(renderer.photos),
        "families": [family.name for family in renderer.families],
    }
    if _is_rendered(folder, record):
        return False
    stored = folder / f".parts-{PART}-{record['digest'][:16]}"
    parts = []
    for split, count in counts.items():
        for start in range(0, count, PART):
            stop = min(start + PART, count)
            path = stored / f"{split}-{start:09d}-{stop:09d}.npz"
            parts.append(Part(split, start, stop, path))
    size = 2 * sum(counts.values()) * HEIGHT * WIDTH  # the parts, and the words
    require_space(size, folder, "rendered words", DataError)
    _render_parts(renderer, parts, workers or _cores(), progress)
    _assemble(parts, folder)
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


def _is_rendered(folder: Path, record: dict) -> bool:
    """Return whether the folder holds the words that a record describes."""
    files = (folder / name for name in (IMAGES, MANIFEST, SHEET))
    try:
        earlier = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return earlier == record and all(path.is_file() for path in files)


def _render_parts(
    renderer: Renderer, parts: list[Part], workers: int, progress: Progress | None
) -> None:
    """Render the parts whose files are absent, in this process or in several."""
    absent = [part for part in parts if not part.path.is_file()]
    total = sum(part.stop - part.start for part in parts)
    done = total - sum(part.stop - part.start for part in absent)

    processes = min(workers, len(absent))
    if absent:
        _LOGGER.info("rendering %d words, processes: %d", total - done, processes)

    def report(part: Part) -> None:
        nonlocal done
        done += part.stop - part.start
        if progress:
            progress("rendering words", done, total)

    if processes <= 1:
        for part in absent:
            _render_part(renderer, part)
            report(part)
        return
    # Spawned, not forked: a fork would copy locks that other threads hold.
    pool = ProcessPoolExecutor(
        processes,
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(renderer,),
    )
    try:
        jobs = {pool.submit(_render_in_worker, part): part for part in absent}
        for job in as_completed(jobs):
            job.result()
            report(jobs[job])
    except BrokenProcessPool:
        raise DataError(
            "a process that renders words was killed, perhaps for its memory; run the "
            "same command again to continue, on fewer cores, such as `taskset -c 0`"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(renderer: Renderer) -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and end with it."""
    global _renderer
    _renderer = renderer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _render_in_worker(part: Part) -> None:
    _render_part(_renderer, part)


def _render_part(renderer: Renderer, part: Part) -> None:
    """Render a part into its file."""
    numbers = range(part.start, part.stop)
    rendered = (renderer.render(part.split, number) for number in numbers)
    crops, words = zip(*rendered, strict=True)
    with atomic_path(part.path) as temporary:
        np.savez(temporary, crops=np.stack(crops), words=np.array(words))


def _assemble(parts: list[Part], folder: Path) -> None:
    """Write the words of all parts as the files of a prepared folder."""
    for name in (RECORD, MANIFEST):  # they describe the previous words
        (folder / name).unlink(missing_ok=True)
    rows, first = [], None
    shape = sum(part.stop - part.start for part in parts), HEIGHT, WIDTH
    with atomic_path(folder / IMAGES) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        for part in parts:
            crops, words = _read_part(part.path)
            array[len(rows) : len(rows) + len(words)] = crops
            rows += (Word(part.split, word) for word in words)
            if first is None:
                first = contact_sheet(crops[:SHOWN], words[:SHOWN])
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
    except DAMAGED:
        path.unlink(missing_ok=True)
        raise DataError(
            f"{path}: a part is damaged and was removed; run the same command again to "
            "render it again"
        ) from None
