"""Verify the folder that an export makes."""

from pathlib import Path

from show_attend_tell.runtime.errors import ModelFileError


def require_new_folder(folder: Path) -> None:
    """Raise a ModelFileError unless a folder is absent or empty, and not the current.

    The export replaces the folder, and the caller would be left in a removed one.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelFileError(
            f"`out` must be absent or an empty folder. Received: {folder}; name another"
        )
    if folder.resolve() == Path.cwd():
        raise ModelFileError(
            f"`out` must not be the current folder. Received: {folder}; name another"
        )
