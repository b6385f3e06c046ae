"""Run tasks in worker processes of a Ray cluster.

Only this module and :mod:`runtime.cluster_training` import Ray.

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
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.runtime.errors import ClusterError, ShowAttendTellError, one_line

_ATTEMPTS = 4  # workers that one task may end
_CONNECT_SECONDS = 5.0
# The health check of gRPC, which Ray's server answers, and the answer.
_HEALTH, _SERVING = "/grpc.health.v1.Health/Check", b"\x08\x01"
_START_SECONDS = 120.0  # for the first process on each node
_POLL_SECONDS = 5.0
_WAITING_SECONDS = 30.0  # between log lines while no worker has started
_OBJECT_STORE = 200_000_000  # bytes of a Ray started here: tasks return counts only

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """A task of a worker.

    Attributes:
        name: name of the task in messages.
        payload: argument of the worker's ``run``.
        visible: paths that the worker must see as the driver does, to their size; None
            for a folder.
    """

    name: str
    payload: Any
    visible: tuple[tuple[str, int | None], ...] = ()


def visible(path: str | Path) -> tuple[str, int | None]:
    """Return an element of :attr:`Task.visible` for an existing path."""
    path = os.path.abspath(path)
    return path, None if os.path.isdir(path) else os.path.getsize(path)


class Cluster:
    """A connection to a Ray cluster, from :func:`connected`."""

    def __init__(self, ray: Any):
        self._ray = ray

    @property
    def processors(self) -> int:
        """The processors of all nodes."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def run(
        self,
        make: Callable[..., Any],
        arguments: tuple,
        tasks: Iterable[Task],
        workers: int | None = None,
    ) -> Iterator[tuple[Task, Any]]:
        """Run tasks in workers, each with one processor.

        Args:
            make: a class or function of a module; called once in each worker process,
                it returns an object with the method ``run(payload)``.
            arguments: arguments of `make`.
            tasks: tasks, taken from the iterable when a worker is free.
            workers: number of workers; by default one for each processor.

        Yields:
            Each task and the value of ``run``, in the order in which they end.

        Raises:
            ClusterError: a worker differs from this process, does not see a path, or
                reports an error; or a task has ended several workers.
        """
        tasks = iter(tasks)
        first = next(tasks, None)
        if first is None:
            return
        count = workers or max(self.processors, 1)
        pool = _Pool(self._ray, functools.partial(make, *arguments), count)
        try:
            yield from pool.run(itertools.chain([first], tasks))
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
    address = _resolve(address, grpc)
    with _signal_handler_kept():
        _connect(ray, address)
    try:
        if address != "local":
            _require_same_version(ray)
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _resolve(address: str, grpc: Any) -> str:
    """Return the address of a server that answers, or ``local``.

    Ray itself tries for minutes if nothing answers.

    Args:
        address: see :func:`connected`.
        grpc: the module, by whose protocol a Ray server answers.

    Raises:
        ClusterError: nothing answers at an address that was given.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        folder = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
        try:
            # Ray's name for the file; that of a cluster that was killed is kept.
            running = (folder / "ray" / "ray_current_cluster").read_text().strip()
        except OSError:
            return "local"
        return running if _silence(running, grpc) is None else "local"
    if silence := _silence(address, grpc):
        raise ClusterError(
            f"{address}: no Ray answers ({silence}); start it there with "
            "`ray start --head --port PORT`, or pass --cluster auto"
        )
    return address


def _silence(address: str, grpc: Any) -> str | None:
    """Return the reason why no server answers at an address, or None."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return "the address must be auto or HOST:PORT"
    try:
        with grpc.insecure_channel(address) as channel:
            check = channel.unary_unary(_HEALTH)  # of bytes to bytes
            serving = check(b"", timeout=_CONNECT_SECONDS) == _SERVING
    except grpc.RpcError as error:
        return one_line(error.details())
    return None if serving else "the server is not ready"


