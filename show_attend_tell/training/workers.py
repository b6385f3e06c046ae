"""Train synchronously on several workers, each with its part of every batch.

One process is one worker with one replica. Each draws the same global batch and takes
its rows of it. Worker r has B_r captions, and g_r, the gradient of their mean loss. An
all-reduce in the replica context of ``tf.distribute.MultiWorkerMirroredStrategy`` adds
gradients, metrics and the number of captions; then every worker applies the gradient of
the mean loss of all captions::

    g = sum_r B_r g_r / sum_r B_r

Clipping, the logged norm and the average of weights (EMA) are computed from g, because
the optimiser sees only g. Metrics hold sums and their counts, which are added.

Variables are ordinary ones, not the strategy's mirrored ones: all workers start from
the chief's values and apply the same sums, so they stay equal on processors of one
kind. Under the strategy's scope Keras 3 would clip the gradient of each worker before
it adds them, and would not update the average of weights; its ``fit`` fails there.

Worker 0 is the chief: it alone writes the run folder and validates, while the others
wait. A worker that is asked to end (SIGTERM, Ctrl-C) adds that to the sums of its next
update, after which all end together, and the chief writes the checkpoint.
"""

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from show_attend_tell import __version__
from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import (
    ClusterError,
    ConfigError,
    ShowAttendTellError,
    one_line,
)

