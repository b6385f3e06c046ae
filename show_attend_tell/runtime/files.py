"""Write files atomically: readers see the old file or the new one, never a part."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder and rename it to `path` at the end.

    The temporary file keeps the suffix, which some writers look at, and is removed if
    the body raises. Write a file or make a folder at it; a folder replaces an empty
    one only.

    Args:
        path: the file or folder to write; its parent folder is made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    _remove(temporary)  # left by a process that was killed
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        _remove(temporary)


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file atomically; text is encoded as UTF-8.

    Args:
        path: the file; its parent folder is made.
        content: text or bytes.

    Raises:
        OSError: the folder cannot be written or the disk is full; an existing file is
            left as it was.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
