"""A supervised Java program: any locale, a deadline on every answer, always reaped."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pycocoevalcap

from show_attend_tell.runtime.errors import JavaError

# Numbers with a decimal point and text in UTF-8, whatever the user's locale.
_FLAGS = (
    "-Duser.language=en",
    "-Duser.country=US",
    "-Duser.language.format=en",
    "-Duser.country.format=US",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
)
_LINE_LIMIT = 1 << 16  # bytes; METEOR's longest answer has about 200
_MESSAGE_LIMIT = 200  # characters of a line of standard error that are quoted
_PARTING_SECONDS = 2  # between closing its output and ending


def jar(*parts: str) -> str:
    """Return the path of a file that pycocoevalcap ships.

    Args:
        parts: its folders and name inside the package.

    Raises:
        JavaError: the installation lacks it.
    """
    path = Path(pycocoevalcap.__path__[0], *parts)
    if not path.is_file():
        raise JavaError(f"{path}: missing; reinstall pycocoevalcap")
    return str(path)


class JavaProcess:
    """Context manager around one Java program.

    Args:
        name: what to call the program in errors.
        arguments: of ``java``, after the flags that fix locale and encoding.
        timeout: seconds within which each answer must come; the program and every
            process it started are killed when one does not.
        text: the whole standard input; without it, :meth:`ask` writes line by line.

    Raises:
        JavaError: there is no Java, or it cannot be started.
    """

    def __init__(
        self, name: str, arguments: list[str], timeout: float, text: str | None = None
    ):
        self.name, self.timeout = name, timeout
        self._arguments, self._text = arguments, text
        self._expired = False

    def __enter__(self) -> "JavaProcess":
        java = shutil.which("java")
        if java is None:
            raise JavaError(
                f"{self.name} needs Java: no `java` on the PATH, install it"
            )
        with contextlib.ExitStack() as stack:
            # A file, not a pipe: nobody has to drain it.
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            source = subprocess.PIPE
            if self._text is not None:
                source = stack.enter_context(tempfile.TemporaryFile())
                source.write(self._text.encode("utf-8", "replace"))
                source.seek(0)
            try:
                self._process = subprocess.Popen(
                    [java, *_FLAGS, *self._arguments],
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    env=_environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise JavaError(f"{self.name}: {java} cannot be run: {error}") from None
            self._files = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # unsent bytes to a dead process
                self._process.stdin.close()
        self._process.stdout.close()
        self._files.close()

    def ask(self, question: str) -> str:
        """Write one line and return the next line of the answer.

        Raises:
            JavaError: the program died, or did not answer in time.
        """
        with self._deadline(), contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(question.encode("utf-8", "replace") + b"\n")
            self._process.stdin.flush()
        return self.read_line()

    def read_line(self) -> str:
        """Return the next line of the answer.

        Raises:
            JavaError: the program died, or did not answer in time.
        """
        with self._deadline():
            line = self._process.stdout.readline(_LINE_LIMIT)
        if not line.endswith(b"\n"):
            if len(line) == _LINE_LIMIT:
                raise JavaError(f"{self.name}: java printed a line without end")
            self._fail()
        return line.decode("utf-8", "replace").strip()

    def read_all(self, limit: int) -> str:
        """Return everything the program prints until it ends by itself.

        Args:
            limit: bytes that a sane answer cannot exceed.

        Raises:
            JavaError: it failed, printed too much, or did not end in time.
        """
        with self._deadline():
            output = self._process.stdout.read(limit + 1)
            if len(output) > limit:
                raise JavaError(f"{self.name}: java printed more than {limit} bytes")
            status = self._process.wait()
        if status != 0:
            self._fail()
        return output.decode("utf-8", "replace")

    def messages(self) -> list[str]:
        """Return the lines of standard error that are the program's own."""
        self._stderr.seek(0)
        text = self._stderr.read(_LINE_LIMIT).decode("utf-8", "replace")
        lines = [line.strip()[:_MESSAGE_LIMIT] for line in text.splitlines()]
        return [line for line in lines if line and not line.startswith("Picked up ")]

    def _fail(self) -> None:
        """Raise what is known of the program's end."""
        try:
            end = f"stopped with status {self._process.wait(_PARTING_SECONDS)}"
        except subprocess.TimeoutExpired:
            end = "closed its output"
        lines = self.messages()
        telling = [line for line in lines if "Exception" in line or "Error" in line]
        reason = (telling[:1] or lines[-1:] or ["it gave no reason"])[0]
        raise JavaError(f"{self.name}: java {end}: {reason}")

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        """Kill the program unless the block ends in time, which unblocks the block."""
        timer = threading.Timer(self.timeout, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        if self._expired:
            raise JavaError(f"{self.name}: java gave no answer in {self.timeout:g} s")

    def _expire(self) -> None:
        self._expired = True
        self._kill()

    def _kill(self) -> None:
        """Kill the program and, where there are groups, all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is not None:
                return
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()


def java_version(timeout: float) -> str:
    """Return the first line of ``java -version``, or ``unknown`` when that fails."""
    try:
        with JavaProcess("java -version", ["-version"], timeout, text="") as process:
            process.read_all(_LINE_LIMIT)
            return (process.messages() or ["unknown"])[0]
    except JavaError:
        return "unknown"


def _environment() -> dict[str, str]:
    """Return our environment; ``_JAVA_OPTIONS`` would overrule the command line."""
    environment = dict(os.environ)
    if "_JAVA_OPTIONS" in environment:
        environment["_JAVA_OPTIONS"] += " " + " ".join(_FLAGS)
    return environment
