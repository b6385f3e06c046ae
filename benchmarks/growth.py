"""Measure how cost grows with batch, words, locations, vocabulary, photos and workers.

One size is varied at a time, the others are those of the bars.
"""

import dataclasses
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import click

from benchmarks import beam_search, extraction, memory, table, train_step, turns
from benchmarks.sizes import FULL, TINY, Sizes, chosen
from benchmarks.turns import Work

TRAINING = {
    "batch": (16, 64, 256),
    "words": (6, 12, 24, 48),
    "locations": (49, 196, 784),
    "vocabulary": (1000, 2600, 10_000),
}
QUICK_TRAINING = {"batch": (2, 4)}
DECODING = {"beam": (1, 3, 5, 10), "batch": (1, 16, 64, 256)}
QUICK_DECODING = {"beam": (1, 2)}
_DECODED = 256  # photos
_REPEATS = 3


def median_seconds(work: Work, repeats: int = _REPEATS) -> float:
    """Return the median seconds per unit of some bursts, after a warm-up."""
    work.run()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        own = work.run()
        seconds = time.perf_counter() - start
        taken.append((seconds if own is None else own) / work.units)
    return sorted(taken)[repeats // 2]


def _varied(axes: dict[str, Iterable[int]]) -> list[tuple[str, int]]:
    return [(name, value) for name, values in axes.items() for value in values]


def training(sizes: Sizes, axes: dict[str, Iterable[int]]) -> dict:
    """Measure seconds a step for each value of each axis."""
    rows = []
    for name, value in _varied(axes):
        point = dataclasses.replace(sizes, **{name: value})
        step = median_seconds(train_step.ours(point, "float32", steps=2))
        rows.append(
            {
                "varied": name,
                "value": value,
                "step_seconds": step,
                "caption_seconds": step / point.batch,
                "word_seconds": step / point.batch / point.words,
            }
        )
    return {"rows": rows}


def decoding(sizes: Sizes, photos: int, axes: dict[str, Iterable[int]]) -> dict:
    """Measure seconds a photo for each width and each batch."""
    rows = []
    for name, value in _varied(axes):
        work = beam_search.ours(sizes, photos, **{name: value})
        seconds = median_seconds(work)
        rows.append({"varied": name, "value": value, "photo_seconds": seconds})
    return {"rows": rows}


def extracting(work: str, photos: int, side: int, cores: int, precision: str) -> dict:
    """Measure one extraction on some processors, with as many decoding workers."""
    seconds = median_seconds(
        extraction.ours(work, photos, precision, side, cores), repeats=1
    )
    return {
        "photos": photos,
        "cores": cores,
        "seconds": seconds * photos,
        "photo_seconds": seconds,
    }


def _extraction_rows(quick: bool, precision: str) -> list[dict]:
    most = turns.cores()
    points = [(photos, most) for photos in ((2, 4) if quick else (32, 64, 128, 256))]
    points += [(4 if quick else 64, cores) for cores in range(1, most)]
    rows = []
    for photos, cores in points:
        with tempfile.TemporaryDirectory() as work:
            extraction.write_photos(work, photos)
            rows.append(
                turns.run_in_process(
                    extracting,
                    work=work,
                    photos=photos,
                    side=32 if quick else extraction.SIDE,
                    cores=cores,
                    precision=precision,
                )
            )
    return rows


def _memory_rows(quick: bool) -> list[dict]:
    sizes = TINY if quick else FULL
    rows = []
    for photos in (40, 80) if quick else (1000, 10_000, 50_000):
        with tempfile.TemporaryDirectory() as work:
            vocabulary = 50 if quick else memory.VOCABULARY
            size = memory.prepare(work, photos, vocabulary, sizes)
            found = turns.run_in_process(
                memory.train,
                work=work,
                started=time.monotonic(),
                steps=2,
                changed=memory.changes(sizes, quick),
            )
        rows.append(
            {
                "photos": photos,
                "file_bytes": size,
                "file_bytes_per_photo": size / photos,
                "peak_bytes": found["peak"],
                "first_step_seconds": found["first"],
            }
        )
    return rows


def _show(title: str, rows: list[dict]) -> None:
    lines = [
        [v if isinstance(v, str) else table.number(v) for v in row.values()]
        for row in rows
    ]
    click.echo(f"\n{title}\n\n{table.markdown(list(rows[0]), lines)}", nl=True)


def run(machine: dict, quick: bool, path: Path) -> None:
    """Measure everything, print a table of each part and write them as JSON."""
    sizes = chosen(quick)
    half = machine["instruction_sets"]["AMX-BF16"]
    parts = {
        "training": lambda: turns.run_in_process(
            training, sizes=sizes, axes=QUICK_TRAINING if quick else TRAINING
        )["rows"],
        "decoding": lambda: turns.run_in_process(
            decoding,
            sizes=sizes,
            photos=4 if quick else _DECODED,
            axes=QUICK_DECODING if quick else DECODING,
        )["rows"],
        "extraction": lambda: _extraction_rows(
            quick, "bfloat16" if half else "float32"
        ),
        "memory": lambda: _memory_rows(quick),
    }
    found = {}
    for name, measure in parts.items():
        found[name] = measure()
        _show(f"Growth of {name}", found[name])
    values = [
        {"work": name, **row, "machine": machine}
        for name, rows in found.items()
        for row in rows
    ]
    table.write_results(path, values)
    click.echo(f"\n{path}")
