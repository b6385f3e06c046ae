"""Describe the software and the machine behind a result."""

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_PACKAGES = (
    "tensorflow",
    "jax",
    "keras",
    "numpy",
    "h5py",
    "pillow",
    "pycocoevalcap",
)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        # Fewer than os.cpu_count() under taskset or in a set of processors.
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def collect_provenance() -> dict[str, object]:
    """Return the git revision, library versions and number of cores, ready for JSON."""
    return {
        "revision": git_revision(),
        "versions": {
            "python": platform.python_version(),
            **_versions(),
        },
        "cores": os.cpu_count(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of installed packages; one of the backends may be absent."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def git_revision() -> str | None:
    """Return the git commit of this package's source.

    Returns:
        Twelve hexadecimal digits, followed by ``+`` if tracked files of the package
        have uncommitted changes; None if the source is in no git repository.
    """
    commit = _git("rev-parse", "--short=12", "HEAD")
    # An installation inside another repository's folder is not tracked by it.
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name)
    if commit is None or tracked is None:
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "..")
    return commit + ("+" if changes else "")


def _git(*arguments: str) -> str | None:
    """Return the output of git in this file's folder, None if git fails."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def instruction_sets() -> frozenset[str] | None:
    """Return the names of the processor's instruction sets, as in /proc/cpuinfo.

    None if they are unknown: only Linux has that file, and not on every processor with
    a line of flags.
    """
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    first = next(flags, None)
    return None if first is None else frozenset(first.split())
