"""Join the workers of ``TF_CONFIG``.

TensorFlow waits for absent workers without a limit, and cannot be interrupted
meanwhile. Therefore the workers first meet at the chief's address: each sends its rank,
and the chief answers when all have come.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time

import tensorflow as tf

from show_attend_tell.runtime.errors import ClusterError, one_line
from show_attend_tell.training.workers.group import SIGNALS, Workers

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
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # TensorFlow has set its own
            signal.signal(number, handler)
    if strategy.num_replicas_in_sync != count:
        raise ClusterError(
            f"worker {rank}: must have one device. Received: {count} workers with "
            f"{strategy.num_replicas_in_sync} devices; start a worker for each GPU, "
            "and give it one by CUDA_VISIBLE_DEVICES"
        )
    return Workers(strategy, rank, count)


def read_configuration(text: str) -> tuple[int, list[str]]:
    """Return the rank of this worker and the addresses of all.

    Args:
        text: the value of ``TF_CONFIG``.

    Raises:
        ClusterError: the text is not a configuration of workers.
    """
    try:
        values = json.loads(text)
        addresses, task = values["cluster"]["worker"], values["task"]
        rank = task["index"]
        valid = (
            list(values["cluster"]) == ["worker"]
            and task["type"] == "worker"
            and all(address.rpartition(":")[2].isdecimal() for address in addresses)
            and type(rank) is int
            and 0 <= rank < len(addresses)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise ClusterError(
            '`TF_CONFIG` must be {"cluster": {"worker": ["HOST:PORT", ...]}, "task": '
            f'{{"type": "worker", "index": K}}}}. Received: {one_line(text, 80)}; give '
            "every worker the same addresses and its own K, from 0"
        )
    return rank, addresses


def meet(rank: int, addresses: list[str], seconds: float | None = None) -> None:
    """Wait until all workers have come to the chief's address.

    Args:
        rank: number of this worker; the chief's is 0.
        addresses: ``host:port`` of each worker.
        seconds: how long to wait, by default :data:`JOIN_SECONDS`.

    Raises:
        TimeoutError: a worker is absent.
        OSError: the address cannot be used.
    """
    end = time.monotonic() + (JOIN_SECONDS if seconds is None else seconds)
    host, _, port = addresses[0].rpartition(":")
    if rank == 0:
        _receive(int(port), len(addresses), end)
        return
    while True:
        try:
            with socket.create_connection((host, int(port)), _POLL_SECONDS) as chief:
                chief.settimeout(max(end - time.monotonic(), _POLL_SECONDS))
                chief.sendall(f"{rank}\n".encode())
                if chief.recv(len(_READY)) == _READY:
                    return
        except OSError as error:
            reason = one_line(error)
        else:
            reason = "another program answers, or the chief has ended"
        if time.monotonic() > end:
            raise TimeoutError(f"no worker 0 at {addresses[0]}: {reason}")
        time.sleep(_POLL_SECONDS)


def _receive(port: int, count: int, end: float) -> None:
    """Wait for a connection of every other worker, then answer all."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("", port)))
        server.settimeout(_POLL_SECONDS)
        present: dict[str, socket.socket] = {}
        while missing := {str(k) for k in range(1, count)} - present.keys():
            if time.monotonic() > end:
                raise TimeoutError(f"worker {min(missing)} is absent")
            with contextlib.suppress(OSError):  # nobody yet, or a broken connection
                connection, _ = server.accept()
                stack.enter_context(connection)
                connection.settimeout(_POLL_SECONDS)
                present[connection.recv(20).decode(errors="replace").strip()] = (
                    connection
                )
        for connection in present.values():
            connection.sendall(_READY)
