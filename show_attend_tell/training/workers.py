"""Describe the processes that train together, of which this is one.

:mod:`training.step_jax` divides each batch among their devices. All start from the same
seed or checkpoint and apply the same updates. Worker 0 is the chief: it alone writes
the run folder and validates, while the others wait.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from show_attend_tell import __version__
from show_attend_tell.data.batch_share import BatchShare
from show_attend_tell.runtime.errors import SetupError


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Workers:
    """The workers of a training; by default this process is the only one."""

    rank: int = 0  # of this worker
    count: int = 1
    # Returns the chief's argument on all workers, which call it in the same order and
    # wait for each other; its pickle has at most 1 kB.
    broadcast: Callable[[Any], Any] = _itself

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the run folder."""
        return self.rank == 0

    @property
    def share(self) -> BatchShare:
        """The share of each batch that this worker reads."""
        return BatchShare(self.rank, self.count)

    def require_same(self, identity: list[str]) -> None:
        """Raise a SetupError unless the chief trains the same with the same package.

        Args:
            identity: names what a worker trains, and with which data.
        """
        # The version first: other versions may name further things. The first
        # difference is reported.
        identity = [f"version {__version__}", *identity]
        expected = self.broadcast(identity)
        for ours, theirs in zip(identity, expected, strict=True):
            if ours != theirs:
                raise SetupError(
                    f"this worker must have worker 0's {theirs}. Received: {ours}; "
                    "install and prepare the same on every worker, and pass the same "
                    "options"
                )


ALONE = Workers()
