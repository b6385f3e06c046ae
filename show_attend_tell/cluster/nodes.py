"""Find a Ray cluster, and verify what its nodes see and have installed."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.runtime.errors import ClusterError, one_line

_CONNECT_SECONDS = 5.0
# Until a node has started its first process: a loaded machine needs a minute to import
# Ray.
_START_SECONDS = 300.0
# The health check of gRPC, which Ray's server answers, and the answer.
_HEALTH, _SERVING = "/grpc.health.v1.Health/Check", b"\x08\x01"

# A path, and its size in bytes; None for a folder.
Sight = tuple[str, int | None]


def resolve_address(address: str, grpc: Any) -> str:
    """Return the address of a server that answers, or ``local``.

    Ray itself tries for minutes if nothing answers.

    Args:
        address: see :func:`cluster.pool.connected`.
        grpc: the module whose protocol Ray's server speaks.

    Raises:
        ClusterError: nothing answers at the requested address.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        folder = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
        try:
            # Ray's name for the file; a killed cluster leaves it behind.
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
            check = channel.unary_unary(_HEALTH)  # bytes to bytes
            serving = check(b"", timeout=_CONNECT_SECONDS) == _SERVING
    except grpc.RpcError as error:
        return one_line(error.details())
    return None if serving else "the server is not ready"


def visible(path: str | Path) -> Sight:
    """Return an existing path as this process sees it, absolute and with its size."""
    path = os.path.abspath(path)
    return path, None if os.path.isdir(path) else os.path.getsize(path)


def require_visible(sights: Iterable[Sight]) -> None:
    """Raise a ClusterError unless this process sees the paths as the driver does.

    Args:
        sights: values of :func:`visible` in the driver.
    """
    remedy = "use a folder that every node mounts at the same path"
    for path, size in sights:
        try:
            _, size_here = visible(path)
        except OSError as error:
            raise ClusterError(
                f"{path}: not visible here ({error.strerror}); {remedy}"
            ) from None
        if size_here != size:
            raise ClusterError(
                f"{path}: not the file that the driver sees ({size_here} bytes instead "
                f"of {size}); {remedy}"
            )


def require_visible_everywhere(ray: Any, sights: tuple[Sight, ...]) -> None:
    """Raise a ClusterError unless every node sees the paths as this process does."""
    if not sights:
        return
    for host, fault in _run_on_each_node(ray, _fault_of_sights, sights):
        if fault is not None:
            raise ClusterError(f"node {host}: {fault}")


def _fault_of_sights(sights: tuple[Sight, ...]) -> str | None:
    try:
        require_visible(sights)
    except ClusterError as error:
        return str(error)
    return None


def require_version(version: str) -> None:
    """Raise a ClusterError unless this process has a version of the package."""
    if version != __version__:
        raise ClusterError(
            f"must have version {version} of this package. Received: {__version__}; "
            "install the same version on every node"
        )


def require_same_version(ray: Any, version: str) -> None:
    """Raise a ClusterError if a node has another version of this package."""

    def installed() -> str:  # pickled by value: the node may lack this module
        try:
            import show_attend_tell
        except ImportError as error:
            return f"none ({error})"
        return show_attend_tell.__version__

    for host, theirs in _run_on_each_node(ray, installed):
        if theirs != version:
            raise ClusterError(
                f"{host}: must have version {version} of this package. "
                f"Received: {theirs}; install the same version on every node"
            )


def _run_on_each_node(
    ray: Any, function: Callable[..., Any], *arguments: object
) -> Iterator[tuple[str, Any]]:
    """Run a function on every node; yield the host's name and the value.

    A node that dies meanwhile is left out, as it gets no work. Where Ray cannot run the
    function, the value is a ClusterError.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(function)
    running = {}
    for node in ray.nodes():
        if node["Alive"]:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = remote.options(scheduling_strategy=strategy)
            running[task.remote(*arguments)] = node
    end = time.monotonic() + _START_SECONDS
    for reference, node in running.items():
        host = node["NodeManagerHostname"]
        try:
            value = ray.get(reference, timeout=max(end - time.monotonic(), 0.0))
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(
                f"{host}: started no process within {_START_SECONDS:.0f} seconds; "
                "free its processors and memory, or remove the node"
            ) from None
        except ray.exceptions.RayError as error:
            alive = {other["NodeID"] for other in ray.nodes() if other["Alive"]}
            if node["NodeID"] not in alive:
                continue
            value = ClusterError(one_line(error))
        yield host, value
