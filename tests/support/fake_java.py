"""Install a shell script in place of Java on the PATH."""

import stat
from pathlib import Path


def install(folder: Path, script: str) -> str:
    """Write a ``java`` that runs a shell script.

    Args:
        folder: an empty folder.
        script: lines of ``/bin/sh``.

    Returns:
        A PATH that holds this script and the system's programs.
    """
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:/usr/bin:/bin"
