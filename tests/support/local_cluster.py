"""A Ray cluster of two nodes on this machine, whose workers and nodes are killed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_TMPDIR", "/tmp/ray-tests")  # a socket's path must be short

_STORE = 80_000_000  # bytes
# A dead node is noticed after two seconds in place of half a minute.
_SYSTEM = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}


class LocalCluster:
    """A head without processors, and nodes of one processor each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        head = {**_node(0), "include_dashboard": False, "_system_config": _SYSTEM}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address
        self.nodes = []

    def add_node(self, **arguments):
        node = self._cluster.add_node(**{**_node(1), **arguments})
        self.nodes.append(node)
        return node

    def ensure(self, count: int) -> None:
        while len(self.nodes) < count:
            self.add_node()

    def kill_node(self, node=None) -> None:
        node = node or self.nodes[-1]
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _node(processors: int) -> dict:
    return {"num_cpus": processors, "object_store_memory": _STORE}


def busy_workers() -> list[int]:
    """Return the process ids of this process's workers that run a task."""
    return processes(b"ray::Worker.run")


def processes(name: bytes) -> list[int]:
    """Return the process ids of this process's actors whose command has a name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        of_ray = command.startswith(b"ray::") and name in command
        if of_ray and is_descendant(folder.name):
            found.append(int(folder.name))
    return sorted(found)


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


def kill_a_busy_worker() -> None:
    end = time.monotonic() + 60
    while not (found := busy_workers()):
        assert time.monotonic() < end, "no worker runs a task"
        time.sleep(0.005)
    os.kill(found[0], signal.SIGKILL)


class Interruptions(threading.Thread):
    """Call functions when a folder has given numbers of matching files."""

    def __init__(
        self, folder: Path, pattern: str, actions: list[tuple[int, Callable[[], None]]]
    ):
        super().__init__(daemon=True)
        self._folder, self._pattern, self._actions = folder, pattern, actions
        self.done = 0
        self.start()

    def run(self):
        end = time.monotonic() + 240
        for count, action in self._actions:
            while len(list(self._folder.glob(self._pattern))) < count:
                if time.monotonic() > end:
                    return
                time.sleep(0.005)
            action()
            self.done += 1
