"""Run a function once on every node of a Ray cluster, to verify the nodes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from show_attend_tell.runtime.errors import ClusterError, one_line

# Of the first process on a node. A loaded machine takes a minute to import Ray.
_START_SECONDS = 300.0


def run_on_each_node(
    ray: Any, function: Callable[..., Any], *arguments: object
) -> Iterator[tuple[str, Any]]:
    """Run a function on every node that is alive.

    A node that dies meanwhile is left out: no work will be given to it.

    Args:
        ray: the module, connected to a cluster.
        function: a function; one of this package must be of the same version there.
        *arguments: its arguments.

    Yields:
        The name of each node's machine, and the value of the function; the error of
        Ray in its place if the function cannot run there.

    Raises:
        ClusterError: a node starts no process in five minutes.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(function)
    found = {}
    for node in ray.nodes():
        if node["Alive"]:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = remote.options(scheduling_strategy=strategy)
            found[task.remote(*arguments)] = node
    end = time.monotonic() + _START_SECONDS
    for reference, node in found.items():
        host = node["NodeManagerHostname"]
        try:
            left = max(end - time.monotonic(), 0.0)
            value = ray.get(reference, timeout=left)
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(
                f"{host}: started no process within {_START_SECONDS:.0f} seconds; "
                "free its processors and memory, or remove the node"
            ) from None
        except ray.exceptions.RayError as error:
            alive = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
            if node["NodeID"] not in alive:
                continue
            value = ClusterError(one_line(error))
        yield host, value