OBJECTIVES = ("likelihood", "cider")
_TEXT = 2048  # bytes of a text that workers exchange
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """The workers of a training, of which this process is one.

    Args:
        strategy: their strategy, None for a worker alone.
        rank: number of this worker; the chief's is 0.
        count: number of workers.
    """

    def __init__(self, strategy: Any = None, rank: int = 0, count: int = 1):
        self.rank, self.count, self._strategy = rank, count, strategy
        self._asked: tuple | None = None  # the signal to end, and its handler
        self._chiefs_work = False
        if count > 1:
            # Whether this worker was asked to end, and how many were.
            self.ending = tf.Variable(0.0, trainable=False)
            self.ended = tf.Variable(0.0, trainable=False)
            self._eager_sum = tf.function(self.sum)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the run folder."""
        return self.rank == 0

    @property
    def part(self) -> tuple[int, int]:
        """The part of each batch that this worker computes, (rank, count)."""
        return self.rank, self.count

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

    def separate_dropout(self, model: keras.Model) -> None:
        """Give every worker but the chief other dropout masks.

        Args:
            model: the model, whose variables are the chief's.
        """
        for layer in model.layers if self.rank else ():
            generator = getattr(layer, "seed_generator", None)  # of a dropout layer
            if generator is not None:
                seed, number = np.asarray(generator.state)
                # Offset so that it does not collide with the layers' consecutive seeds.
                other = (int(seed) + 1_000_003 * self.rank) % 2**32
                generator.state.assign(np.array([other, number], np.uint32))

    def total(self, numbers: Sequence[float]):
        """Return the sums of the workers' numbers, outside of graphs; float64."""
        values = np.asarray(numbers, np.float64)
        if self.count == 1:
            return values
        with self._named_failures():
            return self._eager_sum([tf.constant(values)])[0].numpy()

    def gather(self, text: str) -> list[str]:
        """Return the texts of all workers, in the order of their ranks."""
        data = text.encode()[:_TEXT]
        rows = np.zeros((self.count, _TEXT))
        rows[self.rank, : len(data)] = np.frombuffer(data, np.uint8)
        rows = self.total(rows).astype(np.uint8)
        return [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]

    def copy_from_chief(self, variables: Sequence) -> None:
        """Set the variables of every worker to the chief's values, to the bit."""
        if self.count == 1:
            return
        arrays = [np.asarray(variable) for variable in variables]
        flat = np.frombuffer(b"".join(a.tobytes() for a in arrays), np.int32)
        flat = flat if self.is_chief else np.zeros_like(flat)
        with self._named_failures():
            flat = self._eager_sum([tf.constant(flat)])[0].numpy()
        data, start = flat.tobytes(), 0
        for variable, array in zip(variables, arrays, strict=True):
            end = start + array.nbytes
            value = np.frombuffer(data[start:end], array.dtype)
            variable.assign(value.reshape(array.shape))
            start = end

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Raise an error on all workers if the body of one raises an error.

        Raises:
            ClusterError: another worker's body has failed.
        """
        if self.count == 1:
            yield
            return
        fault = None
        try:
            yield
        except (ShowAttendTellError, OSError) as error:
            fault = error
        text = "" if fault is None else f"on {socket.gethostname()}: {one_line(fault)}"
        faults = self.gather(text)
        if fault is not None:
            raise fault
        for rank, other in enumerate(faults):
            if other:
                raise ClusterError(f"worker {rank} {other}")

    def require_same(self, values: dict[str, str]) -> None:
        """Raise a ClusterError unless all workers have the chief's values.

        Args:
            values: what must be the same, by name.
        """
        if self.count == 1:
            return
        values = {"version of the package": __version__, **values}
        texts = self.gather(json.dumps([socket.gethostname(), values]))
        _, expected = json.loads(texts[0])
        for rank, text in enumerate(texts):
            host, theirs = json.loads(text)
            for name, value in expected.items():
                if theirs.get(name) != value:
                    raise ClusterError(
                        f"worker {rank} on {host}: the {name} must be worker 0's, "
                        f"{value}. Received: {theirs.get(name)}; install and prepare "
                        "the same on every worker, and pass the same options"
                    )

    @contextlib.contextmanager
    def _named_failures(self) -> Iterator[None]:
        """Raise a ClusterError if another worker has ended or does not answer."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1 or not _is_of_communication(error):
                raise
            raise ClusterError(
                f"worker {self.rank}: another worker has ended or does not answer "
                f"({_reason(error)}); start all workers again with --resume"
            ) from None

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Return a context in which workers that receive a signal end together.

        :meth:`raise_if_ended` passes the signal on.

        Raises:
            ClusterError: another worker has ended.
        """
        main = threading.current_thread() is threading.main_thread()
        if self.count == 1 or not main:  # only the main thread receives signals
            with self._named_failures():
                yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: old for number, old in before.items() if callable(old)}

        def ask(number: int, frame: object) -> None:
            self._asked = number, before[number]
            if self._chiefs_work:
                before[number](number, frame)

        for number in before:
            signal.signal(number, ask)
        try:
            with self._named_failures():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def chiefs_work(self) -> Iterator[None]:
        """Return a context in which the chief works alone, and may be interrupted."""
        self._chiefs_work = True
        try:
            yield
        finally:
            self._chiefs_work = False

    def raise_if_ended(self) -> None:
        """Raise KeyboardInterrupt on all workers after the same update.

        In a worker that received a signal, the handler of the signal raises.
        """
        if self.count == 1:
            return
        if float(self.ended) > 0:
            if self._asked:
                number, handler = self._asked
                handler(number, None)
            raise KeyboardInterrupt
        if self._asked:
            self.ending.assign(1.0)


ALONE = Workers()


def _is_of_communication(error: tf.errors.OpError) -> bool:
    kinds = (
        *(tf.errors.UnavailableError, tf.errors.DeadlineExceededError),
        *(tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError),
        *(tf.errors.FailedPreconditionError, tf.errors.UnknownError),
    )
    return isinstance(error, kinds) and "ollective" in str(error)


def _reason(error: tf.errors.OpError) -> str:
    """Return the line of an error that names the cause."""
    lines = [line for line in str(error).splitlines() if "ollective" in line]
    return one_line(lines[-1].partition("aborted by: ")[2] or lines[-1])


def require_objective(settings: TrainingSettings, workers: Workers) -> None:
    """Raise a ConfigError if several workers cannot train the objective."""
    if workers.count > 1 and settings.objective not in OBJECTIVES:
        raise ConfigError(
            f"`training.objective` must be {' or '.join(OBJECTIVES)} on several "
            f"workers. Received: {settings.objective!r}; train it on one machine"
        )


def make_worker_step(
    model: Captioner,
    workers: Workers,
    compute_loss: Callable | None = None,
    compile_fn: Callable | None = None,
) -> Callable:
    """Return a function that applies an update from the parts of a batch.

    Args:
        model: a compiled model.
        workers: the workers, more than one.
        compute_loss: returns the mean loss () of a batch's captions, by default with
            the model's loss. Its arguments are inputs of the model, targets, and more.
        compile_fn: compiles the gradient, if given.

    Returns:
        A function that returns metrics and ``loss`` of the global batch.
    """
    weights = model.trainable_weights

    def model_loss(x, targets, weight=None):
        outputs = model(x, training=True)
        return model.compute_loss(x, targets, outputs, weight, training=True)

    def measure(*batch):
        """Return B_r g_r of each weight, B_r times the loss, and B_r."""
        present = tf.reduce_any(tf.not_equal(batch[1], PAD), axis=1)  # (B_r,)
        captions = tf.reduce_sum(tf.cast(present, tf.float32))
        with tf.GradientTape() as tape:
            # Scale the loss: scaling the gradients would write another 30 MB.
            loss = captions * (compute_loss or model_loss)(*batch)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        # Reshaped to tensors: TensorFlow returns the embedding's gradient as slices.
        return *(tf.reshape(g, g.shape) for g in gradients), loss, captions

    measure = compile_fn(measure) if compile_fn else measure

    def step(*batch):
        model.reset_metrics()
        measured = measure(*batch)
        metrics = [v for metric in model.metrics for v in metric.variables]
        parts = [*measured, workers.ending, *(metric.value for metric in metrics)]
        reduced = workers.sum([tf.convert_to_tensor(value) for value in parts])
        count = len(measured)
        *sums, loss, captions = reduced[:count]
        workers.ended.assign(reduced[count])
        for variable, value in zip(metrics, reduced[count + 1 :], strict=True):
            variable.assign(value)
        if model.hard_attention is not None:
            model.hard_attention.move_baseline()
        captions = tf.maximum(captions, 1.0)
        model.optimizer.apply([gradient / captions for gradient in sums])
        return {**model.get_metrics_result(), "loss": loss / captions}

    return step
