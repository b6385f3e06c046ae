"""Compile the training step on JAX: one program for all devices of all workers.

The program is a pure function of the state and a batch. The state are the values of the
model's variables (weights, random state, metrics) and of the optimiser's; every device
has a copy, and part of the batch. XLA adds the gradients of the parts. Each worker is a
process with devices of its own, and passes its part of the batch.

The state is donated: its arrays become those of the next state, so that the device
holds one state and not two.
"""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import ConfigError, plural
from show_attend_tell.training.likelihood import likelihood

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def captioner_step(
    model: Captioner,
    settings: TrainingSettings,
    loss_of: Callable | None = None,
    teachers: Sequence[Captioner] = (),
) -> Callable:
    """Return the step, which is compiled for each length of captions.

    See :func:`training.step.captioner_step`.
    """
    compile_parts(model, settings)
    loss_of = loss_of or functools.partial(likelihood, model)

    def values_of(*batch):
        loss = loss_of(*batch)
        return {**model.get_metrics_result(), "loss": loss}

    return _Step(model, values_of, teachers)


def model_step(
    model: keras.Model,
    values_of: Callable[..., dict],
    jit_compile: bool,
    noise_of: Callable | None = None,
) -> Callable:
    """See :func:`training.step.model_step`; XLA compiles in any case."""
    if noise_of is None:
        return _Step(model, values_of)
    return _Step(model, lambda *batch: values_of(*batch, noise_of(*batch)))


def compile_parts(model: Captioner, settings: TrainingSettings) -> None:
    """Set the precision of the products; the whole step is compiled."""
    model.compile_parts(None, settings.precision, recurrence=settings.precision)


class _State(NamedTuple):
    """The values of all variables of a training, or the variables themselves."""

    weights: list[Any]  # that the gradient is of
    others: list[Any]  # metrics, the state of dropout, a baseline, teachers' weights
    optimizer: list[Any]


class _Step:
    """A compiled update of a model's variables.

    Args:
        model: the model, compiled with a built optimiser.
        values_of: see :func:`training.step.model_step`.
        read: further models whose variables the loss reads. XLA would compile the
            values of variables that are not arguments into the program.
    """

    def __init__(
        self,
        model: keras.Model,
        values_of: Callable[..., dict],
        read: Sequence[keras.Model] = (),
    ):
        others = [*model.non_trainable_variables, *model.metrics_variables]
        for further in read:
            others += further.variables
        variables = _State(
            weights=list(model.trainable_variables),
            others=others,
            optimizer=list(model.optimizer.variables),
        )
        self._variables = variables
        absent: list[Any] = [None] * len(jax.tree.leaves(variables))
        self._everywhere = absent  # the arrays of the last update, on all devices
        self._assigned = absent  # the same on the first device, in the variables

        def loss(weights: list, others: list, batch: tuple) -> tuple:
            """Return the loss; and the values to log, and others after the update."""
            before = zip(
                [*variables.weights, *variables.others],
                [*weights, *others],
                strict=True,
            )
            # Assignments in the scope change these values and not the variables, so
            # that the function is pure.
            with keras.StatelessScope(list(before)) as scope:
                # The metrics are variables too; here they begin anew for each batch.
                model.reset_metrics()
                values = values_of(*batch)
                others = [scope.get_current_value(each) for each in variables.others]
            return values["loss"], (values, others)

        def update(state: _State, batch: tuple) -> tuple[_State, dict]:
            differentiated = jax.grad(loss, has_aux=True)  # by the weights
            gradients, (values, others) = differentiated(
                state.weights, state.others, batch
            )
            before = zip(
                [*variables.weights, *variables.optimizer],
                [*state.weights, *state.optimizer],
                strict=True,
            )
            with keras.StatelessScope(list(before)) as scope:
                model.optimizer.apply(gradients)
                after = _State(
                    [scope.get_current_value(each) for each in variables.weights],
                    others,
                    [scope.get_current_value(each) for each in variables.optimizer],
                )
            return after, values

        self._function = update
        self._update = self._compiled_for(_mesh())

    def _compiled_for(self, mesh: Mesh) -> Any:
        """Return the compiled update on devices, each of which has the whole state."""
        whole = NamedSharding(mesh, PartitionSpec())
        return jax.jit(self._function, donate_argnums=0, out_shardings=whole)

    def lower(self, devices: Sequence[Any], batch: Any) -> Any:
        """Return the update as :class:`jax.stages.Lowered`, for devices of any machine.

        Args:
            devices: the devices, such as those of a described topology.
            batch: a nest of ``jax.ShapeDtypeStruct``, the arguments of a call.
        """
        mesh = Mesh(np.array(devices), ("batch",))

        def shapes(arrays: Any, spec: PartitionSpec) -> Any:
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(
                    x.shape, x.dtype, sharding=NamedSharding(mesh, spec)
                ),
                arrays,
            )

        state = shapes(self._variables, PartitionSpec())
        split = shapes(batch, PartitionSpec("batch"))
        return self._compiled_for(mesh).lower(state, split)

    def __call__(self, *batch: Any) -> dict:
        """Apply an update; see :func:`training.step.model_step`."""
        # An interrupt in between would leave variables whose arrays are gone.
        with _interrupts_delayed():
            state, values = self._update(self._state(), batch)
            # The replicated arrays are kept for the next update, which donates them.
            # The variables get the part on the first device, for validations.
            self._everywhere = jax.tree.leaves(state)
            self._assigned = list(map(_on_first_device, self._everywhere))
            variables = jax.tree.leaves(self._variables)
            for variable, array in zip(variables, self._assigned, strict=True):
                variable.assign(array)
        return jax.tree.map(_on_first_device, values)

    def _state(self) -> _State:
        """Return the values of all variables, in arrays that may be donated.

        A value that was set outside of this step is copied first: two variables may
        share an array, such as a weight and its average, and an array can be donated
        only once.
        """
        sharding = _sharding(PartitionSpec())
        variables, tree = jax.tree.flatten(self._variables)
        # Arrays of the last update, except where somebody assigned another array to the
        # variable since, such as a checkpoint's.
        values = list(self._everywhere)
        for number, variable in enumerate(variables):
            if variable.value is not self._assigned[number]:
                values[number] = jax.make_array_from_process_local_data(
                    sharding, np.array(variable.value)
                )
        return jax.tree.unflatten(tree, values)


