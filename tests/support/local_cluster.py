"""A Ray cluster of two nodes on this machine, whose workers and nodes are killed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_TMPDIR", "/tmp/ray-tests")  # a socket's path must be short

_STORE = 80_000_000  # bytes
_SYSTEM = {
    # A dead node is noticed after two seconds in place of half a minute.
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    # Ray's workers give way to other programs, which may starve them (15 by default).
    "worker_niceness": 0,
    # On a loaded machine a process may need a minute to import Ray.
    "worker_register_timeout_seconds": 300,
    "agent_register_timeout_ms": 300_000,
}
# A node waits 15 seconds until its agents have written the ports that they choose, and
# then ends. The port of the dashboard's agent cannot be set: on a loaded machine this
# agent is late, and the node is started again.
_STARTS = 5
_AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "runtime_env_agent_port",
)


class LocalCluster:
    """Nodes of one processor each; the first is the head, which is never killed."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        def start():
            head = {**_node(), "include_dashboard": False, "_system_config": _SYSTEM}
            try:
                return Cluster(initialize_head=True, head_node_args=head)
            except Exception:
                _end_processes_of_ray()  # the head's other processes
                raise

        self._cluster = _started(start)
        self.address = self._cluster.address
        self._others = []

    def ensure(self, count: int) -> None:
        """Start nodes until the cluster has `count` nodes."""
        while 1 + len(self._others) < count:
            added = _started(lambda: self._cluster.add_node(**_node()))
            self._others.append(added)

    def kill_node(self) -> None:
        self._cluster.remove_node(self._others.pop(), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _started(start: Callable[[], Any]) -> Any:
    """Return the value of a function that starts a node; retry it if it fails."""
    for _ in range(_STARTS - 1):
        # Ray raises an error of the base class.
        with contextlib.suppress(Exception):
            return start()
    return start()


def _end_processes_of_ray() -> None:
    """Kill the processes of Ray that this process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if b"/ray/session_" in command and is_descendant(folder.name):
                os.kill(int(folder.name), signal.SIGKILL)


def _node() -> dict:
    """Return the arguments of a node, with free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in _AGENT_PORTS]
        for free in sockets:
            free.bind(("", 0))
        numbers = [free.getsockname()[1] for free in sockets]
    ports = dict(zip(_AGENT_PORTS, numbers, strict=True))
    return {"num_cpus": 1, "object_store_memory": _STORE, **ports}


def busy_workers() -> list[int]:
    """Return the process ids of this process's workers that run an item."""
    return processes(b"ray::run_item")


def processes(name: bytes) -> list[int]:
    """Return the process ids of this process's workers whose command has a name."""
    workers = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            is_worker = command.startswith(b"ray::") and name in command
            if is_worker and is_descendant(folder.name):
                workers.append(int(folder.name))
    return sorted(workers)


def is_descendant(process: str) -> bool:
    while process not in ("0", "1"):
        if process == str(os.getpid()):
            return True
        try:
            stat = Path("/proc", process, "stat").read_text()
        except OSError:
            return False
        process = stat.rpartition(")")[2].split()[1]
    return False


def kill_worker_with(file: Path) -> None:
    """Kill this process's worker that has a file open."""
    for process in busy_workers():
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink() == file:
                    os.kill(process, signal.SIGKILL)
                    return
    raise AssertionError(f"no worker has opened {file}")


def kill_a_busy_worker() -> None:
    while not (workers := busy_workers()):
        time.sleep(0.005)
    os.kill(workers[0], signal.SIGKILL)


class Interruptions(threading.Thread):
    """Call functions once a folder has enough matching files; a context manager.

    Only the test's own time limit applies, because a loaded machine may need minutes to
    start a worker.

    Args:
        folder: the folder.
        pattern: pattern of the files.
        actions: pairs of the number of files and the function to call.
    """

    def __init__(
        self, folder: Path, pattern: str, actions: list[tuple[int, Callable[[], None]]]
    ):
        super().__init__(daemon=True)
        self._folder, self._pattern, self._actions = folder, pattern, actions
        self._ended = threading.Event()
        self.done = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self.join()

    def run(self):
        for count, action in self._actions:
            while len(list(self._folder.glob(self._pattern))) < count:
                if self._ended.wait(0.005):
                    return
            action()
            self.done += 1


def kill_driver_worker_and_node(
    nodes: LocalCluster, command: list, parts: Path, run: Callable[[], Any]
) -> Any:
    """Kill a driver after two parts; run the rest while a worker and a node die.

    Args:
        nodes: the cluster.
        command: arguments of Python for the driver.
        parts: the folder in which parts appear, and the pattern of their names.
        run: does what the driver would have done.

    Returns:
        What `run` returns.
    """
    nodes.ensure(2)
    folder = parts.parent
    pattern = parts.name
    driver = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE)
    while len(list(folder.glob(pattern))) < 2:
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(0.005)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    present = len(list(folder.glob(pattern)))
    assert present < 6
    actions = [(present + 1, kill_a_busy_worker), (present + 3, nodes.kill_node)]
    with Interruptions(folder, pattern, actions) as kills:
        result = run()
    assert kills.done == 2
    return result
