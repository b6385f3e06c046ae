"""Run a job over a stream of work items in the processes of a Ray cluster.

A job is a function. Called once in each worker process, it starts TensorFlow, builds
its networks and returns the function that works on an item; relative paths are relative
to the driver's working directory, if the worker sees it. Ray places the items; the
item of a killed process or node runs again in another one. A job must therefore write
its results atomically, and write the same result if an item runs twice.

An item that ends its worker time and again, such as a photo that crashes a decoder, is
named after some attempts, and the others go on. Ray Data's ``map_batches`` would be
less code, but tries such a batch for ever (Ray 2.60: "infinite retries remaining").

Only this module and :mod:`cluster.training` connect to Ray.
"""

import contextlib
import functools
import itertools
import logging
import os
import pickle
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.runtime.errors import (
    SetupError,
    ShowAttendTellError,
    one_line,
    quote,
)

_ATTEMPTS = 4  # workers that one item may end
_VERIFIED = 4  # files of an item
_OBJECT_STORE = 200_000_000  # bytes of a Ray started here: items return counts only
_CONNECT_SECONDS = 5.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkItem:
    """An item of work.

    Attributes:
        name: its name in messages; no other item has it.
        payload: argument of the job's function.
        files: paths of files that a worker must see as the driver does; the first
            :data:`_VERIFIED` that exist are verified.
    """

    name: str
    payload: Any
    files: tuple[str | Path, ...] = ()


