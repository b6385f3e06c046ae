"""Run pip with one moving line: seconds, packages found, what pip does now.

python .ci/install.py ARGUMENTS runs ``python -m pip install ARGUMENTS``. Without a
terminal a line is printed every half minute. If pip fails, its last lines are printed.
"""

import re
import subprocess
import sys
import threading
import time
from collections import deque

_SHOWN_AT_FAILURE = 25  # lines of pip's output
_FOUND = re.compile(r"\s*(?:Collecting|Obtaining) (\S+)")
_CACHED = re.compile(r"\s*Using cached (\S+)")
_DOWNLOADING = re.compile(r"\s*Downloading (\S+) \(([^)]+)\)")
_INSTALLING = re.compile(r"Installing collected packages: (.*)")


class Progress:
    """The state of an installation, read from pip's output line by line."""

    def __init__(self):
        self.packages: set[str] = set()
        self.doing = "starting pip"
        self.last: deque[str] = deque(maxlen=_SHOWN_AT_FAILURE)

    def read(self, line: str) -> None:
        """Update the state by one line of pip's output."""
        self.last.append(line.rstrip())
        if match := _DOWNLOADING.match(line):
            name = self._add_file(match[1])
            self.doing = f"downloading {name}, {match[2]}"
        elif match := _INSTALLING.match(line):
            count = len(match[1].split(","))
            self.doing = f"unpacking {count} packages, the longest part"
        elif match := _CACHED.match(line):
            self._add_file(match[1])
        elif match := _FOUND.match(line):
            name = re.split(r"[<>=!~;\[]", match[1])[0]
            self._add(name)
            self.doing = f"resolving {name}"

    def _add_file(self, file: str) -> str:
        """Count the package of a wheel, or of its metadata; return its name."""
        name = file.rpartition("/")[2].split("-")[0]
        self._add(name)
        return name

    def _add(self, name: str) -> None:
        self.packages.add(re.sub(r"[-_.]+", "-", name).lower())

    def line(self, seconds: float) -> str:
        """Return the moving line."""
        return f"{seconds:4.0f} s, {len(self.packages)} packages, {self.doing}"


def main(arguments: list[str]) -> int:
    """Install; return pip's exit status."""
    command = [sys.executable, "-m", "pip", "install", *arguments]
    command += ["--disable-pip-version-check", "--progress-bar", "off"]
    pip = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    progress, start = Progress(), time.monotonic()
    reader = threading.Thread(target=lambda: [progress.read(x) for x in pip.stdout])
    reader.start()
    moving = sys.stdout.isatty()
    while reader.is_alive():
        reader.join(0.5 if moving else 30)
        line = progress.line(time.monotonic() - start)
        print(f"\r{line[:79]:79}" if moving else line, end="" if moving else "\n")
        sys.stdout.flush()
    status = pip.wait()
    if moving:
        print()
    if status:
        print("\n".join(progress.last), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
