"""Run tasks in worker processes of a Ray cluster.

Only this module and :mod:`cluster.training_workers` connect to Ray.

Every worker is a Ray actor that builds its networks once and then runs one task after
the other. A worker or a node that is killed loses at most the task that it runs; the
task is given to another worker, and a new worker is started when the cluster has a free
processor. Tasks must therefore write their results atomically, and write the same
result if they run twice.
"""

import contextlib
import functools
import itertools
import logging
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.cluster.address import resolve_address
from show_attend_tell.cluster.nodes import run_on_each_node
from show_attend_tell.cluster.worker import (
    Task,
    Worker,
    build_verified,
    invisible,
)
from show_attend_tell.runtime.errors import ClusterError, one_line

_ATTEMPTS = 4  # workers that one task may end
_POLL_SECONDS = 5.0
_WAITING_SECONDS = 30.0  # between log lines while no worker has started
_OBJECT_STORE = 200_000_000  # bytes of a Ray started here: tasks return counts only

_logger = logging.getLogger(__name__)


class Cluster:
    """A connection to a Ray cluster, from :func:`connected`."""

    def __init__(self, ray: Any):
        self._ray = ray

    @property
    def processors(self) -> int:
        """The processors of all nodes."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def processors_each(self, workers: int) -> int:
        """Return how many processors each of some workers, on any nodes, can have.

        Args:
            workers: number of workers; if there are more than processors, some wait.
        """
        nodes = (node for node in self._ray.nodes() if node["Alive"])
        counts = [int(node["Resources"].get("CPU", 0)) for node in nodes]
        for each in range(max(counts, default=1), 1, -1):
            if sum(count // each for count in counts) >= workers:
                return each
        return 1

    def _require_visible(self, seen: tuple[tuple[str, int | None], ...]) -> None:
        """Raise a ClusterError unless every node sees the same paths as this process.

        A worker verifies them too, but only after minutes if it has networks to build.
        """
        if not seen:
            return
        for host, fault in run_on_each_node(self._ray, invisible, seen):
            if fault is not None:
                raise ClusterError(f"node {host}: {fault}")

    def run(
        self,
        make: Callable[..., Any],
        arguments: tuple,
        tasks: Iterable[Task],
        workers: int | None = None,
        processors: int = 1,
        keep_going: bool = False,
    ) -> Iterator[tuple[Task, Any]]:
        """Run tasks in workers.

        Args:
            make: a class or function of a module; called once in each worker process,
                it returns an object with the method ``run(payload)``.
            arguments: arguments of `make`.
            tasks: tasks, taken from the iterable when a worker is free.
            workers: most workers; by default one for each processor.
            processors: processors of each worker.
            keep_going: whether a task that has ended several workers is yielded with a
                ClusterError as its value, and the others are run.

        Yields:
            Each task and the value of ``run``, in the order in which they end.

        Raises:
            ClusterError: a node does not see a path of the first task, which is found
                before a worker is started; a worker differs from this process, does not
                see a path of its task, or reports an error; or a task has ended several
                workers.
        """
        tasks = iter(tasks)
        # No more workers than tasks: the start of one takes seconds of a processor.
        first = list(itertools.islice(tasks, workers or max(self.processors, 1)))
        if not first:
            return
        self._require_visible(first[0].visible)
        make = functools.partial(make, *arguments)
        pool = _Pool(self._ray, make, len(first), processors, keep_going)
        try:
            yield from pool.run(itertools.chain(first, tasks))
        finally:
            pool.close()


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a Ray cluster, and disconnect at the end.

    Args:
        address: ``host:port`` of the head of a cluster to which this machine belongs,
            or ``auto``: the environment variable ``RAY_ADDRESS``, or the cluster that
            runs on this machine, or else one that is started for this process and ends
            with it.

    Raises:
        ClusterError: Ray is not installed, nothing answers at the address, or a node
            has another version of this package.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import grpc
        import ray
    except ImportError as error:
        raise ClusterError(
            f"`cluster` needs Ray, which cannot be imported ({one_line(error)}); "
            "run `pip install 'show-attend-tell[cluster]'`"
        ) from None
    address = resolve_address(address, grpc)
    with _signal_handler_kept():
        _connect(ray, address)
    try:
        if address != "local":
            _require_same_version(ray)
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    started: dict[str, Any] = {}
    if address == "local":
        started = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **started)
    except Exception as error:  # Ray raises one of the base class if a node is slow
        remedy = (
            "check that the versions of Ray and Python are those of the cluster, and "
            "that this machine belongs to it"
        )
        if address == "local":
            remedy = "run the command again when this machine is less busy"
        raise ClusterError(
            f"{address}: no connection to Ray ({one_line(error)}); {remedy}"
        ) from None


@contextlib.contextmanager
def _signal_handler_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_same_version(ray: Any) -> None:
    """Raise a ClusterError if a node has another version of this package."""

    def version() -> str:  # sent by value: the other node may lack this module
        try:
            import show_attend_tell
        except ImportError as error:
            return f"none ({error})"
        return show_attend_tell.__version__

    for host, theirs in run_on_each_node(ray, version):
        if theirs != __version__:
            raise ClusterError(
                f"{host}: must have version {__version__} of this package. "
                f"Received: {theirs}; install the same version on every node"
            )


class _Pool:
    """Workers that are started, given tasks, and replaced when they die."""

    def __init__(
        self,
        ray: Any,
        make: Callable[[], Any],
        count: int,
        processors: int = 1,
        keep_going: bool = False,
    ):
        self._ray, self._count = ray, count
        self._make = functools.partial(build_verified, make, __version__)
        self._processors, self._keep_going = processors, keep_going
        options = {"num_cpus": processors, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**options)(Worker)
        self._starting: dict[Any, Any] = {}  # reference -> worker
        self._idle: list[Any] = []  # workers
        self._running: dict[Any, tuple[Any, Task]] = {}  # reference -> worker, task
        self._again: deque[Task] = deque()  # tasks of dead workers
        self._attempts: Counter[str] = Counter()
        self._deaths = 0  # since the last task that ended

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[Task, Any]]:
        """Yield every task and its value."""
        worked = time.monotonic()
        while True:
            self._give(tasks)
            if self._idle and not self._running:
                return
            references = [*self._running, *self._starting]
            done, _ = self._ray.wait(references, timeout=_POLL_SECONDS)
            for reference in done:
                yield from self._receive(reference)
            if self._running or done:
                worked = time.monotonic()
            elif time.monotonic() - worked > _WAITING_SECONDS:
                worked = time.monotonic()
                _logger.warning("waiting for a free processor of the cluster")

    def _give(self, tasks: Iterator[Task]) -> None:
        """Start workers in place of absent ones, and give tasks to idle ones."""
        present = len(self._starting) + len(self._idle) + len(self._running)
        for _ in range(self._count - present):
            worker = self._actor.remote(self._make, self._processors)
            self._starting[worker.prepare.remote()] = worker
        while self._idle:
            task = self._again.popleft() if self._again else next(tasks, None)
            if task is None:
                return
            worker = self._idle.pop()
            self._running[worker.run.remote(task)] = worker, task

    def _receive(self, reference: Any) -> Iterator[tuple[Task, Any]]:
        """Yield the value of a task that ended; raise its fault.

        The worker is idle afterwards, or is forgotten because it died.
        """
        if reference in self._starting:
            worker, task = self._starting.pop(reference), None
        else:
            worker, task = self._running.pop(reference)
        exceptions = self._ray.exceptions
        try:
            value, fault = self._ray.get(reference)
        except exceptions.RayTaskError:
            raise  # a mistake in this package
        except exceptions.RayError as error:
            self._kill(worker)  # it may be alive, out of reach for a while
            cause = str(error).strip().rpartition("\n")[2]  # after the actor's ids
            yield from self._record_death(task, one_line(cause or error))
            return
        if fault is not None:
            raise ClusterError(fault)
        self._idle.append(worker)
        if task is not None:
            self._deaths = 0
            yield task, value

    def _record_death(
        self, task: Task | None, reason: str
    ) -> Iterator[tuple[Task, ClusterError]]:
        """Keep the task of a dead worker for another, unless too many have died."""
        self._deaths += 1
        if task is not None:
            self._attempts[task.name] += 1
            if self._attempts[task.name] < _ATTEMPTS:
                self._again.append(task)
            else:
                fault = ClusterError(
                    f"{task.name}: {_ATTEMPTS} workers ended while it ran ({reason}); "
                    "give the workers more memory, or remove the photo or the setting "
                    "that ends them"
                )
                if not self._keep_going:
                    raise fault
                self._deaths = 0
                yield task, fault
        if self._deaths > _ATTEMPTS * self._count:
            raise ClusterError(f"workers end before they finish a task ({reason})")
        _logger.warning("a worker has ended (%s); another takes its place", reason)

    def close(self) -> None:
        """End all workers."""
        running = (worker for worker, _ in self._running.values())
        for worker in (*self._starting.values(), *self._idle, *running):
            self._kill(worker)

    def _kill(self, worker: Any) -> None:
        with contextlib.suppress(Exception):  # the connection may be lost
            self._ray.kill(worker)