def _on_first_device(array: jax.Array) -> jax.Array:
    """Return an array that all devices hold as an array of one device, uncopied.

    The rest of a training computes on one device of its worker.
    """
    return array.addressable_data(0)


def to_device(batch: Any) -> Any:
    """See :func:`training.step.to_device`."""
    return jax.tree.map(_placed, batch)


def _placed(array: np.ndarray) -> jax.Array:
    """Divide an array among the devices by its first axis.

    Devices that cannot divide it, such as the short words of a batch of crops, have a
    copy each.
    """
    is_divisible = len(array) % jax.local_device_count() == 0
    spec = PartitionSpec("batch") if is_divisible else PartitionSpec()
    return jax.make_array_from_process_local_data(_sharding(spec), array)


def total(values: np.ndarray) -> float:
    """See :func:`training.step.total`."""
    return float(jax.numpy.sum(to_device(values)))


def require_divisible(rows: int, name: str) -> None:
    """See :func:`training.step.require_divisible`."""
    count = device_count()
    if rows % count:
        raise ConfigError(
            f"`{name}` must be a multiple of the {count} devices, as a batch is "
            f"divided among them. Received: {rows}; change training.batch_size, or "
            "choose devices with CUDA_VISIBLE_DEVICES"
        )


def device_count() -> int:
    """See :func:`training.step.device_count`."""
    return len(jax.devices())


def describe_devices() -> str:
    """See :func:`training.step.describe_devices`."""
    devices = jax.devices()
    return f"{plural(len(devices), 'device')} ({devices[0].device_kind})"


@functools.cache
def _mesh() -> Mesh:
    """Return all devices of all workers, in one axis."""
    return Mesh(np.array(jax.devices()), ("batch",))


def _sharding(spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(_mesh(), spec)


def free_memory() -> int | None:
    """See :func:`training.step.free_memory`."""
    statistics = [device.memory_stats() for device in jax.local_devices()]
    if jax.process_count() > 1 or not all(statistics):
        return None  # processors have no statistics
    return min(each["bytes_limit"] - each["bytes_in_use"] for each in statistics)


def table_on_device(parts: Iterator[np.ndarray], rows: int) -> jax.Array:
    """See :func:`training.step.table_on_device`."""
    everywhere = _sharding(PartitionSpec())
    # The table is donated, so that a device never holds it twice.
    write = jax.jit(
        lambda table, part, start: jax.lax.dynamic_update_slice(
            table, part, (start, 0, 0)
        ),
        donate_argnums=0,
        out_shardings=everywhere,
    )
    start = 0
    for part in parts:
        if not start:
            shape = (rows + 1, *part.shape[1:])
            table = jax.numpy.zeros(shape, part.dtype, device=everywhere)
        table = write(table, part, start)
        start += len(part)
    return table


def gather(table: jax.Array, rows: np.ndarray) -> jax.Array:
    """See :func:`training.step.gather`."""
    return _take(table, to_device(rows))


@jax.jit
def _take(table: jax.Array, rows: jax.Array) -> jax.Array:
    return jax.numpy.take(table, rows, axis=0)  # (N + 1, L, D) -> (B, L, D)


@contextlib.contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Handle the signals that end a training after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []
    handlers: dict[int, Any] = {n: signal.getsignal(n) for n in _SIGNALS}
    # SIG_DFL, SIG_IGN and handlers in C are no functions that could be called later.
    handlers = {n: handler for n, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in received:
        handlers[number](number, None)
