"""Call the command line in processes that may be killed or limited.

They are forked from one that has imported TensorFlow, so that each starts in
milliseconds.
"""

import contextlib
import ctypes
import io
import itertools
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from command_line import Done, as_in_a_shell, signature_of

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["h5py", "keras", "PIL.Image", "tensorflow"])
# Audit events after which a kill finds a file half-written, not named or not removed.
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")


@dataclass(frozen=True)
class Limits:
    """What a process is given.

    Attributes:
        memory: bytes of address space beyond those taken at its start.
        file_size: bytes of the largest file that it may write.
        kill_at: number of the change in the file system at which it kills itself.
        count_to: file that receives the number of such changes.
        no_rights: whether the modes of files hold for it, even if it runs as root.
        clock_back: whether every reading of the time is 10 seconds before the last.
    """

    memory: int | None = None
    file_size: int | None = None
    kill_at: int | None = None
    count_to: str | None = None
    no_rights: bool = False
    clock_back: bool = False


def _give_up_rights() -> None:
    """Drop all capabilities of this thread and of those that it starts."""
    version_and_thread = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3
    none = (ctypes.c_uint32 * 6)()
    failed = ctypes.CDLL(None).capset(version_and_thread, none)
    assert not failed, "capset failed"


def _turn_clock_back() -> None:
    now, readings = time.time, itertools.count()
    time.time = lambda: now() - 10 * next(readings)


def _limit(limits: Limits) -> None:
    if limits.no_rights:
        _give_up_rights()
    if limits.clock_back:
        _turn_clock_back()
    if limits.memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    if limits.file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = limits.file_size, resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, size)


def _count_changes(limits: Limits, folder: str) -> list[int]:
    changes = [0]

    def hear(event: str, arguments: tuple) -> None:
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT
            )
            if not writes or not isinstance(arguments[0], str | bytes | os.PathLike):
                return
        elif event not in _CHANGES:
            return
        if folder in os.path.abspath(os.fsdecode(arguments[0])):
            changes[0] += 1
            if changes[0] == limits.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)
    return changes


def _work(arguments: list[str], folder: str, limits: Limits, replies) -> None:
    """Be the process: run the command line and send how it ended.

    Its streams are kept in memory, so that limits hold for its files alone.
    """
    from show_attend_tell.cli.main import main  # before signals are sent

    out, err, changes = io.StringIO(), io.StringIO(), None
    replies.send("started")
    if limits.kill_at is not None or limits.count_to is not None:
        changes = _count_changes(limits, folder)
    code, signature = 0, ""
    try:
        with as_in_a_shell(out, err):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _limit(limits)
            main(arguments)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0
    except BaseException as error:
        code, signature = 70, signature_of(error)
        traceback.print_exc(file=err)
    if limits.count_to is not None:
        Path(limits.count_to).write_text(str(changes[0]))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replies.send((out.getvalue(), err.getvalue(), signature, peak))
    os._exit(code)


class Child:
    """A running call of the command line; see :func:`run` for the arguments."""

    def __init__(self, arguments: list[str], folder: Path, limits: Limits):
        self._replies, theirs = _FORKS.Pipe(duplex=False)
        words = [str(argument) for argument in arguments]
        self.process = _FORKS.Process(
            target=_work, args=(words, str(folder), limits, theirs)
        )
        self.process.start()
        theirs.close()

    def signal(self, number: int, moment: float) -> None:
        """Send a signal some seconds after the start, if the process still runs."""
        assert self._replies.poll(60), "the process did not start"
        self._replies.recv()
        self.process.join(moment)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self, seconds: float) -> Done:
        """Wait for the end; a process that takes longer is killed and has hung."""
        done, until = Done(), time.monotonic() + seconds
        with contextlib.suppress(EOFError):  # killed before it could send
            while self._replies.poll(max(0.0, until - time.monotonic())):
                if (reply := self._replies.recv()) != "started":
                    done.out, done.err, done.signature, done.peak = reply
                    break
        self.process.join(max(1.0, until - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            done.signature = f"hang: more than {seconds} s"
        done.code = self.process.exitcode
        self.process.close()
        self._replies.close()
        return done


def run(
    arguments: list[str],
    folder: Path,
    seconds: float = 120,
    **limits: int | str | bool | None,
) -> Done:
    """Run ``show-attend-tell ARGUMENTS`` in a process of its own.

    Args:
        arguments: of the command line.
        folder: changes of files below it are counted.
        seconds: time after which it counts as hanging.
        limits: see :class:`Limits`.
    """
    return Child(arguments, folder, Limits(**limits)).end(seconds)


def nest(folder: Path, levels: int) -> None:
    """Make folders nested so deep that their path is too long for one call."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=place)
        deeper = os.open("deep", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(place)


def remove(folder: Path) -> None:
    """Remove a folder, however deep; ``shutil.rmtree`` recurses too often for it."""
    subprocess.run(["/bin/rm", "-rf", str(folder)], check=True)


def special_entries(
    name: str, good: Path
) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield descriptions of entries that are no file, and functions that make them.

    Args:
        name: name of the entry in the folder that the functions take.
        good: a file.
    """
    yield f"a FIFO named {name}", lambda folder: os.mkfifo(folder / name)
    yield f"a folder named {name}", lambda folder: (folder / name).mkdir()
    socket = stat.S_IFSOCK | 0o600
    yield f"a socket named {name}", lambda folder: os.mknod(folder / name, socket)
    targets = {
        "itself": name,
        "nothing": "absent.jpg",
        "a name of 300 letters": "x" * 300,
        "a path through a file": good / "x.jpg",
        "/dev/zero": "/dev/zero",
        "/dev/tty": "/dev/tty",
        "/proc/self/mem": "/proc/self/mem",
        "the folder above": "..",
        "the folder": ".",
    }
    for what, target in targets.items():

        def link(folder, target=target):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)

        yield f"{name} linked to {what}", link

    def link_to_fifo(folder):
        os.mkfifo(folder.parent / "fifo")
        (folder / name).symlink_to(folder.parent / "fifo")

    yield f"a link to a FIFO named {name}", link_to_fifo
