"""Measure photos that are captioned one at a time against a list of them.

The server, the page's tab of folders and loops in programs caption one photo at a time.
Such a caption computes products that are too small for the threads of BLAS, which wait
in loops: beside other programs that took up to fifteen times as long as a list.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image

import show_attend_tell as sat
from benchmarks import turns
from benchmarks.row import Bar, Row
from benchmarks.turns import Contender, Work

PHOTOS = 4
_SECONDS = 90
_ROUNDS = 12
_START = 0.3  # seconds until the busy processes compute


def photos() -> list[Image.Image]:
    """Return photos with colours that differ smoothly."""
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (PHOTOS, 9, 12, 3), np.uint8)
    return [Image.fromarray(x).resize((640, 480)) for x in pixels]


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep a number of processors busy with other processes."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(_START if processes else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def captions(together: bool, busy: int) -> Work:
    """Prepare bursts that caption all photos with NumPy, as a list or in a loop.

    Every burst has a pipeline of its own, as a program that captions a few photos has;
    its seconds are those of the captions.
    """
    pictures = photos()

    def run() -> float:
        pipeline = sat.load(engine="numpy")
        with busy_processes(busy):
            start = time.perf_counter()
            if together:
                list(pipeline.caption(pictures))
            else:
                for picture in pictures:
                    pipeline.caption(picture)
            return time.perf_counter() - start

    return Work(run)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure on the machine as it is, and beside a busy process on each core."""
    seconds = 1 if quick else _SECONDS
    found = []
    for busy, bar in ((0, 1.3), (turns.cores(), 1.5)):
        contenders = {
            "ours": Contender(captions, {"together": False, "busy": busy}),
            "baseline": Contender(captions, {"together": True, "busy": busy}),
        }
        times = turns.compare(contenders, seconds, _ROUNDS)
        fields = times.fields("ours", "baseline")
        fields["ratio"] = 1 / fields["ratio"]
        what = f"{PHOTOS} photos one at a time, against a list of them"
        found.append(
            Row(
                "loop",
                f"the same beside {busy} busy processes" if busy else what,
                unit="s",
                ratio_is="ours / baseline",
                machine=machine,
                bar=Bar("ratio", most=bar),
                note="captions by NumPy; the models are loaded",
                **fields,
            )
        )
    return found
