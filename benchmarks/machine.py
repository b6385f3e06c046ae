"""Describe the machine and measure the rates that limit any program on it."""

import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks import turns
from show_attend_tell.runtime import machine
from show_attend_tell.runtime.machine import git_revision

# Instruction sets that bars depend on, by their names in /proc/cpuinfo.
SETS = {"avx512f": "AVX-512", "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX-BF16"}
_LIBRARIES = ("tensorflow", "keras", "torch", "jax", "numpy", "h5py")
_SIDES = ((2048, 2048, 2048), (12544, 512, 512))  # the second: 64 photos projected
_COPY = 2**27  # bytes of each copied array: larger than any cache


def _cpuinfo() -> dict[str, str]:
    """Return the first processor of /proc/cpuinfo; empty without that file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def instruction_sets() -> dict[str, bool | None]:
    """Return whether the processor has each of :data:`SETS`; None if unknown."""
    flags = machine.instruction_sets()
    if flags is None:
        return dict.fromkeys(SETS.values())
    return {name: flag in flags for flag, name in SETS.items()}


def _memory() -> float | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(text.split("MemTotal:")[1].split()[0]) / 2**20


def _versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in _LIBRARIES if find_spec(name)}
    return {"python": platform.python_version(), **found}


def describe() -> dict:
    """Return a description of the machine, without measurements."""
    return {
        "date": date.today().isoformat(),
        "revision": git_revision(),
        "processor": _cpuinfo().get("model name") or platform.processor(),
        "cores": turns.cores(),
        "memory_gib": _memory(),
        "instruction_sets": instruction_sets(),
        "versions": _versions(),
        "rates": {},
    }


def measure(quick: bool = False) -> dict:
    """Return a description of the machine and its ``rates``, see :func:`rates`."""
    return {**describe(), "rates": rates(quick)}


def rates(quick: bool = False) -> dict[str, float]:
    """Measure the rates that limit any program.

    ``float32`` and ``bfloat16`` are operations a second in matrix products, the better
    of PyTorch and TensorFlow; ``bandwidth`` is bytes a second of a large copy by all
    processors, read and written.
    """
    shapes = ((64, 64, 64),) if quick else _SIDES
    measured = [turns.run_in_process(tensorflow_rates, shapes=shapes)]
    if find_spec("torch"):
        measured.append(turns.run_in_process(torch_rates, shapes=shapes))
    found = {kind: max(m[kind] for m in measured) for kind in measured[0]}
    return {**found, "bandwidth": bandwidth(2**20 if quick else _COPY)}


def processor_ticks() -> tuple[int, int] | None:
    """Return the ticks that the host gave to others, and all; None if unknown."""
    try:
        line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
        ticks = [int(word) for word in line.split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, IndexError, ValueError):
        return None


def changes(
    before: dict[str, float], after: dict[str, float], ticks: Sequence = (None, None)
) -> str:
    """Return a sentence on how far the machine changed during the measurements.

    Args:
        before: :func:`rates` before the first row.
        after: those after the last.
        ticks: :func:`processor_ticks` at both times.
    """
    parts = [f"{name} {after[name] / before[name]:.2f}" for name in before]
    text = f"rates after the last row over those before the first: {', '.join(parts)}"
    if None not in ticks:
        (taken, total), (taken_at_end, total_at_end) = ticks
        share = (taken_at_end - taken) / max(total_at_end - total, 1)
        text += f"; {share:.1%} of the processors' time was taken by the host"
    return text


def lines(machine: dict) -> list[str]:
    """Return the description of a machine in words."""
    sets = machine["instruction_sets"]
    has = [name for name, there in sets.items() if there]
    lacks = [name for name, there in sets.items() if there is False]
    unknown = [name for name, there in sets.items() if there is None]
    words = [", ".join(has)] if has else []
    words += [f"without {', '.join(lacks)}"] if lacks else []
    words += [f"unknown: {', '.join(unknown)}"] if unknown else []
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    rates = machine["rates"]
    return [
        f"{machine['date']}, revision {machine['revision']}",
        f"{machine['processor']}, {machine['cores']} cores; {'; '.join(words)}",
        versions,
        f"matrix products: float32 {rates['float32'] / 1e9:.0f}, bfloat16 "
        f"{rates['bfloat16'] / 1e9:.0f} GFLOP/s; copying: "
        f"{rates['bandwidth'] / 1e9:.1f} GB/s read and written",
    ]


def best_rate(work: Callable[[], object], amount: float, seconds: float = 1.0) -> float:
    """Repeat `work` for some time; return the best `amount` a second."""
    work()
    fastest = float("inf")
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return amount / fastest


def bandwidth(size: int) -> float:
    """Return bytes a second, read and written, of a copy by all processors."""
    parts = turns.cores()
    sources = [np.ones(size // 8) for _ in range(parts)]
    copies = [np.zeros(size // 8) for _ in range(parts)]
    with ThreadPoolExecutor(parts) as pool:
        return best_rate(
            lambda: list(pool.map(np.copyto, copies, sources)), 2 * parts * size
        )


def torch_rates(shapes) -> dict[str, float]:
    """Return PyTorch's operations a second, by dtype."""
    import torch

    torch.set_num_threads(turns.cores())
    rates = {}
    for kind in (torch.float32, torch.bfloat16):
        pairs = [
            (torch.randn(p, q).to(kind), torch.randn(q, r).to(kind))
            for p, q, r in shapes
        ]
        name = str(kind).removeprefix("torch.")
        rates[name] = _best_product(torch.matmul, pairs, shapes)
    return rates


def tensorflow_rates(shapes) -> dict[str, float]:
    """Return TensorFlow's operations a second, by dtype."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    import tensorflow as tf

    rates = {}
    for kind in ("float32", "bfloat16"):
        pairs = [
            (
                tf.cast(tf.random.normal((p, q)), kind),
                tf.cast(tf.random.normal((q, r)), kind),
            )
            for p, q, r in shapes
        ]
        rates[kind] = _best_product(tf.matmul, pairs, shapes)
    return rates


def _best_product(multiply: Callable, pairs: list[tuple], shapes) -> float:
    return max(
        best_rate(lambda a=a, b=b: multiply(a, b), 2 * p * q * r)
        for (a, b), (p, q, r) in zip(pairs, shapes, strict=True)
    )
