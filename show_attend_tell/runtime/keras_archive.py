"""Write ``.keras`` files whose bytes do not depend on the clock.

A machine without a clock of its own starts in 1970, and zip files have no date before
1980: Python refuses to write them.
"""

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from show_attend_tell.runtime.files import TEMPORARY

DATE = (1980, 1, 1, 0, 0, 0)  # the first of zip files, and the default of ZipInfo


def save_keras(model: Any, path: str | Path) -> None:
    """Write a model as Keras does to a ``.keras`` file, on any date.

    Keras writes the members, which are then packed with a fixed date.

    Args:
        model: a Keras model.
        path: the file; not atomic.
    """
    # Absolute: Keras joins a relative path with a folder of its own.
    beside = Path(path).absolute().parent
    with tempfile.TemporaryDirectory(dir=beside, prefix=TEMPORARY) as folder:
        members = Path(folder) / "model"
        model.save(members, zipped=False)
        with zipfile.ZipFile(path, "w") as archive:
            # File systems list a folder in different orders.
            for file in sorted(members.rglob("*")):
                if not file.is_file():
                    continue
                member = zipfile.ZipInfo(file.relative_to(members).as_posix(), DATE)
                with file.open("rb") as source, archive.open(member, "w") as target:
                    shutil.copyfileobj(source, target)
