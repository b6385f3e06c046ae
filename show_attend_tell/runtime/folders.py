"""Walk folders of photos, without what systems and programs keep among them.

Network storage, operating systems and photo programs keep thumbnails, deleted files and
snapshots in folders of their own, often visible ones. Their photos are copies: captions
of them would be of no use, and files written there would disappear.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Names of folders, in lower case.
_SYSTEM_FOLDERS = frozenset(
    [
        *("@eadir", "#recycle", "#snapshot", "@tmp", "@sharebin"),  # Synology
        *(
            "@recycle",
            "@recycle bin",
            "@recently-snapshot",
            "@__thumb",
        ),  # QNAP, Asustor
        *("trashbox", "~snapshot", "_gsdata_"),  # Buffalo, NetApp, GoodSync
        *(
            "$recycle.bin",
            "recycler",
            "recycled",
            "system volume information",
        ),  # Windows
        *("__macosx", "network trash folder", "temporary items"),  # macOS
        *("thevolumesettingsfolder", "thefindbycontentfolder", "lost+found"),
    ]
)
# Rescued by chkdsk; libraries of Lightroom, Photos, iPhoto and Aperture.
_SYSTEM_FOLDER = re.compile(
    r"found\.\d{3}|.*\.(?:lrdata|lrcat-data|photoslibrary|photolibrary|aplibrary)"
)


class Listing(NamedTuple):
    """A folder and what is in it, or the error of reading it."""

    folder: str
    files: list[os.DirEntry[str]]  # all entries that are not folders, sorted by name
    error: OSError | None = None


def is_left_alone(name: str) -> bool:
    """Return whether a file or folder is hidden, or belongs to a system or program."""
    lower = name.lower()
    is_system = lower in _SYSTEM_FOLDERS or _SYSTEM_FOLDER.fullmatch(lower) is not None
    return name.startswith(".") or is_system


def _common_folder(path: str, other: str) -> str | None:
    """Return the lowest folder above two paths; None on two drives of Windows."""
    try:
        return os.path.commonpath([path, other])
    except ValueError:
        return None


def walk_folders(
    root: str | os.PathLike[str],
    depth: int | None = None,
    leave_out: Iterable[str | os.PathLike[str]] = (),
) -> Iterator[Listing]:
    """Yield a folder and its subfolders, each before its own subfolders, by name.

    Names of :func:`is_left_alone` are ignored, except for the root itself. Symlinked
    folders are followed unless they point back into the root or to a folder above it,
    and no folder is listed twice.

    Args:
        root: the folder.
        depth: levels of subfolders; all by default.
        leave_out: folders that are not entered.
    """
    root = os.fspath(root)
    real_root = os.path.realpath(root)
    visited = {real_root, *map(os.path.realpath, leave_out)}
    # Folders, their paths without links, and their levels. There is no recursion, for
    # folders may be nested deeply.
    waiting = [(root, real_root, 0)]
    while waiting:
        folder, real, level = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield Listing(folder, [], error)
            continue
        files = []
        subfolders = []
        for entry in entries:
            if is_left_alone(entry.name):
                continue
            if not os.path.isdir(entry.path):  # of DirEntry it raises for a link loop
                files.append(entry)
                continue
            inside = os.path.join(real, entry.name)
            if entry.is_symlink():
                inside = os.path.realpath(entry.path)
                if _common_folder(inside, real_root) in (inside, real_root):
                    continue
            if inside not in visited and (depth is None or level < depth):
                visited.add(inside)
                subfolders.append((entry.path, inside, level + 1))
        yield Listing(folder, files)
        # The list is a stack: its last folder comes next.
        waiting += reversed(subfolders)
