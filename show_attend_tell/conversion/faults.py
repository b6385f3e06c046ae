"""Describe in one line why a file of version 0.3 cannot be converted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from show_attend_tell.runtime.errors import (
    ModelFileError,
    ShowAttendTellError,
    one_line,
)


@contextlib.contextmanager
def conversion_of(source: Path, temporary: Path | None = None) -> Iterator[None]:
    """Raise a ModelFileError that names a file in place of faults of it.

    Args:
        source: the file of version 0.3.
        temporary: the new file, which errors of its reader name.
    """
    try:
        yield
    except (OSError, ValueError) as fault:
        reason = one_line(fault)
        if isinstance(fault, ShowAttendTellError):
            # The line names the source once, and the temporary file never.
            reason = reason.removeprefix(f"{temporary}: ").removeprefix(f"{source}: ")
        raise ModelFileError(
            f"{source}: cannot be converted ({reason}); `convert` reads files of "
            "version 0.3, with which an older one can be saved again"
        ) from None
