"""Train synchronously on several workers, each with its share of every batch.

One process is one worker with one replica. Each draws the same global batch and takes
its rows of it. Worker r has B_r captions, and g_r, the gradient of their mean loss. An
all-reduce in the replica context of ``tf.distribute.MultiWorkerMirroredStrategy`` adds
gradients, metrics and the number of captions; then every worker applies the gradient of
the mean loss of all captions::

    g = sum_r B_r g_r / sum_r B_r

Clipping, the logged norm and the average of weights (EMA) are computed from g, because
the optimiser sees only g. Metrics hold sums and their counts, which are added.

Variables are ordinary ones, not the strategy's mirrored ones: all workers start from
the same seed or checkpoint and apply the same sums, so they stay equal on processors of
one kind. Under the strategy's scope Keras 3 would clip the gradient of each worker
before it adds them, and would not update the average of weights; its ``fit`` fails
there.

Worker 0 is the chief: it alone writes the run folder and validates, while the others
wait. A worker that receives SIGTERM or Ctrl-C adds this to the sums of its next
update. After that update all end together, and the chief writes the checkpoint.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import keras
import numpy as np
from pydantic import Field, TypeAdapter

from show_attend_tell import __version__
from show_attend_tell.data.batch_share import BatchShare
from show_attend_tell.runtime.errors import (
    ConfigError,
    SetupError,
    ShowAttendTellError,
    one_line,
)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TEXT = 2048  # bytes of a text that workers exchange

logger = logging.getLogger(__name__)


class Workers:
    """The workers of a training, of which this process is one.

    Args:
        strategy: their strategy, None for a worker alone.
        rank: number of this worker; the chief's is 0.
        count: number of workers.
    """

    def __init__(self, strategy: Any = None, rank: int = 0, count: int = 1):
        self.rank = rank
        self.count = count
        self._strategy = strategy
        self._asked: int | None = None  # the signal to end
        self._handlers: dict = {}  # of the signals, while training
        self.failed_together = False  # whether all workers have raised an error
        if count > 1:
            import tensorflow as tf

            # Whether this worker was asked to end, and how many were.
            self.ending = tf.Variable(0.0, trainable=False)
            self.ended = tf.Variable(0.0, trainable=False)
            self._eager_sum = tf.function(self.sum)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the run folder."""
        return self.rank == 0

    @property
    def share(self) -> BatchShare:
        """The share of each batch that this worker computes."""
        return BatchShare(self.rank, self.count)

    def require_divisible(self, rows: int, name: str) -> None:
        """Raise a ConfigError unless `rows` can be divided among the workers."""
        if rows % self.count:
            raise ConfigError(
                f"`{name}` must be a multiple of the {self.count} workers, as the "
                f"batch is divided among them. Received: {rows}; change "
                "training.batch_size or the number of workers"
            )

    def sum(self, values: Sequence) -> list:
        """Return the sums of the workers' tensors, which have the same shapes.

        All workers call it in the same order. The tensors are joined, so that one
        message passes between two workers rather than one for each tensor.

        A sum waits without a limit, because a worker may compile a graph much later
        than another, and TensorFlow keeps a thread for each sum with a limit. The death
        of a worker raises an error immediately.

        Args:
            values: tensors of one type.
        """
        if self.count == 1:
            return list(values)
        import tensorflow as tf

        def reduce(flat):
            context = tf.distribute.get_replica_context()
            # The strategy requires a copy on this replica's device.
            return context.all_reduce("SUM", tf.identity(flat))

        flat = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
        flat = self._strategy.run(reduce, args=(flat,))
        sizes = [value.shape.num_elements() for value in values]
        parts = tf.split(flat, sizes)
        return [
            tf.reshape(part, value.shape)
            for part, value in zip(parts, values, strict=True)
        ]

    def total(self, numbers: np.ndarray | Sequence[float]) -> np.ndarray:
        """Return the sum of the workers' arrays, outside of graphs."""
        numbers = np.asarray(numbers)
        if self.count == 1:
            return numbers
        import tensorflow as tf

        with self._named_failures():
            return self._eager_sum([tf.constant(numbers)])[0].numpy()

    def gather(self, text: str) -> list[str]:
        """Return the texts of all workers, in the order of their ranks."""
        data = text.encode()[:_TEXT]
        rows = np.zeros((self.count, _TEXT))
        rows[self.rank, : len(data)] = np.frombuffer(data, np.uint8)
        rows = self.total(rows).astype(np.uint8)
        return [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]

    def separate_dropout(self, model: keras.Model) -> None:
        """Give every worker but the chief other dropout masks."""
        for layer in model.layers if self.rank else ():
            generator = getattr(layer, "seed_generator", None)  # of a dropout layer
            if generator is not None:
                seed, number = np.asarray(generator.state)
                # Offset so that it does not collide with the layers' consecutive seeds.
                other = (int(seed) + 1_000_003 * self.rank) % 2**32
                generator.state.assign(np.array([other, number], np.uint32))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Raise an error on all workers if the body raises an error on one of them.

        Raises:
            SetupError: the body has failed on another worker.
        """
        if self.count == 1:
            yield
            return
        fault = None
        try:
            yield
        except (ShowAttendTellError, OSError, FloatingPointError) as error:
            fault = error
        text = "" if fault is None else f"on {socket.gethostname()}: {one_line(fault)}"
        faults = self.gather(text)
        self.failed_together = any(faults)
        if fault is not None:
            raise fault
        for rank, other in enumerate(faults):
            if other:
                raise SetupError(f"worker {rank} {other}")

    def require_same(self, identity: list[str]) -> None:
        """Raise a SetupError unless the chief trains the same with the same package.

        Args:
            identity: names what a worker trains, and with which data.
        """
        if self.count == 1:
            return
        identity = [f"version {__version__}", *identity]
        expected = self.gather("\n".join(identity))[0].split("\n")
        for ours, theirs in zip(identity, expected, strict=False):
            if ours != theirs:
                raise SetupError(
                    f"this worker must have worker 0's {theirs}. Received: {ours}; "
                    "install and prepare the same on every worker, and pass the same "
                    "options"
                )

    @contextlib.contextmanager
    def _named_failures(self) -> Iterator[None]:
        """Raise a SetupError if another worker has ended or does not answer."""
        if self.count == 1:
            yield
            return
        import tensorflow as tf

        try:
            yield
        except tf.errors.OpError as error:
            # The errors of the all-reduce have "collective" in their text.
            lines = [line for line in str(error).splitlines() if "ollective" in line]
            if not lines:
                raise
            reason = one_line(lines[-1].partition("aborted by: ")[2] or lines[-1])
            raise SetupError(
                f"worker {self.rank}: another worker has ended or does not answer "
                f"({reason}); start all workers again with --resume"
            ) from None

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Return a context in which workers that receive a signal end together.

        :meth:`raise_if_ended` passes the signal on.

        Raises:
            SetupError: another worker has ended.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if self.count > 1 and is_main:  # only the main thread receives signals
            handlers = {number: signal.getsignal(number) for number in _SIGNALS}
            self._handlers = {n: old for n, old in handlers.items() if callable(old)}
        for number in self._handlers:
            signal.signal(number, self._ask)
        try:
            with self._named_failures():
                yield
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        """Handle a signal: end after the next update."""
        self._asked = number

    def raise_if_ended(self) -> None:
        """Raise KeyboardInterrupt on all workers after the same update.

        In a worker that received a signal, the handler of the signal raises.
        """
        if self.count == 1:
            return
        if float(self.ended) > 0:
            if self._asked is not None:
                self._handlers[self._asked](self._asked, None)
            raise KeyboardInterrupt
        if self._asked is not None:
            self.ending.assign(1.0)


ALONE = Workers()


def join() -> Workers:
    """Join the workers of ``TF_CONFIG``; wait until all have started.

    Call it before TensorFlow computes anything.

    Raises:
        SetupError: ``TF_CONFIG`` is malformed, the workers cannot connect, or one has
            several devices.
    """
    rank, addresses = read_configuration(os.environ.get("TF_CONFIG", ""))
    count = len(addresses)
    if count == 1:
        return Workers()
    if keras.backend.backend() != "tensorflow":
        raise SetupError(
            f"`TF_CONFIG` has {count} workers, which train together on TensorFlow "
            f"alone. Received: the backend {keras.backend.backend()}; set "
            "KERAS_BACKEND=tensorflow, or unset TF_CONFIG"
        )
    import tensorflow as tf

    logger.info("waiting for the workers at %s", ", ".join(addresses))
    handlers = {}
    try:
        with contextlib.suppress(ValueError):  # of a thread, which receives no signals
            for number in _SIGNALS:  # while it waits, TensorFlow calls no handler
                handlers[number] = signal.signal(number, signal.SIG_DFL)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        raise SetupError(
            f"worker {rank} of {count} at {addresses[rank]}: the workers cannot join "
            f"({one_line(error)}); start every worker of TF_CONFIG at a free port that "
            "the others reach"
        ) from None
    finally:
        for number, handler in handlers.items():  # TensorFlow has set its own
            signal.signal(number, handler)
    if strategy.num_replicas_in_sync != count:
        raise SetupError(
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
        SetupError: the text is not a configuration of workers.
    """
    try:
        values = TypeAdapter(_Configuration).validate_json(text)
        addresses = values.cluster["worker"]
        rank = values.task.index
        addresses[rank]  # raises an IndexError if there is none
    except (ValueError, LookupError):
        raise SetupError(
            '`TF_CONFIG` must be {"cluster": {"worker": ["HOST:PORT", ...]}, "task": '
            f'{{"type": "worker", "index": K}}}}. Received: {one_line(text, 80)}; give '
            "every worker the same addresses and its own K, from 0"
        ) from None
    return rank, addresses
