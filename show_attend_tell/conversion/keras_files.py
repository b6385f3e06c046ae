"""Read the models of version 0.3: ``.keras`` files, and folders with their members.

A file is a zip archive of the model's configuration (JSON) and its weights (HDF5). No
object of the configuration is built: its class must be known, and its values have the
types of that class.
"""

import contextlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from show_attend_tell.conversion.archives import open_archive
from show_attend_tell.conversion.hdf5_arrays import Hdf5Arrays, open_hdf5
from show_attend_tell.runtime.untrusted import parse_json, read_member, require_regular

WEIGHTS = "model.weights.h5"  # the member of a folder that names it
OLD_SCALE = "_scale"  # ending of the name of a matrix' scales
_CONFIG = "config.json"
_MEMBERS = (_CONFIG, WEIGHTS, "metadata.json")
_MAX_CONFIG = 5_000_000  # bytes; a vocabulary of 100,000 words has 1.1 MB


class OldModel(NamedTuple):
    """The content of a model of version 0.3."""

    class_name: str
    module: str  # of its class
    values: dict[str, Any]  # the arguments of its class
    arrays: Hdf5Arrays


@contextlib.contextmanager
def open_model(path: Path) -> Iterator[OldModel]:
    """Open a model.

    Args:
        path: a ``.keras`` file, or the ``model.weights.h5`` of a folder.

    Raises:
        OSError, ValueError: the file is absent, damaged or larger than its limits, or
            of another program.
    """
    with _as_archive(path) as packed, open_archive(packed, _MEMBERS) as archive:
        config = parse_json(read_member(archive, _CONFIG, _MAX_CONFIG))
        if not isinstance(config, dict):
            raise ValueError("its configuration must be an object")
        name = config.get("class_name")
        # The name under which the class was registered with Keras: package>class.
        if config.get("registered_name") != f"show_attend_tell>{name}":
            other = config.get("registered_name") or name
            raise ValueError(
                f"it must hold a model of this package. Received: {str(other)[:80]}"
            )
        values = config.get("config")
        if not isinstance(values, dict):
            raise ValueError("`config` must be an object")
        content = read_member(archive, WEIGHTS)
    with open_hdf5(content) as arrays:
        yield OldModel(str(name), str(config.get("module")), values, arrays)


@contextlib.contextmanager
def _as_archive(path: Path) -> Iterator[Path]:
    """Yield a ``.keras`` file; the members in a folder are packed into a temporary one.

    Raises:
        OSError: a file is absent, or is a pipe or a device.
    """
    if path.name != WEIGHTS:
        yield path
        return
    # Packed, so that a folder passes the same checks as a file.
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "model.keras"
        # Not strict: a file's date may be before 1980, the first of zip files.
        with zipfile.ZipFile(packed, "w", strict_timestamps=False) as archive:
            for name in _MEMBERS:
                require_regular(path.with_name(name))
                archive.write(path.with_name(name), name)
        yield packed
