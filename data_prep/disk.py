"""Compare the free space of a disk with the size of the files to be written."""

import shutil
from pathlib import Path

from tqdm import tqdm

from show_attend_tell.runtime.errors import ShowAttendTellError


def format_bytes(count: float) -> str:
    """Return a number of bytes with a decimal unit, such as ``13.5GB``."""
    return tqdm.format_sizeof(count, "B")


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that holds a folder, existing or not yet."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require_space(
    needed: int, folder: Path, content: str, error: type[ShowAttendTellError]
) -> None:
    """Raise an error if files do not fit on the disk.

    Args:
        needed: size of the files, in bytes.
        folder: the folder to write them to.
        content: a plural noun for the files, used in the message.
        error: the class to raise.

    Raises:
        error: `needed` exceeds the free space.
    """
    free = free_bytes(folder)
    if needed > free:
        raise error(
            f"{folder}: the {content} need {format_bytes(needed)} of disk space. "
            f"Received: {format_bytes(free)} free; delete files or choose another "
            "folder"
        )
