"""Report which instructions the processor has."""

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def instruction_sets() -> frozenset[str] | None:
    """Return the names of the instruction sets, as in /proc/cpuinfo.

    None if they are unknown: only Linux has that file.
    """
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())
