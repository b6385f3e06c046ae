"""Archives as dicts of their members, such as damaged ones, and their members."""

import io
import zipfile

import h5py
import numpy as np


def unzipped(content: bytes) -> dict[str, bytes]:
    """Return the files of an archive: name -> content."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: dict, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of name, or ZipInfo, -> content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def replace_members(path, changes, target=None):
    """Write an archive again, at another path if given, with some contents replaced."""
    files = unzipped(path.read_bytes())
    (target or path).write_bytes(zipped({**files, **changes}))


def npy(array) -> bytes:
    """Return an array as a member of an archive, of objects too."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def hdf5(change, content: bytes = b"") -> bytes:
    """Return the bytes of an HDF5 file after `change(file)`."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+" if content else "w") as file:
        change(file)
    return buffer.getvalue()
