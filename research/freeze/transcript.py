"""Run the commands of the documents in a folder of fixtures, and record the outputs.

A command that needs a data set, a cluster or a trained run is listed with the reason,
and the usage of its verb is recorded once in place of its output. Targets of make are
expanded by ``make -n``, which shows what they would run. A command that several
documents have is run once.
"""

import contextlib
import dataclasses
import difflib
import json
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from research.freeze.checkout import Checkout
from research.freeze.documents import commands_of

# The files that say that make's environment is installed.
_INSTALLED = ("-o", ".venv/installed", "-o", ".venv/installed-for-tests")
# Verbs that need what no fixture has, and why.
NOT_RUN = {
    "prepare": "needs a data set",
    "features": "needs prepared data",
    "train": "needs prepared data",
    "eval": "needs prepared data",
    "compare": "needs evaluated runs",
    "calibrate": "needs prepared data",
    "fit-reranker": "needs prepared data",
    "average": "needs trained models",
    "draw": "needs a trained run",
    "render-words": "needs minutes",  # a verb of earlier revisions
    "download": "needs a network",
    "demo": "serves until it is stopped; curl's commands ask it",
    "tint": "needs the plug-in of an example",
}
NOT_INSTALLED = {"tint"}  # verbs without a usage
NOT_RUN_OPTIONS = {
    "--cluster": "needs a cluster",
    "--reranker": "needs a fitted reranker",
}
NOT_RUN_PROGRAMS = {
    "pip": "installs packages",
    "jupyter": "opens a browser",
    "export": "sets a variable",
    "git": "changes a repository",
    "python": "measures or trains",
}
SLOW = {"export", "demo"}  # verbs that --quick leaves out
LONGEST = 600  # seconds of a command
SERVER_START = 120  # seconds

