"""Measure new processes: a caption, ``--help``, the page, a folder of photos."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import turns
from benchmarks.row import Bar, Row
from benchmarks.turns import Contender, ContenderError, Work
from show_attend_tell.cli.main import cli

_SECONDS = 60
_ROUNDS = 6
_PHOTOS = 200  # of the folder
# What a caption of a photo needs at least: two imports and VGG16's convolutions.
_CONVOLUTIONS = """
import numpy as np, PIL.Image
from show_attend_tell.reference import encoder
x, width = np.ones((224, 224, 3), np.float32), 3
for name in encoder.layers_until("VGG16", "block5_conv3"):
    if name.endswith("pool"):
        x = encoder.pool(x)
        continue
    channels = encoder.WIDTHS[int(name[5]) - 1]
    kernel = np.full((3, 3, width, channels), 1e-3, np.float32)
    x, width = encoder.convolve(x, kernel, np.zeros(channels, np.float32)), channels
"""


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


def helps(module: str) -> Work:
    """Prepare runs of ``--help`` of every verb, each in a process of its own."""
    works = [process(["-m", module, verb, "--help"]) for verb in cli.commands]
    return Work(lambda: sum(work.run() for work in works), units=len(works))


def page(photo: str) -> Work:
    """Prepare starts of the page; each ends with the answer to a photo."""

    def run() -> float:
        start = time.perf_counter()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "show_attend_tell", "demo", "--port"]
        server = subprocess.Popen(
            [*command, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            server.stdout.readline()  # the address
            _post(f"http://127.0.0.1:{port}/caption", Path(photo).read_bytes())
            return time.perf_counter() - start
        finally:
            server.terminate()
            server.wait()

    return Work(run)


def _post(address: str, photo: bytes) -> None:
    """Send a photo as a form of one field; retry until the server listens."""
    head = b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.png"\r\n'
    body = head + b"Content-Type: image/png\r\n\r\n" + photo + b"\r\n--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for _ in range(500):
        try:
            urllib.request.urlopen(urllib.request.Request(address, body, kind)).close()
            return
        except urllib.error.HTTPError as error:
            raise ContenderError(f"{address}: {error}") from None
        except OSError:
            time.sleep(0.01)
    raise ContenderError(f"{address}: no answer")


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure the verb ``caption``, all verbs' help, and the page."""
    seconds, photos = (1, 2) if quick else (_SECONDS, _PHOTOS)
    imports = Contender(process, {"arguments": ["-c", "import numpy, PIL.Image"]})
    with tempfile.TemporaryDirectory() as folder:
        photo = _write_photos(Path(folder), photos)
        verb = ["-m", "show_attend_tell", "caption"]
        cases = [
            (
                ("cold", "first caption of one photo, packaged model, new process"),
                Contender(process, {"arguments": [*verb, photo]}),
                Contender(process, {"arguments": ["-c", _CONVOLUTIONS]}),
                Bar("ratio", most=2),
                "the baseline imports NumPy and Pillow and computes the convolutions",
            ),
            (
                ("help", "--help of a verb, new process"),
                Contender(helps, {"module": "show_attend_tell"}),
                imports,
                Bar("ours", most=0.25),
                f"mean of {len(cli.commands)} verbs; the baseline is two imports",
            ),
            (
                ("page", "from the command `demo` to the first caption"),
                Contender(page, {"photo": photo}),
                imports,
                Bar("ours", most=1.5),
                "the baseline imports NumPy and Pillow",
            ),
            (
                ("folder", f"captions of {photos} photos, by NumPy, new process"),
                _folder(verb, folder, "numpy"),
                _folder(verb, folder, "keras"),
                Bar("ratio", most=1),
                "the baseline is --engine keras",
            ),
        ]
        found = []
        for (work, what), ours, baseline, bar, note in cases:
            contenders = {"ours": ours, "baseline": baseline}
            rounds = 1 if work == "folder" else _ROUNDS
            times = turns.compare(contenders, seconds, rounds)
            fields = times.fields("ours", "baseline")
            fields["ratio"] = 1 / fields["ratio"]
            shared = {"unit": "s", "ratio_is": "ours / baseline", "machine": machine}
            found.append(Row(work, what, bar=bar, note=note, **shared, **fields))
    return found


def _folder(verb: list[str], folder: str, engine: str) -> Contender:
    return Contender(process, {"arguments": [*verb, folder, "--engine", engine]})


def _write_photos(folder: Path, count: int) -> str:
    """Write photos of 640 x 480 pixels; return the path of one."""
    rng = np.random.default_rng(3)
    for number in range(count):
        pixels = rng.integers(0, 256, (9, 12, 3), np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(folder / f"{number}.png")
    return str(folder / "0.png")
