"""Round matrices to 8 bits per number, with one scale per column."""

from typing import Any

import numpy as np
import numpy.typing as npt

_LARGEST = 127  # of the symmetric range of int8


def quantise(
    kernel: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round a kernel or matrix to 8 bits per weight with one scale per output channel.

    Args:
        kernel: (..., outputs) float32.

    Returns:
        q (..., outputs) int8 and the scales (outputs,) float32.
    """
    rest = tuple(range(kernel.ndim - 1))
    scale = np.abs(kernel).max(axis=rest) / np.float32(_LARGEST)  # -> (outputs,)
    scale = np.where(scale > 0, scale, np.float32(1))  # of channels of zeros
    q = np.clip(np.rint(kernel / scale), -_LARGEST, _LARGEST)
    return q.astype(np.int8), scale.astype(np.float32)


def dequantise(q: np.ndarray, scale: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the float32 kernel of :func:`quantise`'s values; infinity if too large."""
    kernel: npt.NDArray[np.float32] = q.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        kernel *= scale  # in place: another array of this size doubles the time
    return kernel
