"""Archives as dicts of their members, such as damaged ones."""

import io
import zipfile


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