class Cluster:
    """A connection to a Ray cluster, from :func:`connected`."""

    def __init__(self, ray: Any):
        self._ray = ray

    @property
    def processors(self) -> int:
        """The processors of all nodes."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def processors_each(self, workers: int) -> int:
        """Return how many processors each of several workers can have.

        Args:
            workers: number of workers; if it exceeds the processors, some wait.
        """
        nodes = (node for node in self._ray.nodes() if node["Alive"])
        counts = [int(node["Resources"].get("CPU", 0)) for node in nodes]
        # A worker's processors are on one node, so remainders of nodes are not added.
        for each in range(max(counts, default=1), 1, -1):
            if sum(count // each for count in counts) >= workers:
                return each
        return 1

    def run(
        self,
        job: Callable[..., Callable[[Any], Any]],
        arguments: tuple,
        items: Iterable[WorkItem],
        workers: int | None = None,
        processors: int = 1,
        keep_going: bool = False,
    ) -> Iterator[tuple[WorkItem, Any]]:
        """Run a job over items.

        Args:
            job: a function of a module, see the module's docstring.
            arguments: arguments of `job`.
            items: the items; each is drawn when a worker is free.
            workers: items that run at the same time; by default one per processor.
            processors: processors of each worker.
            keep_going: whether the run continues after an item that has ended several
                workers; its value is then a SetupError.

        Yields:
            Each item and its value, in the order in which they finish.

        Raises:
            SetupError: a worker has another version of this package, does not see a
                file of its item, or reports an error; or an item has ended several
                workers.
        """
        ray = self._ray
        items = iter(items)
        first = list(itertools.islice(items, workers or max(self.processors, 1)))
        if not first:
            return
        if ray.available_resources().get("CPU", 0) < processors:
            _logger.warning("waiting for a free processor of the cluster")
        # Ray's own retries have no limit where its memory monitor ends a worker.
        remote = ray.remote(num_cpus=processors, max_retries=0)
        setup = pickle.dumps((job, arguments, processors, os.getcwd()))
        task = remote(task_of(setup, __version__))
        running: dict[Any, WorkItem] = {}
        attempts: Counter[str] = Counter()

        def start(items: Iterable[WorkItem]) -> None:
            for item in items:
                # Absolute, because workers verify them before they change their
                # directory.
                present = filter(os.path.isfile, map(os.path.abspath, item.files))
                files = itertools.islice(present, _VERIFIED)
                sizes = {file: os.path.getsize(file) for file in files}
                # Bytes, because Ray would unpickle objects of this package in the
                # worker before the version is compared.
                running[task.remote(pickle.dumps((item.payload, sizes)))] = item

        start(first)
        while running:
            ready, _ = ray.wait(list(running))
            done = ready[0]
            item = running.pop(done)
            try:
                value, fault = ray.get(done)
            # Before RayError, its base class: a dead worker raises another of its
            # classes.
            except ray.exceptions.RayTaskError:
                raise  # a mistake in this package
            except ray.exceptions.RayError as error:
                attempts[item.name] += 1
                if attempts[item.name] < _ATTEMPTS:
                    _logger.warning("a worker has ended (%s)", one_line(error))
                    start([item])
                    continue
                fault = None
                value = SetupError(
                    f"{item.name}: {_ATTEMPTS} workers ended while it ran "
                    f"({one_line(error)}); give the workers more memory, or remove the "
                    "photo or the setting that ends them"
                )
                if not keep_going:
                    raise value from None
            # Errors that would occur again on any worker end the run.
            if fault is not None:
                raise SetupError(fault)
            # Before the caller gets the value, so that the worker does not wait for it.
            start(itertools.islice(items, 1))
            yield item, value


def task_of(setup: bytes, version: str) -> Callable[[bytes], tuple[Any, str | None]]:
    """Return the function that Ray calls with a pickled payload and its files.

    It returns the value and None, or None and the line of an error.

    Args:
        setup: the pickled job, its arguments, the processors of a worker and the
            driver's working directory.
        version: the driver's version of this package.
    """

    def run_item(item: bytes) -> tuple[Any, str | None]:
        # Ray pickles a nested function by value: the node may lack this package.
        try:
            from show_attend_tell import __version__ as installed
        except ImportError as error:
            installed = f"none ({error})"
        if installed != version:
            return None, (
                f"worker on {socket.gethostname()}: must have version {version} of "
                f"this package. Received: {installed}; install the same version on "
                "every node"
            )
        from show_attend_tell.cluster.pool import work_on

        return work_on(setup, *pickle.loads(item))

    return run_item


def work_on(
    setup: bytes, payload: Any, sizes: dict[str | Path, int]
) -> tuple[Any, str | None]:
    """Work on a payload in this worker process; see :func:`task_of`.

    Args:
        setup: see :func:`task_of`.
        payload: argument of the job's function.
        sizes: the files of the item, and their sizes in bytes where the driver runs.
    """
    try:
        for file, size in sizes.items():
            _require_visible(file, size)
        return _prepared(setup)(payload), None
    except (ShowAttendTellError, OSError) as error:
        return None, f"worker on {socket.gethostname()}: {one_line(error, 1000)}"


def _require_visible(file: str | Path, size: int) -> None:
    remedy = "use a folder that every node mounts at the same path"
    try:
        size_here = os.path.getsize(file)
    except OSError as error:
        raise SetupError(
            f"{file}: not visible here ({error.strerror}); {remedy}"
        ) from None
    if size_here != size:
        raise SetupError(
            f"{file}: not the file that the driver sees ({size_here} bytes instead of "
            f"{size}); {remedy}"
        )


@functools.lru_cache(maxsize=1)
def _prepared(setup: bytes) -> Callable[[Any], Any]:
    """Return the function of a job's items; prepare this process once."""
    job, arguments, processors, folder = pickle.loads(setup)
    if os.path.isdir(folder):
        os.chdir(folder)
    # Before the job imports TensorFlow, which reads them when it starts.
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(processors)
    return job(*arguments)


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a Ray cluster.

    Args:
        address: ``HOST:PORT`` of the cluster's head, to which this machine belongs;
            ``local``, a cluster that is started for this process and ends with it; or
            ``auto``: the environment variable ``RAY_ADDRESS``, or the cluster that
            ``ray start`` started on this machine, or else ``local``.

    Raises:
        SetupError: Ray is not installed, or nothing answers at the address.
    """
    # Ray would send usage statistics to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise SetupError(
            f"`cluster` needs Ray, which cannot be imported ({one_line(error)}); "
            "run `pip install 'show-attend-tell[cluster]'`"
        ) from None
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _connect(ray, resolve_address(address))
    finally:
        with contextlib.suppress(ValueError):  # of a thread, which receives no signals
            signal.signal(signal.SIGTERM, handler)  # Ray has set its own
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    started = {}
    remedy = (
        "check that the versions of Ray and Python are those of the cluster, and that "
        "this machine belongs to it"
    )
    if address == "local":
        started = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        remedy = "run the command again when this machine is less busy"
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **started)
    except Exception as error:  # Ray raises the base class if a node is slow
        folder = _folder_of_ray().parent
        if "AF_UNIX" in str(error):  # sockets are in this folder
            remedy = f"set RAY_TMPDIR to a shorter path than {folder}, such as /tmp"
        elif isinstance(error, OSError) and address == "local":
            remedy = "set RAY_TMPDIR to a folder that you can write, such as /tmp"
        raise SetupError(
            f"{address}: no connection to Ray ({one_line(error)}); {remedy}"
        ) from None


def resolve_address(address: str) -> str:
    """Return the address of a cluster that answers, or ``local``.

    The order is Ray's own; but Ray tries for minutes if nothing answers, or another
    program does.

    Args:
        address: see :func:`connected`.

    Raises:
        SetupError: no Ray answers at the requested address, or it is of another kind.
    """
    address = address.strip()
    if address == "auto":  # Ray takes an empty variable as none
        address = os.environ.get("RAY_ADDRESS", "").strip() or "auto"
    if address == "local":
        return address
    if "://" in address:
        raise SetupError(
            "`cluster` must be HOST:PORT of a cluster's head, auto or local. "
            f"Received: {quote(address)}, an address of Ray's client or dashboard; run "
            "the command on a machine of the cluster, with the port of `ray start`, "
            "mostly 6379"
        )
    if address == "auto":
        try:
            # Ray's name for the file; a killed cluster leaves it behind.
            address = (_folder_of_ray() / "ray_current_cluster").read_text().strip()
        except (OSError, ValueError):
            return "local"
        return address if _fault_of(address) is None else "local"
    if fault := _fault_of(address):
        raise SetupError(
            f"{address}: no Ray answers ({fault}); start it there with `ray start "
            "--head --port PORT`, or pass --cluster HOST:PORT or auto"
        )
    return address


def _folder_of_ray() -> Path:
    """Return the folder in which Ray notes its address and keeps its sockets."""
    folder = os.environ.get("RAY_TMPDIR")
    if folder is None and sys.platform == "linux":
        folder = os.environ.get("TMPDIR")
    return Path("/tmp" if folder is None else folder) / "ray"


def _fault_of(address: str) -> str | None:
    """Return why no Ray answers at HOST:PORT, or None if one does."""
    host, _, port = address.rpartition(":")
    try:
        place = (host.removeprefix("[").removesuffix("]"), int(port))
        socket.create_connection(place, _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        return one_line(error)
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return None  # Ray itself has the keys
    import grpc  # which Ray speaks; a program that does not has taken the port

    # A proxy of the environment is not on the way to a cluster.
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            return "another program has the port"
    return None
