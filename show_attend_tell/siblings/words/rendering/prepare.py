"""Render the words of an experiment on several cores, and resume after interruptions.

A part is a file of at most 250 words of a split, in a folder whose name has the digest
of the renderer. The next run reuses finished parts, even for another number of words.
Each word has its own generator, so the number of processes changes no byte.
"""

import functools
import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from data_prep.disk import require_space
from data_prep.preparation import Preparation, Prepared
from show_attend_tell.data.preprocessing import is_photo, load_photo
from show_attend_tell.runtime.errors import DataError, PhotoError
from show_attend_tell.runtime.files import atomic_path, atomic_write
from show_attend_tell.runtime.folders import walk_folders
from show_attend_tell.runtime.machine import usable_cores
from show_attend_tell.runtime.progress import progress_bar
from show_attend_tell.runtime.untrusted import reading
from show_attend_tell.siblings.common.arrays import open_archive
from show_attend_tell.siblings.words.data import (
    HEIGHT,
    IMAGES,
    MANIFEST,
    WIDTH,
    Word,
    write_manifest,
)
from show_attend_tell.siblings.words.rendering.fonts import find_families
from show_attend_tell.siblings.words.rendering.render import Renderer
from show_attend_tell.siblings.words.rendering.word_list import load_words

PART = 250  # most words of a part, rendered in a second
SHEET = "contact_sheet.png"
RECORD = "rendering.json"  # how the words were rendered
_SHOWN = 96  # words on the contact sheet
_MOST_PHOTOS = 300  # each word uses a part of one of them
_SIDE = 400  # longest side of a photo, in pixels

_LOGGER = logging.getLogger(__name__)
_renderer: Renderer  # of a worker process


def prepare_rendered_words(preparation: Preparation) -> Prepared:
    """Render words into the prepared folder, unless it holds the same words.

    Args:
        preparation: the data set; the table [data] names counts, seed, fonts, words
            and photos.

    Raises:
        DataError: a file or font is absent or malformed, the file of words cannot be
            read, the disk is full, or a worker was killed.
    """
    settings = preparation.experiment.data
    folder = preparation.folder
    families = find_families(settings.fonts or None)
    words = load_words(settings.words or None)
    photos = load_grounds(settings.photos)
    renderer = Renderer(families, words, settings.seed, photos)
    counts = {"train": settings.count, "val": settings.held_out}
    rendered = render_words(
        renderer, counts, folder, usable_cores(), preparation.progress
    )
    fonts = sum(map(len, families.values()))
    facts = [
        f"{'rendered' if rendered else 'already rendered'} from {len(words):,} words "
        f"in {len(families)} font families, {fonts} fonts",
        f"look at {folder / SHEET}",
    ]
    words = {split: {"words": count} for split, count in counts.items()}
    return Prepared(folder, words, facts)


def load_grounds(folder: str) -> list[np.ndarray]:
    """Return photos of a folder and its subfolders, each (H, W) uint8.

    At most 300 photos are loaded, evenly spaced among the sorted paths. Photos that
    cannot be decoded are left out.

    Args:
        folder: the folder; empty for no photos.

    Raises:
        DataError: the folder is absent, or has no photo that can be decoded.
    """
    if not folder:
        return []
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of photos")
    paths = sorted(
        Path(entry.path)
        for listing in walk_folders(folder)
        for entry in listing.files
        if is_photo(entry.name)
    )
    step = max(1, len(paths) / _MOST_PHOTOS)
    grounds = []
    for k in range(min(len(paths), _MOST_PHOTOS)):
        try:
            image = load_photo(paths[int(k * step)]).convert("L")
        except PhotoError:
            continue
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.BILINEAR)
        grounds.append(np.asarray(image))
    if not grounds:
        raise DataError(
            f"`photos` must be a folder of photos. Received: {folder}, with "
            f"{len(paths)} files that are named as photos, none of them readable; name "
            "another folder"
        )
    return grounds


class Part(NamedTuple):
    """Words `start` to `stop` of a split, and their file."""

    split: str
    start: int
    stop: int
    path: Path


def render_words(
    renderer: Renderer,
    counts: dict[str, int],
    folder: Path,
    workers: int,
    progress: bool = False,
) -> bool:
    """Render words into a folder: crops, manifest, record and contact sheet.

    Args:
        renderer: renders a word by its number.
        counts: split -> number of words, each with its own generator.
        folder: the folder to write to; made if absent.
        workers: number of processes.
        progress: whether to show a progress bar.

    Returns:
        Whether words were rendered; False if the folder already holds the same words.
    """
    digest = renderer.digest()
    record = {
        "digest": digest,
        "seed": renderer.seed,
        "train": counts["train"],
        "validation": counts["val"],
        "list": len(renderer.words),
        "photos": len(renderer.photos),
        "families": [*renderer.families],
    }
    text = json.dumps(record, indent=2) + "\n"
    files = (folder / name for name in (IMAGES, MANIFEST, SHEET, RECORD))
    if all(path.is_file() for path in files) and (folder / RECORD).read_text() == text:
        return False
    # Other fonts, words or versions have another digest and reuse no part.
    stored = folder / f".parts-{PART}-{digest[:16]}"
    parts = []
    for split, count in counts.items():
        for start in range(0, count, PART):
            stop = min(start + PART, count)
            # Named by its words, so that another number of words cannot reuse a shorter
            # part.
            path = stored / f"{split}-{start:09d}-{stop:09d}.npz"
            parts.append(Part(split, start, stop, path))
    total = sum(counts.values())
    size = 2 * total * HEIGHT * WIDTH  # the parts, and the words
    require_space(size, folder, "rendered words", DataError)
    _render_parts(renderer, parts, workers, progress)
    write_words(folder, total, map(_read_part, parts))
    # Last, because the record vouches for the other files.
    atomic_write(folder / RECORD, text)
    # Also parts that earlier settings have left.
    for unfinished in folder.glob(".parts-*"):
        shutil.rmtree(unfinished)
    return True


