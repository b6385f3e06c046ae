"""Join the workers that ``TF_CONFIG`` names.

TensorFlow waits for absent workers without a limit, and cannot be interrupted
meanwhile. Therefore the workers first meet at the chief's address: each sends its rank,
and the chief answers when all have come.
"""

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Annotated, Literal

import tensorflow as tf
from pydantic import Field, TypeAdapter

from show_attend_tell.runtime.errors import ClusterError, one_line
from show_attend_tell.training.workers import SIGNALS, Workers

JOIN_SECONDS = 600.0  # in which all workers must start
_POLL_SECONDS = 0.2
_READY = b"ready"


def join() -> Workers:
    """Join the workers of ``TF_CONFIG``; wait until all have started.

    Call it before TensorFlow computes anything.

    Raises:
        ClusterError: ``TF_CONFIG`` is malformed, a worker does not start in time, or
            has several devices.
    """
    rank, addresses = read_configuration(os.environ.get("TF_CONFIG", ""))
    count = len(addresses)
    if count == 1:
        return Workers()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        meet(rank, addresses)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        raise ClusterError(
            f"worker {rank} of {count} at {addresses[rank]}: the workers cannot join "
            f"({one_line(error)}); start every worker of TF_CONFIG within "
            f"{JOIN_SECONDS:.0f} seconds, each at a free port that the others reach"
        ) from None
    with contextlib.suppress(ValueError):  # of a thread, which receives no signals
        for number, handler in handlers.items():  # TensorFlow has set its own
            signal.signal(number, handler)
    if strategy.num_replicas_in_sync != count:
        raise ClusterError(
            f"worker {rank}: must have one device. Received: {count} workers with "
            f"{strategy.num_replicas_in_sync} devices; start a worker for each GPU, "
            "and give it one by CUDA_VISIBLE_DEVICES"
        )
    return Workers(strategy, rank, count)


@dataclass
class _Task:
    type: Literal["worker"]
    index: Annotated[int, Field(strict=True, ge=0)]


@dataclass
class _Configuration:
    cluster: dict[Literal["worker"], list[Annotated[str, Field(pattern=r":\d+$")]]]
    task: _Task


def read_configuration(text: str) -> tuple[int, list[str]]:
    """Return the rank of this worker and the addresses of all.

    Args:
        text: the value of ``TF_CONFIG``.

    Raises:
        ClusterError: the text is not a configuration of workers.
    """
    try:
        values = TypeAdapter(_Configuration).validate_json(text)
        addresses, rank = values.cluster["worker"], values.task.index
        addresses[rank]
    except (ValueError, LookupError):
        raise ClusterError(
            '`TF_CONFIG` must be {"cluster": {"worker": ["HOST:PORT", ...]}, "task": '
            f'{{"type": "worker", "index": K}}}}. Received: {one_line(text, 80)}; give '
            "every worker the same addresses and its own K, from 0"
        ) from None
    return rank, addresses


def meet(rank: int, addresses: list[str]) -> None:
    """Wait until all workers have come to the chief's address.

    Args:
        rank: number of this worker; the chief's is 0.
        addresses: ``host:port`` of each worker.

    Raises:
        TimeoutError: a worker is absent.
        OSError: the address cannot be used.
    """
    end = time.monotonic() + JOIN_SECONDS
    host, _, port = addresses[0].rpartition(":")
    if rank == 0:
        _receive(int(port), len(addresses), end)
        return
    while True:
        try:
            with socket.create_connection((host, int(port)), _POLL_SECONDS) as chief:
                chief.settimeout(max(end - time.monotonic(), _POLL_SECONDS))
                chief.sendall(b"%d\n" % rank)
                if chief.recv(len(_READY)) == _READY:
                    return
                reason = "another program answers, or the chief has ended"
        except OSError as error:
            reason = one_line(error)
        if time.monotonic() > end:
            raise TimeoutError(f"no worker 0 at {addresses[0]}: {reason}")
        time.sleep(_POLL_SECONDS)


def _receive(port: int, count: int, end: float) -> None:
    """Wait for a connection of every other worker, then answer all."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("", port)))
        present: dict[int, socket.socket] = {}
        while missing := set(range(1, count)) - present.keys():
            server.settimeout(max(end - time.monotonic(), 0))
            try:
                connection, _ = server.accept()
            except OSError:
                raise TimeoutError(f"worker {min(missing)} is absent") from None
            stack.enter_context(connection).settimeout(_POLL_SECONDS)
            with contextlib.suppress(OSError, ValueError):  # another program
                present[int(connection.recv(20))] = connection
        for connection in present.values():
            connection.sendall(_READY)
