"""Find the address of a Ray cluster, and verify that its nodes see the same files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import ClusterError, one_line

_CONNECT_SECONDS = 5.0
# The health check of gRPC, which Ray's server answers, and the answer.
_HEALTH, _SERVING = "/grpc.health.v1.Health/Check", b"\x08\x01"

# A path, and its size in bytes; None for a folder.
Sight = tuple[str, int | None]


def resolve_address(address: str, grpc: Any) -> str:
    """Return the address of a server that answers, or ``local``.

    Ray itself tries for minutes if nothing answers.

    Args:
        address: see :func:`cluster.pool.connected`.
        grpc: the module that implements the protocol of Ray's server.

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
