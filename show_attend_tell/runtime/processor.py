"""Report which instructions the processor has."""

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def instruction_sets() -> frozenset[str] | None:
    """Return the names of the instruction sets, as in /proc/cpuinfo.

    None if they are unknown: only Linux has that file, and not on every processor with
    a line of flags.
    """
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    found = next(flags, None)
    return None if found is None else frozenset(found.split())