# Patterns of what differs from run to run, and what stands for it.
VARIES = [
    (r"(?m)^.*\d%\|.*\n", ""),  # bars of progress
    (r"(?m)^(WARNING: All log messages before absl|[IWE]0000 ).*\n", ""),  # TensorFlow
    (r"\b\d+:\d\d(:\d\d)?\b", "<time>"),
    (r"\b\d+(\.\d+)? ?(s|ms|min|minutes?|seconds?)\b", "<time>"),
    (r"\b(?=[a-f]*\d)[0-9a-f]{12,64}\b", "<hex>"),
    (r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", "<version>"),
    (r"(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
]
DECIMALS = re.compile(r"-?\d+\.\d{4,}(e-?\d+)?")
READABLE = {".json", ".jsonl", ".csv", ".txt"}  # files whose content is recorded


@dataclasses.dataclass(frozen=True)
class Entry:
    """A command of a document and its result.

    Attributes:
        document: the document, or "" for the usage of a verb.
        command: as printed in the document.
        status: the exit status, or None if it was not run.
        output: what it printed and wrote, normalised; or why it was not run.
    """

    document: str
    command: str
    status: int | None
    output: str

    def text(self) -> str:
        """Return the entry as lines."""
        head = f"== {self.document} $ {self.command}\n"
        status = "not run" if self.status is None else f"status {self.status}"
        return f"{head}[{status}]\n{self.output.rstrip()}\n"


def record(checkout: Checkout, data: Path, folder: Path, quick: bool) -> list[Entry]:
    """Run the commands of a checkout's documents and write `transcript.json`.

    Args:
        checkout: the checkout.
        data: Flickr8k, of which three photos are fixtures.
        folder: receives the transcript and the folder of fixtures.
        quick: whether to leave out what takes more than a few seconds.
    """
    scratch = folder / "fixtures"
    if scratch.exists():
        shutil.rmtree(scratch)  # left by an interrupted run
    write_fixtures(checkout, data, scratch)
    entries = []
    verbs = []
    results = {}  # text of a command -> its result; documents repeat some
    with Runner(checkout, scratch, quick) as runner:
        for command in commands_of(checkout.path):
            words = split(command.text)
            if words[0].endswith("show-attend-tell"):
                if words[1] not in (*verbs, *NOT_INSTALLED):
                    verbs.append(words[1])
            if command.text not in results:
                results[command.text] = runner.run(words)
            entries.append(
                Entry(command.document, command.text, *results[command.text])
            )
        for verb in ("", *sorted(verbs)):
            words = ["show-attend-tell", *verb.split(), "--help"]
            status, output = runner.run_program(words)
            entries.append(Entry("usage", " ".join(words), status, output))
    content = [dataclasses.asdict(entry) for entry in entries]
    (folder / "transcript.json").write_text(json.dumps(content, indent=1))
    return entries


def read(folder: Path) -> list[Entry]:
    """Read the transcript of :func:`record`."""
    content = json.loads((folder / "transcript.json").read_text())
    return [Entry(**entry) for entry in content]


def differences(before: Sequence[Entry], after: Sequence[Entry]) -> list[str]:
    """Return the lines of a unified diff of two transcripts."""
    old, new = (
        "".join(entry.text() for entry in entries).splitlines()
        for entries in (before, after)
    )
    return list(difflib.unified_diff(old, new, "before", "after", lineterm="", n=2))


def failures(before: Sequence[Entry], after: Sequence[Entry]) -> list[str]:
    """Return a line for each command that fails, unless it failed before too."""
    failed_before = {entry.command for entry in before if entry.status}
    return [
        f"{entry.document}: `{entry.command}` fails with status {entry.status}"
        for entry in after
        if entry.status and entry.command not in failed_before
    ]


def split(text: str) -> list[str]:
    """Return the words of a command, without options that its document calls optional.

    ``MODEL`` stands for any model; the shipped one is taken.
    """
    words = shlex.split(re.sub(r"\[--[^]]*\]", "", text))
    return ["shipped" if word == "MODEL" else word for word in words]


def reason_not_to_run(words: Sequence[str], quick: bool) -> str | None:
    """Return why a command is not run here, or None if it is."""
    program = Path(words[0]).name
    if "=" in words[0]:
        return "measures or trains"  # VARIABLE=value before a program
    if program != "show-attend-tell":
        if quick and (program == "curl" or words[:2] == ["make", "reproduce"]):
            return "takes more than a few seconds"
        return NOT_RUN_PROGRAMS.get(program)
    if words[1] in NOT_RUN:
        return NOT_RUN[words[1]]
    for option, reason in NOT_RUN_OPTIONS.items():
        if option in words:
            return reason
    if quick and words[1] in SLOW:
        return "takes more than a few seconds"
    return None


class Runner:
    """Runs commands among the fixtures; a context manager, which stops its server."""

    def __init__(self, checkout: Checkout, scratch: Path, quick: bool):
        self.checkout = checkout
        self.scratch = scratch.absolute()
        self.quick = quick
        self._stack = contextlib.ExitStack()
        self._server: str | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, words: Sequence[str]) -> tuple[int | None, str]:
        """Run a command of a document; return its status and output, or the reason."""
        reason = reason_not_to_run(words, self.quick)
        if reason is not None:
            return None, reason
        is_ours = Path(words[0]).name == "show-attend-tell"
        if not is_ours and shutil.which(words[0]) is None:
            return None, "needs a program that is not installed"
        if words[0] == "make":
            # The file says that the environment is installed; nothing is run.
            words = ["make", "-n", *_INSTALLED, *words[1:]]
            return self._run(words, self.checkout.path)
        if words[0] == "curl":
            self._server = self._server or self._stack.enter_context(self._serve())
            words = [word.replace("127.0.0.1:8000", self._server) for word in words]
            return self._run(["curl", "-sS", *words[1:]], self.scratch)
        self._provide_models(words)
        return self.run_program(words)

    def run_program(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a program among the fixtures; return its status and all that it wrote."""
        if Path(words[0]).name == "show-attend-tell":
            words = self.checkout.command(*words[1:])
        before = self._files()
        status, output = self._run(words, self.scratch)
        for path, stamp in self._files().items():
            if before.get(path) == stamp:
                continue
            output += f"[wrote {path.relative_to(self.scratch)}]\n"
            if path.suffix in READABLE:
                output += self._normalise(path.read_text("utf-8", "replace"))
        return status, output

    def _run(self, words: Sequence[str], folder: Path) -> tuple[int, str]:
        done = subprocess.run(
            words,
            cwd=folder,
            env=self.checkout.environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST,
        )
        return done.returncode, self._normalise(done.stdout + done.stderr)

    def _normalise(self, text: str) -> str:
        """Replace the paths of the checkout and of the fixtures, and what varies."""
        text = text.replace(str(self.scratch), "<fixtures>")
        text = text.replace(str(self.checkout.path), "<checkout>")
        return normalise(text)

    def _files(self) -> dict[Path, tuple[int, int]]:
        """Return size and time of change of each file among the fixtures."""
        stamps = {}
        for path in sorted(self.scratch.rglob("*")):
            if path.is_file():
                about = path.stat()
                stamps[path] = (about.st_size, about.st_mtime_ns)
        return stamps

    def _provide_models(self, words: Sequence[str]) -> None:
        """Copy a shipped model to each path of a run's model that a command names."""
        name = "read_words" if "read" in words else "everyday_lstm"
        for word in words:
            path = self.scratch / word
            if word.startswith("experiments/runs/") and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.checkout.model_file(name), path)

    @contextlib.contextmanager
    def _serve(self) -> Iterator[str]:
        """Serve the web page and yield its address, HOST:PORT."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = (self.scratch.parent / "server.log").open("w")
        server = subprocess.Popen(
            self.checkout.command("demo", "--port", str(port)),
            cwd=self.scratch,
            env=self.checkout.environment(),
            stdout=log,
            stderr=log,
        )
        try:
            wait_for_port(port, server)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
            log.close()


def wait_for_port(port: int, server: subprocess.Popen) -> None:
    """Return as soon as a server listens.

    Raises:
        RuntimeError: the server ended, or did not listen in time.
    """
    last = time.monotonic() + SERVER_START
    while time.monotonic() < last and server.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.2)
    raise RuntimeError("`show-attend-tell demo` did not start; see server.log")


def normalise(text: str) -> str:
    """Replace times, revisions, versions and ports, and round long decimals."""
    for pattern, replacement in VARIES:
        text = re.sub(pattern, replacement, text)
    return DECIMALS.sub(lambda match: f"{float(match[0]):.4g}", text)


def write_fixtures(checkout: Checkout, data: Path, folder: Path) -> None:
    """Write the files that the documents name: photos, crops of words, a digit."""
    for name in ("docs/images", "holiday", "crops"):
        (folder / name).mkdir(parents=True)
    sheep = checkout.path / "docs/images/sheep.jpg"
    shutil.copyfile(sheep, folder / "docs/images/sheep.jpg")
    shutil.copyfile(sheep, folder / "photo.jpg")
    with Image.open(sheep) as image:
        image.resize((1600, 1600)).save(folder / "me.jpg")  # as large as a phone's
    names = (data / "Flickr_8k.devImages.txt").read_text().split()[:3]
    for name in names:
        shutil.copyfile(data / "Flicker8k_Dataset" / name, folder / "holiday" / name)
    draw_word("sheep", folder / "crop.jpg")
    draw_word("sheep", folder / "crop.png")
    draw_word("grass", folder / "crops/grass.jpg")
    draw_word("7", folder / "seven.png", size=(28, 28), ground="black", ink="white")


def draw_word(
    word: str,
    path: Path,
    size: tuple[int, int] = (120, 40),
    ground: str = "white",
    ink: str = "black",
) -> None:
    """Draw a word in the middle of a picture."""
    image = Image.new("RGB", size, ground)
    font = ImageFont.load_default(size=0.7 * size[1])
    middle = (size[0] / 2, size[1] / 2)
    ImageDraw.Draw(image).text(middle, word, fill=ink, font=font, anchor="mm")
    image.save(path)
