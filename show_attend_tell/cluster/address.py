"""Find the address of a Ray cluster that answers."""

import os
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import ClusterError, one_line

_CONNECT_SECONDS = 5.0
# The health check of gRPC, which Ray's server answers, and the answer.
_HEALTH, _SERVING = "/grpc.health.v1.Health/Check", b"\x08\x01"


def resolve_address(address: str, grpc: Any) -> str:
    """Return the address of a server that answers, or ``local``.

    Ray itself tries for minutes if nothing answers.

    Args:
        address: see :func:`cluster.pool.connected`.
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
