"""Fetch a file by URL: resumably, checked, and whole or not at all.

A file arrives under the name ``<file>.part`` and gets its own name once its size and
checksum are right, so that what lies in the folder is complete. A download that was
cut off goes on where it stopped, if the server can (HTTP Range).
"""

import hashlib
import logging
import os
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from data_prep.estimate import free_bytes, size_text
from show_attend_tell.runtime.errors import DownloadError

_LOGGER = logging.getLogger(__name__)
_CHUNK = 1 << 16  # bytes; what of a piece has come is lost when it is cut off
_RETRY_STATUS = (429, 500, 502, 503, 504)

Progress = Callable[[str, int, int], None]
"""Called with the file, the bytes that are there and the bytes of the whole."""


@dataclass(frozen=True)
class Remote:
    """A file on a server and how to know that it arrived whole.

    Attributes:
        url: where it is.
        size: in bytes.
        sha256: its checksum, or None where no trustworthy one is known: then the
            size and the checksums inside the zip archive are tested.
    """

    url: str
    size: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Patience:
    """When to give up.

    Attributes:
        attempts: times in a row that a server may fail without sending anything new.
        pause: seconds before the second attempt, doubled before each further one.
        connect: seconds to connect.
        silence: seconds between two pieces of an answer.
    """

    attempts: int = 6
    pause: float = 1.0
    connect: float = 20.0
    silence: float = 60.0


def _session(patience: Patience) -> requests.Session:
    """Return a session that asks again when a server is busy or not reached."""
    retry = Retry(
        total=patience.attempts - 1,
        backoff_factor=patience.pause,
        status_forcelist=_RETRY_STATUS,
        allowed_methods=("GET",),
        raise_on_status=False,
    )
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fault(path: Path, remote: Remote) -> str | None:
    """Return why a file is not what was asked for, or None."""
    size = _size(path)
    if size != remote.size:
        return f"its size must be {remote.size} bytes. Received: {size}"
    if remote.sha256 is not None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        same = digest == remote.sha256
        return None if same else f"SHA-256 must be {remote.sha256}. Received: {digest}"
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return f"it must be a whole zip archive: {error}"
    return None if damaged is None else f"its entry {damaged} is damaged"


def _ask(
    session: requests.Session, remote: Remote, done: int, patience: Patience
) -> tuple[requests.Response, int]:
    """Ask for a file from some byte on.

    Returns:
        The answer, and the byte that it begins with.

    Raises:
        DownloadError: the server cannot be reached, refuses, or has another file.
    """
    # "identity": the file's own bytes, not a packed form of them, so that ranges count.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={done}-"}
    if not done:
        del headers["Range"]
    timeout = (patience.connect, patience.silence)
    try:
        answer = session.get(remote.url, headers=headers, stream=True, timeout=timeout)
    except requests.RequestException as error:
        raise DownloadError(
            f"{remote.url}: cannot be reached: {_one_line(error)}; check the network"
        ) from None
    if answer.status_code == requests.codes.partial_content:
        began = answer.headers.get("Content-Range", "")
        if began.startswith(f"bytes {done}-"):
            return answer, done
    length = int(answer.headers.get("Content-Length", remote.size))
    if answer.status_code == requests.codes.ok and length == remote.size:
        return answer, 0
    answer.close()
    if answer.status_code == requests.codes.ok:
        raise DownloadError(
            f"{remote.url}: must have {remote.size} bytes. Received: {length}; the "
            "file has changed, or something between here and there answers instead"
        )
    raise DownloadError(
        f"{remote.url}: the server answers {answer.status_code} {answer.reason}; "
        "fetch the file by hand or try again later"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _receive(
    answer: requests.Response,
    part: Path,
    done: int,
    remote: Remote,
    progress: Progress | None,
) -> None:
    """Write an answer from byte ``done`` on, as far as it comes."""
    with answer, part.open("ab" if done else "wb") as file:
        try:
            for chunk in answer.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if progress:
                    progress(remote.name, done, remote.size)
                if done > remote.size:
                    return
        except requests.RequestException as error:
            _LOGGER.warning("%s: cut off at byte %d: %s", remote.url, done, error)


def _receive_all(
    remote: Remote, part: Path, patience: Patience, progress: Progress | None
) -> None:
    """Ask until as many bytes are there as the file has."""
    best, failures = _size(part), 0
    with _session(patience) as session:
        while _size(part) < remote.size:
            answer, done = _ask(session, remote, _size(part), patience)
            _receive(answer, part, done, remote, progress)
            if _size(part) >= remote.size:
                return
            failures = 0 if _size(part) > best else failures + 1
            best = max(best, _size(part))
            if failures == patience.attempts:
                raise DownloadError(
                    f"{remote.url}: cut off {failures} times at byte {_size(part)} of "
                    f"{remote.size}; try again later"
                )
            time.sleep(patience.pause * 2**failures)


def fetch(
    remote: Remote,
    folder: Path,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch a file, going on where an earlier attempt was cut off.

    Args:
        remote: the file.
        folder: where to; made if need be. A file of that name and size is kept.
        patience: when to give up.
        progress: called for every piece.

    Returns:
        The complete and checked file.

    Raises:
        DownloadError: it could not be fetched, is not what it should be, or there is
            no room for it.
    """
    target = folder / remote.name
    part = target.with_name(target.name + ".part")
    if target.exists():
        if _size(target) == remote.size:
            return target
        raise DownloadError(
            f"{target}: must have {remote.size} bytes. Received: {_size(target)}; "
            "remove it to fetch it again"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing, free = remote.size - _size(part), free_bytes(folder)
        if missing > free:
            raise DownloadError(
                f"{folder}: {remote.name} needs {size_text(missing)} and "
                f"{size_text(free)} are free; make room or choose another folder"
            )
        _receive_all(remote, part, patience or Patience(), progress)
        fault = _fault(part, remote)
        if fault is not None:
            part.unlink()
            raise DownloadError(
                f"{remote.url}: {fault}; what came was deleted, try again"
            )
        os.replace(part, target)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(f"{target}: cannot be written: {error}") from None
    return target
