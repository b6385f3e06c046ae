"""Keep the shards of a feature set beside their index, or in an object store.

If the folder of shards holds ``store.json``, the shards are objects below the URL that
it names, such as ``s3://bucket/folder``, beside a copy of the header; header and index
remain in the folder. An object appears as a whole or not at all. To be read, it is
downloaded once, into ``~/.cache/show-attend-tell``, or into the folder in the
environment variable ``SHOW_ATTEND_TELL_CACHE``. The libraries of the stores find
addresses and credentials as their own tools do.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from show_attend_tell.runtime.errors import FeatureError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.json_text import parse_json
from show_attend_tell.runtime.regular_files import read_text_bytes

STORE = "store.json"
CACHE = "SHOW_ATTEND_TELL_CACHE"
# Stores whose objects appear as a whole; "memory" is that of one process, for tests.
_URL = re.compile(r"(s3|gs|gcs|az|abfs|abfss|memory)://[^/\s]+(/\S*)?")
_BLOCK = 1 << 16  # bytes read together where a few columns of a shard are read


class FolderStore:
    """The shards in a folder.

    Args:
        folder: the folder of shards.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file, by name."""
        return {file.name: file.stat().st_size for file in self._folder.iterdir()}

    def local(self, name: str) -> Path:
        """Return the path of a shard."""
        return self._folder / name

    def place(self, name: str) -> str:
        """Return where a shard is, for messages."""
        return str(self._folder / name)


class ObjectStore:
    """The shards below a URL.

    Args:
        url: the URL, see :func:`require_url`.
        cache: the folder of downloaded shards.

    Raises:
        FeatureError: the library of the store is not installed.
    """

    def __init__(self, url: str, cache: Path | None = None):
        self.url, self._cache = url, cache
        self._sizes: dict[str, int] = {}
        try:
            import fsspec

            # Other processes write objects, which a stored listing would lack.
            found = fsspec.core.url_to_fs(url, use_listings_cache=False)
            self._system, self._root = found
        except ImportError as error:
            raise FeatureError(
                f"{url}: needs a library that cannot be imported ({one_line(error)}); "
                "install fsspec, and s3fs for s3://, gcsfs for gs:// or adlfs for az://"
            ) from None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each object, by name; none if the URL is absent.

        Raises:
            FeatureError: the store does not answer or refuses, as below.
        """
        with self._reported("listed"):
            try:
                found = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                found = []
        files = (entry for entry in found if entry["type"] == "file")
        self._sizes = {Path(one["name"]).name: one["size"] for one in files}
        return dict(self._sizes)

    def write(self, name: str, content: bytes) -> None:
        """Write an object as a whole."""
        with self._reported("written"):
            self._system.pipe_file(f"{self._root}/{name}", content)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open an object, of which only the blocks that are needed are read."""
        with self._reported("read"):
            file = self._system.open(f"{self._root}/{name}", block_size=_BLOCK)
        with file:
            yield file

    def local(self, name: str) -> Path:
        """Return the path of a downloaded shard; download it unless it is present."""
        target = self._cache / name
        with contextlib.suppress(OSError):
            if target.stat().st_size == self._sizes.get(name):
                return target
        with self._reported("read"), atomic_path(target, unique=True) as temporary:
            self._system.get_file(f"{self._root}/{name}", str(temporary))
        return target

    def place(self, name: str) -> str:
        """Return where a shard and its downloaded copy are, for messages."""
        return f"{self._cache / name} and, if it is damaged too, {self.url}/{name}"

    def delete(self) -> None:
        """Delete all shards."""
        names = [f"{self._root}/{name}" for name in self.sizes()]
        with self._reported("deleted"):
            if names:
                self._system.rm(names)

    @contextlib.contextmanager
    def _reported(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the classes of each store's library differ
            raise FeatureError(
                f"{self.url}: cannot be {verb} ({one_line(error)}); verify the "
                "address and your credentials, and run the command again"
            ) from None


def require_url(url: str) -> str:
    """Return the URL of an object store without a final slash.

    Raises:
        FeatureError: it is malformed, or of another kind of store.
    """
    if not _URL.fullmatch(url):
        raise FeatureError(
            "`store` must be the URL of an object store, such as s3://bucket/folder, "
            f"gs:// or az://. Received: {quote(url)}; for a folder that all nodes "
            "mount, choose it with --work and pass --shards"
        )
    return url.rstrip("/")


def stored_url(folder: Path) -> str | None:
    """Return the URL in the ``store.json`` of a folder of shards, None without one.

    Raises:
        FeatureError: the file is malformed.
    """
    path = folder / STORE
    try:
        content: Any = parse_json(read_text_bytes(path))
        return require_url(content["url"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FeatureError(
            f"{path}: must hold the URL of the shards. Received: {one_line(error)}; "
            "restore the file, or run `features --overwrite`"
        ) from None


def open_store(folder: Path, index: Path) -> FolderStore | ObjectStore:
    """Return the store of a folder's shards.

    Args:
        folder: the folder of shards.
        index: the index, whose content names the cache: shards that replace others are
            downloaded again.
    """
    url = stored_url(folder)
    if url is None:
        return FolderStore(folder)
    root = os.environ.get(CACHE) or Path.home() / ".cache" / "show-attend-tell"
    key = hashlib.sha256(url.encode() + index.read_bytes()).hexdigest()[:24]
    return ObjectStore(url, Path(root) / key)


def store_text(url: str) -> str:
    """Return the content of ``store.json``."""
    return json.dumps({"url": url}, indent=1)