def _render_parts(
    renderer: Renderer, parts: list[Part], workers: int, progress: bool
) -> None:
    """Render the parts whose files are absent, in this process or in several."""
    absent = [part for part in parts if not part.path.is_file()]
    total = sum(part.stop - part.start for part in parts)
    done = total - sum(part.stop - part.start for part in absent)
    processes = min(workers, len(absent))
    if absent:
        # A log without a terminal has no bar.
        _LOGGER.info("rendering %d words, processes: %d", total - done, processes)
    shown = progress and bool(absent)
    title = "rendering words"
    with progress_bar(total, "word", title, done=done, shown=shown) as bar:
        for part in _rendered(renderer, absent, processes):
            bar.update(part.stop - part.start)


def _rendered(renderer: Renderer, parts: list[Part], processes: int) -> Iterable[Part]:
    """Render parts; yield each when its file is written."""
    if processes <= 1:
        yield from map(functools.partial(_render_part, renderer), parts)
        return
    # Spawned, not forked: a fork would copy locks that other threads hold.
    spawn = multiprocessing.get_context("spawn")
    # Each worker gets the renderer with its photos once, not with every part.
    pool = ProcessPoolExecutor(processes, spawn, _start_worker, (renderer,))
    try:
        jobs = [pool.submit(_render_in_worker, part) for part in parts]
        for job in as_completed(jobs):
            yield job.result()
    except BrokenProcessPool:
        raise DataError(
            "a process that renders words was killed, perhaps for its memory; run the "
            "same command again to continue, on fewer cores, such as `taskset -c 0`"
        ) from None
    finally:
        # After Ctrl-C too: parts that have begun are finished, which takes a second.
        pool.shutdown(cancel_futures=True)


def _start_worker(renderer: Renderer) -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and end with it."""
    global _renderer
    _renderer = renderer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    # Returns when the parent ends, also if it is killed.
    parent.join()
    # sys.exit would end this thread alone.
    os._exit(1)


def _render_in_worker(part: Part) -> Part:
    return _render_part(_renderer, part)


def _render_part(renderer: Renderer, part: Part) -> Part:
    """Render a part into its file."""
    numbers = range(part.start, part.stop)
    rendered = (renderer.render(part.split, number) for number in numbers)
    crops, words = zip(*rendered, strict=True)
    with atomic_path(part.path) as temporary:
        np.savez(temporary, crops=np.stack(crops), words=np.array(words))
    return part


def _read_part(part: Part) -> tuple[np.ndarray, list[Word]]:
    """Return the crops and words of a part."""
    with (
        reading(part.path, DataError, "delete it, and run the same command again"),
        open_archive(part.path) as stored,
    ):
        crops = stored.read("crops")
        words = stored.read("words").tolist()
    return crops, [Word(part.split, word) for word in words]


def write_words(
    folder: Path, count: int, parts: Iterable[tuple[np.ndarray, list[Word]]]
) -> None:
    """Write the files of a prepared folder: crops, manifest and contact sheet.

    Args:
        folder: the folder.
        count: number of words.
        parts: crops, (n, 32, 100) uint8, and words; the words of a split are adjacent.
    """
    # They describe the previous words. Words of another source have no record: one that
    # stayed would vouch for them as rendered words.
    for name in (MANIFEST, RECORD):
        (folder / name).unlink(missing_ok=True)
    rows = []
    shape = (count, HEIGHT, WIDTH)
    with atomic_path(folder / IMAGES) as temporary:
        # Mapped, because 300,000 crops are a gigabyte.
        array = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        for crops, words in parts:
            array[len(rows) : len(rows) + len(words)] = crops
            rows += words
        array.flush()
        sheet = contact_sheet(array[:_SHOWN], [row.word for row in rows[:_SHOWN]])
        del array
    with atomic_path(folder / SHEET) as temporary:
        sheet.save(temporary)
    write_manifest(folder, rows)


def contact_sheet(crops: np.ndarray, words: list[str]) -> Image.Image:
    """Return a picture of all crops, each above its word."""
    N, high, wide = crops.shape
    columns = 8
    rows = -(-N // columns)
    sheet = Image.new("L", (columns * (wide + 8), rows * (high + 18)), 255)
    draw = ImageDraw.Draw(sheet)
    for number, (crop, word) in enumerate(zip(crops, words, strict=True)):
        y, x = divmod(number, columns)
        x = x * (wide + 8)
        y = y * (high + 18)
        sheet.paste(Image.fromarray(crop), (x, y))
        draw.text((x, y + high + 1), word, fill=0)
    return sheet
