"""Measure the first caption in a new process, compared with importing TensorFlow."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import turns
from benchmarks.row import Bar, Row
from benchmarks.turns import Contender, ContenderError, Work

_OWN = 2.0  # seconds for reading the model and for the caption, in addition to
_IMPORTS = 1.5  # times the import of TensorFlow
_SECONDS = 60


def process(arguments: list[str]) -> Work:
    """Prepare runs of Python in a process of its own."""

    def run() -> float:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ContenderError(done.stderr.strip())
        return time.perf_counter() - start

    return Work(run)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure the verb ``caption`` on one photo with the shipped model."""
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.png"
        pixels = np.random.default_rng(3).integers(0, 256, (9, 12, 3), np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(photo)
        verb = ["-m", "show_attend_tell", "caption", str(photo)]
        contenders = {
            "ours": Contender(process, {"arguments": verb}),
            "import": Contender(process, {"arguments": ["-c", "import tensorflow"]}),
        }
        times = turns.compare(contenders, 1 if quick else _SECONDS, rounds=6)
    fields = times.fields("ours", "import")
    imported = fields["baseline"]
    fields["ratio"] = 1 / fields["ratio"]
    return [
        Row(
            work="cold",
            what="first caption of one photo, shipped model, new process",
            unit="s",
            machine=machine,
            **fields,
            ratio_is="ours / baseline",
            bar=Bar("ours", most=round(_IMPORTS * imported + _OWN, 1)),
            note=f"the bar is {_IMPORTS:g} times the import and {_OWN:g} s",
        )
    ]
