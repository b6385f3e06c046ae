"""A stand-in for Java on the PATH, to prove that ours is supervised."""

import stat
from pathlib import Path


def install(folder: Path, script: str) -> str:
    """Write a ``java`` that runs a shell script.

    Args:
        folder: an empty folder.
        script: lines of ``/bin/sh``.

    Returns:
        The PATH on which nothing else is found but the system's own programs.
    """
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:/usr/bin:/bin"
