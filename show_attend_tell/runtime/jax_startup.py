"""Start JAX with float32 products, on the GPU if the machine has one."""

import os
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.errors import SetupError, one_line
from show_attend_tell.runtime.tensorflow_startup import keep_memory

# The kernel's driver shows the first GPU here, and WSL's driver shows any GPU.
_GPU_FILES = ("/dev/nvidia0", "/dev/dxg")


def start_jax() -> None:
    """Import JAX and find its devices.

    Products of float32 numbers are computed in float32: on a GPU JAX would round their
    factors to TensorFloat-32, with which captions differ from those of the other
    engines.

    Raises:
        SetupError: the machine has a GPU that JAX does not use, although
            ``JAX_PLATFORMS`` does not choose another device; or JAX finds no device.
        ImportError: JAX is not installed.
    """
    keep_memory()
    import jax

    try:
        platform = jax.default_backend()
    except RuntimeError as error:
        raise SetupError(
            f"JAX finds no device: {one_line(error)}; unset JAX_PLATFORMS, or run pip "
            "install 'jax[cuda12]' or 'jax[tpu]'"
        ) from None
    # Without a plug-in for the GPU JAX takes the processor, which is many times slower.
    if platform == "cpu" and "JAX_PLATFORMS" not in os.environ and _has_nvidia_gpu():
        raise SetupError(
            "this machine has an NVIDIA GPU, and JAX has no plug-in that uses it; run "
            "pip install 'jax[cuda12]', or set JAX_PLATFORMS=cpu to compute without it"
        )
    config: Any = jax.config  # its methods have no types
    config.update("jax_default_matmul_precision", "float32")


def _has_nvidia_gpu() -> bool:
    return any(Path(file).exists() for file in _GPU_FILES)
