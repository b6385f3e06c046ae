"""Archives with other members, such as damaged ones."""

import zipfile


def replace_members(path, changes, target=None):
    """Write an archive again, at another path if given, with some contents replaced."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(target or path, "w") as archive:
        for name, content in {**files, **changes}.items():
            archive.writestr(name, content)
