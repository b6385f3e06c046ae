"""What a result keeps of a measurement: its numbers, and the machine."""

import os
import platform
import re
from pathlib import Path

_DIGITS = 4  # decimals in result files


def numbers_of(scores: dict) -> dict:
    """Return the numbers of a scores.json, rounded, and their intervals."""
    intervals = scores.get("intervals", {}).get("scores", {})
    intervals |= {"word_accuracy": scores["interval"]} if "interval" in scores else {}
    numbers = {k: x for k, x in scores.items() if type(x) in (int, float)}
    return {
        "scores": {name: round(x, _DIGITS) for name, x in numbers.items()},
        "intervals": {
            name: [round(x, _DIGITS) for x in ends] for name, ends in intervals.items()
        },
    }


def machine() -> str:
    """Return the processor, its load and the backend, in words."""
    load = os.getloadavg()[2]
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    on = "" if backend == "tensorflow" else f", Keras on {backend}"
    return f"{os.cpu_count()} cores, {_processor()}, load {load:.0f}{on}"


def _processor() -> str:
    """Return the processor's name, on Linux with its model."""
    file = Path("/proc/cpuinfo")
    text = file.read_text() if file.exists() else ""
    names = re.findall(r"model name\s*: (.*)", text)
    return names[0] if names else platform.processor() or platform.machine()
