"""Choose the training step of the backend that Keras runs on.

The objectives and the loop call these functions and know no backend. A step is a
function of a batch of tensors that applies one update of the model and returns the
values to log, among them ``loss``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from show_attend_tell.config.settings import TrainingSettings
from show_attend_tell.models.captioner import Captioner


def _backend() -> Any:
    """Return the module of the backend's step."""
    if keras.backend.backend() == "jax":
        from show_attend_tell.training import step_jax

        return step_jax
    from show_attend_tell.training import step_tensorflow

    return step_tensorflow


def captioner_step(
    model: Captioner,
    settings: TrainingSettings,
    loss_of: Callable | None = None,
    teachers: Sequence[Captioner] = (),
) -> Callable:
    """Return the compiled training step of a captioner.

    It returns the model's metrics of the batch too. A batch is x, the targets and, in
    self-critical training, the captions' weights; see :meth:`Captioner.compute_loss`.

    Args:
        model: a captioner that is compiled before the first update.
        settings: the settings of training.
        loss_of: function of a batch that returns the loss, the likelihood by
            default.
        teachers: further models whose weights the loss reads.
    """
    return _backend().captioner_step(model, settings, loss_of, teachers)


def model_step(
    model: keras.Model,
    values_of: Callable[..., dict],
    jit_compile: bool,
    noise_of: Callable | None = None,
) -> Callable:
    """Return the compiled training step of any model.

    Args:
        model: the model, which is compiled before the first update.
        values_of: returns ``loss`` and other values to log, from the batch's tensors.
        jit_compile: whether XLA compiles on TensorFlow; JAX always does.
        noise_of: returns the random numbers of a batch, the last argument of
            ``values_of``. TensorFlow draws them outside XLA, which would spend a fifth
            of a step of DRAW on them on a CPU.
    """
    return _backend().model_step(model, values_of, jit_compile, noise_of)


def compile_parts(model: Captioner, settings: TrainingSettings) -> None:
    """Prepare a captioner that a step reads without training it."""
    _backend().compile_parts(model, settings)


def to_device(batch: Any) -> Any:
    """Return a nest of arrays as tensors on the devices of the step.

    Args:
        batch: a nest of arrays (B, ...), B as in :func:`require_divisible`; of several
            workers each passes its share of the rows.
    """
    return _backend().to_device(batch)


def total(values: np.ndarray) -> float:
    """Return the sum of the arrays (B, ...) that the workers pass."""
    return _backend().total(values)


def require_divisible(rows: int, name: str) -> None:
    """Raise an error unless the devices of the step can divide a batch.

    Args:
        rows: B, the rows of each array of a batch, of all workers together.
        name: the setting that decides it.

    Raises:
        ConfigError: B is not a multiple of the number of devices.
    """
    _backend().require_divisible(rows, name)


def device_count() -> int:
    """Return the number of devices that divide a batch, of all workers together."""
    return _backend().device_count()


def describe_devices() -> str:
    """Return the number and the kind of the devices of the step, for a message."""
    return _backend().describe_devices()


def free_memory() -> int | None:
    """Return the free bytes of each accelerator, None where there is no table on it.

    A table is kept by JAX alone, on GPUs and TPUs of one process.
    """
    return _backend().free_memory()


def table_on_device(parts: Iterator[np.ndarray], rows: int) -> Any:
    """Return one table in the memory of every device, of parts read one by one.

    Args:
        parts: arrays (n, L, D) of one type, `rows` rows in all; at least one.
        rows: N.

    Returns:
        (N + 1, L, D), the last row zero.
    """
    return _backend().table_on_device(parts, rows)


def gather(table: Any, rows: np.ndarray) -> Any:
    """Return rows of a table on the devices, (B, L, D), divided as a batch is."""
    return _backend().gather(table, rows)
