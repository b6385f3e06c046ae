"""Download the data sets that are available by URL.

A file is received under the name ``<file>.part`` and renamed after its size and
checksum are verified. The next run resumes an interrupted download at the last byte
received, by an HTTP Range request.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import requests
from requests.adapters import HTTPAdapter, Retry

from data_prep.disk import require_space
from show_attend_tell.runtime.errors import DownloadError, one_line
from show_attend_tell.runtime.files import locked
from show_attend_tell.runtime.progress import progress_bar

_CHUNK = 1 << 16  # bytes; an interruption loses the unfinished chunk
_TIMEOUT = (20.0, 60.0)  # seconds to connect, and between two chunks
# Of each request, with pauses of 1, 2, 4, ... seconds, or as the server asks.
_RETRIES = Retry(
    total=5,
    backoff_factor=1.0,
    status_forcelist=[429, 500, 502, 503, 504],
    raise_on_status=False,
)


class RemoteFile(NamedTuple):
    """A file on a server, with the size and checksum to verify."""

    url: str  # its last part is the file name
    size: int  # bytes
    # In hexadecimal digits; None if no trustworthy checksum is published. ``prepare``
    # verifies the checksums in the archive.
    sha256: str | None = None

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
# The authors send the photos of Flickr8k and Flickr30k on request only. Karpathy's
# archive has the splits of COCO and of Flickr30k.
FILES = {"coco": COCO, "flickr30k": (COCO[1],)}


def download(source: str, folder: Path, progress: bool = False) -> list[Path]:
    """Download the files of a data set into a folder; return their paths.

    Complete files that are already present are kept.

    Args:
        source: ``coco``, or ``flickr30k`` for Karpathy's splits alone.
        folder: the folder, which ``prepare`` can read; made if absent.
        progress: whether to show a progress bar for each file.

    Raises:
        DownloadError: the source has no files to download, or see
            :func:`download_file`.
    """
    if source not in FILES:
        raise DownloadError(
            f"`source` must be one of {sorted(FILES)}. Received: {source!r}; request "
            "other data sets from their authors"
        )
    return [download_file(remote, folder, progress) for remote in FILES[source]]


def download_file(remote: RemoteFile, folder: Path, progress: bool = False) -> Path:
    """Download or resume a file; return its path after verification.

    Raises:
        DownloadError: the file cannot be downloaded, verified or written.
    """
    target = folder / remote.name
    part = target.with_name(target.name + ".part")
    taken = DownloadError(
        f"{target}: another process is downloading it; wait, or stop it"
    )
    try:
        if target.exists():
            if _size(target) == remote.size:
                return target
            raise DownloadError(
                f"{target}: must have {remote.size} bytes. Received: {_size(target)}; "
                "remove the file to download it again"
            )
        with locked(part.with_name(f".{remote.name}.lock"), taken):
            missing = remote.size - _size(part)
            require_space(missing, folder, f"bytes of {remote.name}", DownloadError)
            if missing > 0:
                _receive(remote, part, progress)
            if fault := _fault(part, remote):
                part.unlink()
                raise DownloadError(f"{remote.url}: {fault}; deleted, download again")
            os.replace(part, target)
    except requests.RequestException as error:  # before OSError, its base class
        raise DownloadError(
            f"{remote.url}: cannot be downloaded: {one_line(error)}; check the "
            "network and run the command again to resume"
        ) from None
    except OSError as error:
        raise DownloadError(f"{target}: cannot be written: {error}") from None
    return target


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(remote: RemoteFile, part: Path, progress: bool) -> None:
    """Append the missing bytes to the part.

    Raises:
        requests.RequestException: the server refuses, or the connection is closed
            early.
    """
    done = _size(part)
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
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            done = 0  # the server ignores Range and sends the whole file
        size = done + int(response.headers.get("Content-Length", remote.size - done))
        if size != remote.size:  # before the part is opened, which would truncate it
            raise DownloadError(
                f"{remote.url}: must have {remote.size} bytes. Received: {size}; the "
                "file has changed, or a proxy sent another page"
            )
        with (
            part.open("ab" if done else "wb") as file,
            progress_bar(
                remote.size, "B", remote.name, done=done, shown=progress, scaled=True
            ) as bar,
        ):
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                bar.update(len(chunk))
                if done > remote.size:
                    return
    if done < remote.size:
        raise requests.ConnectionError("the connection was closed")


def _fault(path: Path, remote: RemoteFile) -> str | None:
    """Return a description of the difference to the expected file, or None."""
    if _size(path) != remote.size:
        return f"size must be {remote.size} bytes. Received: {_size(path)}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if remote.sha256 in (None, digest):
        return None
    return f"SHA-256 must be {remote.sha256}. Received: {digest}"