def _connect(ray: Any, address: str) -> None:
    started: dict[str, Any] = {}
    if address == "local":
        started = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **started)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(
            f"{address}: no connection to Ray ({one_line(error)}); check that the "
            "versions of Ray and Python are those of the cluster, and that this "
            "machine belongs to it"
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
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def version() -> str:  # sent by value: the other node may lack this module
        try:
            import show_attend_tell
        except ImportError as error:
            return f"none ({error})"
        return show_attend_tell.__version__

    remote = ray.remote(num_cpus=0, max_retries=0)(version)
    found = {}
    for node in ray.nodes():
        if node["Alive"]:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = remote.options(scheduling_strategy=strategy).remote()
            found[reference] = node["NodeManagerHostname"]
    for reference, host in found.items():
        try:
            theirs = ray.get(reference, timeout=_START_SECONDS)
        except ray.exceptions.RayError as error:
            theirs = f"none ({one_line(error)})"
        if theirs != __version__:
            raise ClusterError(
                f"{host}: must have version {__version__} of this package. "
                f"Received: {theirs}; install the same version on every node"
            )


class Worker:
    """The actor: builds the object of ``make`` once and runs its tasks.

    Its methods return a value and None, or None and the line of an error.
    """

    def __init__(self, make: Callable[[], Any], processors: int):
        for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
            os.environ[name] = str(processors)
        self._make = make
        self._host = socket.gethostname()

    def prepare(self) -> tuple[None, str | None]:
        """Build the object of ``make``."""

        def build() -> None:
            self._object = self._make()

        return self._guarded(build)

    def run(self, task: Task) -> tuple[Any, str | None]:
        """Run a task after verifying that its paths are visible."""

        def run() -> Any:
            for path, size in task.visible:
                require_visible(path, size)
            return self._object.run(task.payload)

        return self._guarded(run)

    def _guarded(self, call: Callable[[], Any]) -> tuple[Any, str | None]:
        try:
            return call(), None
        except (ShowAttendTellError, OSError) as error:
            return None, f"worker on {self._host}: {one_line(error, 1000)}"


def require_visible(path: str, size: int | None) -> None:
    """Raise a ClusterError unless a path of :attr:`Task.visible` is visible here."""
    remedy = "use a folder that every node mounts at the same path"
    try:
        found = visible(path)[1]
    except OSError as error:
        raise ClusterError(
            f"{path}: not visible here ({error.strerror}); {remedy}"
        ) from None
    if found != size:
        raise ClusterError(
            f"{path}: not the file that the driver sees ({found} bytes instead of "
            f"{size}); {remedy}"
        )


class _Pool:
    """Workers that are started, given tasks, and replaced when they die."""

    def __init__(self, ray: Any, make: Callable[[], Any], count: int):
        self._ray, self._count, self._make = ray, count, make
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Worker)
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
            worker = self._actor.remote(self._make, 1)
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
            self._record_death(task, one_line(error))
            return
        if fault is not None:
            raise ClusterError(fault)
        self._idle.append(worker)
        if task is not None:
            self._deaths = 0
            yield task, value

    def _record_death(self, task: Task | None, reason: str) -> None:
        """Keep the task of a dead worker for another, unless too many have died."""
        self._deaths += 1
        if task is not None:
            self._again.append(task)
            self._attempts[task.name] += 1
            if self._attempts[task.name] == _ATTEMPTS:
                raise ClusterError(
                    f"{task.name}: {_ATTEMPTS} workers ended while it ran ({reason}); "
                    "give the workers more memory, or remove the photo that ends them"
                )
        if self._deaths > _ATTEMPTS * self._count:
            raise ClusterError(f"workers end before they finish a task ({reason})")
        _logger.warning("a worker has ended (%s); another takes its place", reason)

    def close(self) -> None:
        """End all workers."""
        running = (worker for worker, _ in self._running.values())
        for worker in (*self._starting.values(), *self._idle, *running):
            with contextlib.suppress(Exception):  # the connection may be lost
                self._ray.kill(worker)
