"""Measure contenders in separate processes, in turn.

TensorFlow and PyTorch in one process would share threads and memory and disturb each
other. So each contender prepares in its own process and then sleeps; in turn each runs
one burst of work. Other load on the machine slows both contenders of a round alike, so
that it hardly affects the median of the rounds' ratios.
"""

import contextlib
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PAUSE = 0.05  # seconds for the threads of the previous contender to fall asleep
_LEAST = 3  # minimum number of rounds, however long they take


class ContenderError(RuntimeError):
    """A contender failed; the message ends with the last line of its own error."""


@dataclass(frozen=True)
class Work:
    """The work of a contender.

    Attributes:
        run: runs one burst. Its seconds are measured; if it returns a number, that is
            used instead.
        units: units of work in a burst, such as steps.
        facts: called once at the end, returns facts such as the memory in use.
    """

    run: Callable[[], float | None]
    units: float = 1
    facts: Callable[[], dict] = dict


@dataclass(frozen=True)
class Contender:
    """A contender: a function of a module and its arguments.

    Attributes:
        prepare: returns the :class:`Work`; called in the new process.
        options: arguments of `prepare`.
        environment: environment variables set before `prepare` is called.
    """

    prepare: Callable[..., Work]
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Times:
    """What was measured, by contender.

    Attributes:
        seconds: seconds per unit of every round.
        facts: the final facts.
        cores: processor time over wall time of every round.
    """

    seconds: dict[str, list[float]]
    facts: dict[str, dict]
    cores: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Return the median over the rounds."""
        return statistics.median(self.seconds[name])

    def ratio(self, slower: str, faster: str) -> float:
        """Return the median of the rounds' ratios of two contenders' times."""
        pairs = zip(self.seconds[slower], self.seconds[faster], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def fields(self, ours: str, baseline: str, units: float = 1) -> dict[str, float]:
        """Return fields of a Row: seconds for `units`, times faster, and cores."""
        return {
            "ours": self.median(ours) * units,
            "baseline": self.median(baseline) * units,
            "ratio": self.ratio(baseline, ours),
            "cores": statistics.median(self.cores[ours]),
            "baseline_cores": statistics.median(self.cores[baseline]),
        }


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_cores(count: int | None) -> None:
    """Restrict this process to its first `count` processors; None keeps all."""
    if count is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def peak_memory() -> int:
    """Return the peak resident bytes of this process."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class Stopwatch:
    """Measure wall time, and processor time of this process and its ended children."""

    def __init__(self):
        self._wall, self._used = time.perf_counter(), self._processor_seconds()

    def read(self) -> tuple[float, float]:
        """Return the seconds since the start, and the processors used on average."""
        seconds = time.perf_counter() - self._wall
        return seconds, (self._processor_seconds() - self._used) / seconds

    @staticmethod
    def _processor_seconds() -> float:
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(used.ru_utime + used.ru_stime for used in both)


class _Process:
    """The process of a contender, controlled through a pipe."""

    def __init__(self, name: str, contender: Contender):
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, theirs = context.Pipe()
        # No daemon: a contender may start processes itself.
        self._process = context.Process(target=_serve, args=(theirs, contender))
        self._process.start()
        theirs.close()

    def answer(self) -> Any:
        """Wait for the next answer of the contender."""
        try:
            succeeded, value = self._pipe.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            raise ContenderError(f"{self.name}: ended with code {code}") from None
        if not succeeded:
            raise ContenderError(f"{self.name}: {value}")
        return value

    def request(self, what: str) -> Any:
        """Request `burst` or `facts` and return the answer."""
        self._pipe.send(what)
        return self.answer()

    def close(self) -> None:
        """End the process, and kill it if it does not end."""
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe, contender: Contender) -> None:
    """Prepare and warm up a contender, then answer requests until the pipe closes."""
    try:
        os.environ.update(contender.environment)
        work = contender.prepare(**contender.options)
        work.run()
        pipe.send((True, None))
        while True:
            if pipe.recv() == "facts":
                pipe.send((True, work.facts()))
                continue
            watch = Stopwatch()
            own = work.run()
            seconds, cores = watch.read()
            pipe.send((True, ((seconds if own is None else own) / work.units, cores)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return
    except Exception:
        pipe.send((False, traceback.format_exc().strip()))


def compare(
    contenders: Mapping[str, Contender], seconds: float, rounds: int = 30
) -> Times:
    """Measure contenders in turn.

    Args:
        contenders: contenders by name.
        seconds: time after which no round starts, except for the first three.
        rounds: maximum number of rounds.

    Raises:
        ContenderError: one of them failed.
    """
    processes = []
    try:
        for name, contender in contenders.items():
            processes.append(_Process(name, contender))
            processes[-1].answer()  # ready, before the next one starts
        start = time.monotonic()
        taken = {name: [] for name in contenders}
        cores = {name: [] for name in contenders}
        for number in range(rounds):
            if number >= _LEAST and time.monotonic() - start > seconds:
                break
            for process in processes if number % 2 else processes[::-1]:
                time.sleep(_PAUSE)
                burst, used = process.request("burst")
                taken[process.name].append(burst)
                cores[process.name].append(used)
        facts = {process.name: process.request("facts") for process in processes}
        return Times(taken, facts, cores)
    finally:
        for process in processes:
            process.close()


def run_in_process(
    function: Callable[..., dict], environment: Mapping | None = None, **options
) -> dict:
    """Call a function of a module once in a new process; return its answer.

    Raises:
        ContenderError: the function failed.
    """
    contender = Contender(
        _once, {"function": function, "options": options}, environment or {}
    )
    process = _Process(function.__name__, contender)
    try:
        process.answer()
        return process.request("facts")
    finally:
        process.close()


@contextlib.contextmanager
def own_ray() -> Iterator[dict[str, str]]:
    """Yield the environment of a process whose cluster ``auto`` is one of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield {"RAY_TMPDIR": folder, "RAY_ADDRESS": "auto"}


def _once(function: Callable[..., dict], options: dict) -> Work:
    answer = {}
    return Work(run=lambda: answer.update(function(**options)), facts=lambda: answer)
