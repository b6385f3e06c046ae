"""Call the command line in this process and judge how it ended."""

import contextlib
import io
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

_PACKAGES = ("show_attend_tell", "data_prep")
_LONGEST = 2000  # characters of a refusal
_FRAME = rf'File "[^"]*/((?:{"|".join(_PACKAGES)})/[^"]*)\.py", line \d+, in (\S+)'
_PROGRESS = re.compile(r"\d+%\|")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit event -> positions of the paths that it changes. Paths relative to an open
# folder, which only removal of folders uses, are not looked at.
_CHANGES = {
    **dict.fromkeys(("os.mkdir", "os.rmdir", "os.remove", "os.truncate"), (0,)),
    **dict.fromkeys(("os.chmod", "os.chown", "shutil.rmtree"), (0,)),
    **dict.fromkeys(("os.rename", "shutil.move"), (0, 1)),
    **dict.fromkeys(("os.link", "os.symlink"), (1,)),
}
_PROGRAMS = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")


class HangError(BaseException):
    """A call took longer than it may."""


@dataclass
class Done:
    """How a call of the command line ended.

    Attributes:
        code: exit status; None after an exception other than SystemExit.
        out: standard output.
        err: standard error.
        signature: place and type of that exception.
        strays: files changed outside the allowed folder, and programs started.
        peak: bytes of memory of a process of its own.
    """

    code: int | None = None
    out: str = ""
    err: str = ""
    signature: str = ""
    strays: list[str] = field(default_factory=list)
    peak: int = 0


class _Watch:
    """Record writes outside a folder by the interpreter's audit events."""

    def __init__(self):
        self.allowed: str | None = None
        self.strays: list[str] = []
        self.installed = False

    def start(self, allowed: Path) -> None:
        if not self.installed:
            sys.addaudithook(self._hear)
            self.installed = True
        self.strays, self.allowed = [], os.path.realpath(allowed)

    def stop(self) -> list[str]:
        self.allowed = None
        return self.strays

    def _hear(self, event: str, arguments: tuple) -> None:
        allowed = self.allowed
        if allowed is None:
            return
        if event == "open":
            if arguments[2] & _WRITES:
                self._check(event, arguments[0], allowed)
        elif event in _CHANGES:
            relative = event != "os.truncate" and arguments[-1] not in (-1, None)
            for position in _CHANGES[event] if not relative else ():
                self._check(event, arguments[position], allowed)
        elif event in _PROGRAMS and "git" not in str(arguments[0]):
            self.strays.append(f"{event} {arguments[0]!r}")

    def _check(self, event: str, path: object, allowed: str) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a file descriptor
        with contextlib.suppress(ValueError):  # a NUL: nothing is opened
            real = os.path.realpath(os.fsdecode(path))
            folders = allowed, tempfile.gettempdir()
            inside = any(Path(real).is_relative_to(folder) for folder in folders)
            if not (inside or real == os.devnull or "__pycache__" in real):
                self.strays.append(f"{event} {real}")


watch = _Watch()


def signature_of(error: BaseException) -> str:
    """Return type, message and the innermost place in our packages."""
    place = "elsewhere"
    for frame in traceback.extract_tb(error.__traceback__):
        for package in _PACKAGES:
            if (at := frame.filename.rfind(f"/{package}/")) >= 0:
                module = frame.filename[at + 1 : -3].replace("/", ".")
                place = f"{module}.{frame.name}"
    return f"{place}: {type(error).__name__}: {general(str(error))}"


def general(text: str) -> str:
    """Shorten a message and take out numbers, quotations and paths."""
    text = re.sub(r"/\S+", "PATH", " ".join(text.split()))
    return re.sub(r"0x[0-9a-f]+|\d+|b?'[^']*'", "#", text)[:90]


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise HangError in the body after some seconds."""

    def stop(*_):
        raise HangError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def as_in_a_shell(out, err):
    """Give the body the streams, logging and warnings of a process of its own."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.resetwarnings()
            for ignored in (DeprecationWarning, PendingDeprecationWarning):
                warnings.simplefilter("ignore", ignored)
            for ignored in (ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", ignored)
            yield
    finally:
        root.handlers = handlers


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", "backslashreplace")


def run(arguments: list[str], allowed: Path, seconds: float = 60) -> Done:
    """Run ``show-attend-tell ARGUMENTS`` in this process.

    Args:
        arguments: of the command line.
        allowed: folder that it may write in.
        seconds: time after which it counts as hanging.
    """
    from show_attend_tell.cli.main import main

    done, out, err = Done(), _stream("strict"), _stream("backslashreplace")
    watch.start(allowed)
    try:
        with as_in_a_shell(out, err), time_limit(seconds):
            main([str(argument) for argument in arguments])
            done.code = 0
    except SystemExit as ending:
        done.code = ending.code if isinstance(ending.code, int) else 0
    except HangError as error:
        done.signature = "hang in " + signature_of(error)
    except BaseException as error:  # whatever a user would see as a traceback
        done.signature = signature_of(error)
    finally:
        done.strays = watch.stop()
    done.out, done.err = _text(out), _text(err)
    return done


def printed_traceback(err: str) -> str:
    """Return the innermost place in our packages, and the error, of a traceback."""
    text = err[err.rindex("Traceback (most recent call last)") :]
    frames = re.findall(_FRAME, text)
    place = ".".join(frames[-1]).replace("/", ".") if frames else "elsewhere"
    errors = [line for line in text.split("\n")[1:] if line[:1].strip()]
    return f"{place}: {general(errors[0]) if errors else ''}"


def refusal_lines(err: str) -> list[str]:
    """Return the lines of standard error without progress bars."""
    lines = (line.rpartition("\r")[2] for line in err.split("\n"))
    return [line for line in lines if line.strip() and not _PROGRESS.search(line)]


def judge(done: Done, handled: str = "", refused: str = "") -> tuple[str, str]:
    """Return ``refused``, ``handled`` or ``failed``, and the signature of a failure.

    Args:
        done: how the call ended.
        handled: signature of a success, where the call must be refused.
        refused: signature of a refusal, where the call must succeed.
    """
    outcome, signature = _judge(done)
    if outcome == "handled" and handled:
        return "failed", handled
    if outcome == "refused" and refused:
        return "failed", f"{refused}: {done.err.strip()[-150:]}"
    return outcome, signature


def _judge(done: Done) -> tuple[str, str]:
    if done.signature:
        return "failed", done.signature
    if done.strays:
        event, _, path = done.strays[0].partition(" ")
        return "failed", f"outside of its folder: {event} {os.path.basename(path)}"
    if "Traceback (most recent call last)" in done.err:
        return "failed", "traceback printed: " + printed_traceback(done.err)
    if done.code == 0:
        return "handled", ""
    lines = refusal_lines(done.err)
    refusals = [line for line in lines if line.lower().startswith("error: ")]
    if len(refusals) != 1 or lines[-1] != refusals[0]:
        shown = general(" | ".join(lines[-2:]))
        return "failed", f"exit {done.code}, {len(refusals)} lines of refusal: {shown}"
    if len(refusals[0]) > _LONGEST:
        shown = general(refusals[0])
        return "failed", f"a refusal of more than {_LONGEST} characters: {shown}"
    if done.code not in (1, 2):
        return "failed", f"exit {done.code}: {general(refusals[0])}"
    return "refused", ""
