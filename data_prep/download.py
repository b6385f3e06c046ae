"""Download the data sets that are available by URL.

A file is received under the name ``<file>.part`` and renamed after its size and
checksum are verified. The next run resumes an interrupted download at the last byte
received, by an HTTP Range request. Where the expected counts of a data set are known,
its archives are then counted.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import requests
from requests.adapters import HTTPAdapter, Retry

from data_prep.data_folder import entry_path, read_text, visible_members
from data_prep.disk import require_space
from data_prep.preparation import Problems
from data_prep.sources.published import (
    FLICKR8K_LISTS,
    FLICKR8K_TOKENS,
    read_names,
    read_tokens,
)
from show_attend_tell.data.preprocessing import is_photo
from show_attend_tell.runtime.errors import DataError, one_line
from show_attend_tell.runtime.files import locked
from show_attend_tell.runtime.progress import progress_bar

_BEYOND_THE_END = requests.codes.requested_range_not_satisfiable
_CHUNK = 1 << 16  # bytes; an interruption loses the unfinished chunk
_TIMEOUT = (20.0, 60.0)  # seconds to connect, and between two chunks
# Of each request, with pauses of 1, 2, 4, ... seconds, or as the server asks. A server
# that cannot be reached, as without a network, is reported at once.
_RETRIES = Retry(
    total=5,
    connect=0,
    backoff_factor=1.0,
    status_forcelist=[429, 500, 502, 503, 504],
    raise_on_status=False,
)


class RemoteFile(NamedTuple):
    """A file on a server, with the size and checksum to verify."""

    url: str  # its last part is the file name
    size: int | None  # bytes; None: the size that the server names
    # In hexadecimal digits; None if no trustworthy checksum is published. ``prepare``
    # verifies the checksums in the archive.
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        """The file name."""
        return self.url.rsplit("/", 1)[1]


_COCO = "http://images.cocodataset.org"  # its HTTPS certificate names another host
# Sizes and checksums come from TensorFlow Datasets (url_checksums/coco.txt).
COCO = (
    RemoteFile(
        f"{_COCO}/annotations/annotations_trainval2014.zip",
        252_872_794,
        "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
    ),
    # The author published no checksum of this file.
    RemoteFile(
        "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
        36_745_453,
    ),
    RemoteFile(
        f"{_COCO}/zips/train2014.zip",
        13_510_573_713,
        "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
    ),
    RemoteFile(
        f"{_COCO}/zips/val2014.zip",
        6_645_013_297,
        "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
    ),
)
# The public copy that many tutorials fetch; the authors' own address is gone. The MD5
# digests are those that several public loaders of this copy verify, such as
# torchvision for R.
_FLICKR8K = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"
FLICKR8K = (
    RemoteFile(
        f"{_FLICKR8K}/Flickr8k_text.zip",
        None,
        md5="bf6c1abcb8e4a833b7f922104de18627",
    ),
    RemoteFile(
        f"{_FLICKR8K}/Flickr8k_Dataset.zip",
        None,
        md5="f18a1e2920de5bd84dae7cf08ec78978",
    ),
)
# The authors send the photos of Flickr30k on request only. Karpathy's archive has the
# splits of COCO and of Flickr30k.
FILES = {"coco": COCO, "flickr30k": (COCO[1],), "flickr8k": FLICKR8K}


class Counts(NamedTuple):
    """The number of items in the archives of Flickr8k."""

    photos: int
    captions: int
    lists: Mapping[str, int]  # split -> number of photos


# By source. The captions are of 8,092 names: five belong to a photo that is absent.
COUNTS = {
    "flickr8k": Counts(8_091, 40_460, {"train": 6_000, "val": 1_000, "test": 1_000})
}
_FLICKR8K_TEXTS = (FLICKR8K_TOKENS, *FLICKR8K_LISTS.values())


def download(source: str, folder: Path, progress: bool = False) -> list[Path]:
    """Download the files of a data set into a folder; return their paths.

    Complete files that are already present are kept.

    Args:
        source: ``flickr8k``, ``coco``, or ``flickr30k`` for Karpathy's splits alone.
        folder: the folder, which ``prepare`` can read; made if absent.
        progress: whether to show a progress bar for each file.

    Raises:
        DataError: the source has no files to download, an archive has another
            number of photos or captions than the data set, or see
            :func:`download_file`.
    """
    if source not in FILES:
        raise DataError(
            f"`source` must be one of {sorted(FILES)}. Received: {source!r}; request "
            "other data sets from their authors"
        )
    paths = [download_file(remote, folder, progress) for remote in FILES[source]]
    if source in COUNTS:
        _require_counts(paths, COUNTS[source])
    return paths


def download_file(remote: RemoteFile, folder: Path, progress: bool = False) -> Path:
    """Download or resume a file; return its path after verification.

    Raises:
        DataError: the file cannot be downloaded, verified or written.
    """
    target = folder / remote.name
    part = target.with_name(target.name + ".part")
    taken = DataError(f"{target}: another process is downloading it; wait, or stop it")
    try:
        if target.exists():
            if remote.size in (None, _size(target)):
                return target
            raise DataError(
                f"{target}: must have {remote.size} bytes. Received: {_size(target)}; "
                "remove the file to download it again"
            )
        with locked(part.with_name(f".{remote.name}.lock"), taken):
            if remote.size is None or _size(part) < remote.size:
                _receive(remote, part, _size(part), progress)
            if fault := _fault(part, remote):
                part.unlink()
                raise DataError(f"{remote.url}: {fault}; deleted, download again")
            os.replace(part, target)
    except requests.RequestException as error:  # before OSError, its base class
        raise DataError(
            f"{remote.url}: cannot be downloaded: {_reason(error)}; check the "
            "network and run the command again to resume"
        ) from None
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error}") from None
    return target


def _reason(error: requests.RequestException) -> str:
    """Return why a request failed, without the names of objects of urllib3."""
    # A MaxRetryError of urllib3, whose text begins with its connection.
    reason = getattr(error.args[0], "reason", None) if error.args else None
    if reason is None:
        return one_line(error)
    # A ProxyError has the error of the connection to the proxy.
    cause = getattr(reason, "original_error", reason)
    text = str(cause).rpartition("): ")[2]
    return text if cause is reason else f"the proxy: {text}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(remote: RemoteFile, part: Path, done: int, progress: bool) -> None:
    """Append the missing bytes to the part.

    Args:
        remote: the file.
        part: the part; it is written from its beginning if `done` is 0, or if it has
            bytes beyond the end of the server's file.
        done: number of bytes to keep.
        progress: whether to show a progress bar.

    Raises:
        requests.RequestException: the server refuses, or the connection is closed
            early.
    """
    if remote.size is not None:
        _require_room(remote, remote.size - done, part.parent)
    # "identity" excludes compression, so that ranges count bytes of the file.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={done}-"}
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
    with (
        session,
        session.get(
            remote.url, headers=headers, stream=True, timeout=_TIMEOUT
        ) as response,
    ):
        if _is_complete(response, done):
            return
        # The part is longer than the server's file: start over.
        if done and response.status_code == _BEYOND_THE_END:
            _receive(remote, part, 0, progress)
            return
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            done = 0  # the server ignores Range and sends the whole file
        # The size of the whole file: as the server says, or else as published.
        size = remote.size
        if "Content-Length" in response.headers:
            size = done + int(response.headers["Content-Length"])
        if remote.size not in (None, size):  # before the part is opened and truncated
            raise DataError(
                f"{remote.url}: must have {remote.size} bytes. Received: {size}; the "
                "file has changed, or a proxy sent another page"
            )
        if size is None:
            raise DataError(
                f"{remote.url}: must come with its size. Received: none; a proxy may "
                "have changed it: use another network"
            )
        if remote.size is None:
            _require_room(remote, size - done, part.parent)
        with (
            part.open("ab" if done else "wb") as file,
            progress_bar(
                size, "B", remote.name, done=done, shown=progress, scaled=True
            ) as bar,
        ):
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                bar.update(len(chunk))
                # More than the server announced: the verification refuses it.
                if done > size:
                    return
    if done < size:
        raise requests.ConnectionError("the connection was closed")


def _require_room(remote: RemoteFile, missing: int, folder: Path) -> None:
    """Raise a DataError if the disk is too small for the missing bytes."""
    require_space(missing, folder, f"bytes of {remote.name}", DataError)


def _is_complete(response: requests.Response, done: int) -> bool:
    """Return whether a server answers that no byte is missing after the first `done`.

    A run that was killed after the last byte leaves a complete part.
    """
    if response.status_code != _BEYOND_THE_END:
        return False
    size = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
    return size is not None and int(size[1]) == done


def _fault(path: Path, remote: RemoteFile) -> str | None:
    """Return a description of the difference to the expected file, or None."""
    if remote.size is not None and _size(path) != remote.size:
        return f"size must be {remote.size} bytes. Received: {_size(path)}"
    digests: dict[str, tuple[Callable[[], Any], str | None]] = {
        "SHA-256": (hashlib.sha256, remote.sha256),
        # Not for security: otherwise a Python of FIPS systems refuses to compute it.
        "MD5": (partial(hashlib.md5, usedforsecurity=False), remote.md5),
    }
    for name, (algorithm, expected) in digests.items():
        if expected is None:
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, algorithm).hexdigest()
        if digest != expected:
            return f"{name} must be {expected}. Received: {digest}"
    return None


def _require_counts(paths: list[Path], expected: Counts) -> None:
    """Raise a DataError if archives hold another number of items than Flickr8k."""
    problems = Problems()
    members = [packed for path in paths for packed in visible_members(path, problems)]
    found = {entry_path(packed.member).name: packed for packed in members}
    texts = {name: read_text(found[name]) for name in _FLICKR8K_TEXTS if name in found}
    captions = {}
    if FLICKR8K_TOKENS in texts:
        captions = read_tokens(texts[FLICKR8K_TOKENS], problems)
    counts = {
        "photos": (sum(map(is_photo, found)), expected.photos),
        "captions": (sum(map(len, captions.values())), expected.captions),
    }
    for split, size in expected.lists.items():
        name = FLICKR8K_LISTS[split]
        names = read_names(texts[name], problems) if name in texts else []
        counts[f"photos in {name}"] = len(names), size
    faults = [
        f"{size:,} {noun}. Received: {count:,}"
        for noun, (count, size) in counts.items()
        if count != size
    ]
    if faults:
        raise DataError(
            f"{' and '.join(map(str, paths))}: must hold {'; '.join(faults)}; remove "
            "the file that is wrong to download it again"
        )
