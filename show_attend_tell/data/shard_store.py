"""Name the files of a feature set, and keep its shards in a folder or an object store.

If the folder of a set holds ``store.json``, its shards are objects below the URL that
this file names, such as ``s3://bucket/folder``, beside a copy of the header; header and
index remain in the folder. A reader downloads each object once, into
``~/.cache/show-attend-tell`` or the folder named by the environment variable
``SHOW_ATTEND_TELL_CACHE``. The stores' libraries find addresses and credentials as
their own tools do.
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from show_attend_tell.runtime.errors import FeatureError, one_line, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.untrusted import parse_json, read_text_bytes, reading

INDEX, HEADER, STORE = "index.h5", "header.json", "store.json"
CACHE = "SHOW_ATTEND_TELL_CACHE"
# In all of these an object appears as a whole; "memory" is one process's, for tests.
_URL = re.compile(r"(s3|gs|gcs|az|abfs|abfss|memory)://[^/\s]+(/\S*)?")
_BLOCK = 1 << 16  # bytes read together where a few columns of a shard are read


def shards_folder(path: str | Path) -> Path:
    """Return the folder of shards that takes the place of a feature file."""
    return Path(path).with_suffix(".shards")


def parts_folder(path: str | Path) -> Path:
    """Return the folder of a feature file's shards until they are joined."""
    return Path(f"{Path(path)}.parts")


def shard_name(number: int) -> str:
    """Return the name of a shard's file or object."""
    return f"{number:06d}.h5"


def feature_set(path: str | Path) -> Path:
    """Return a feature file's path, or its folder of shards if only that exists."""
    path = Path(path)
    folder = shards_folder(path)
    return folder if folder.is_dir() and not path.exists() else path


class FolderStore:
    """Shards in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file, by name; none if the folder is absent."""
        sizes = {}
        for file in self._folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):  # renamed by another process
                sizes[file.name] = file.stat().st_size
        return sizes

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; several processes may write the same one."""
        with durable_path(self._folder / name, unique=True) as temporary:
            temporary.write_bytes(content)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._folder / name).open("rb")

    def local(self, name: str) -> Path:
        """Return the path of a shard."""
        return self._folder / name

    place = local  # of a damaged shard, for messages

    def delete(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


class ObjectStore:
    """Shards below a URL, with the interface of :class:`FolderStore`.

    Args:
        url: the URL, see :func:`require_url`.
        cache: the folder of downloaded shards.

    Raises:
        FeatureError: the library of the store is not installed. In all methods: the
            store does not answer or refuses.
    """

    def __init__(self, url: str, cache: Path | None = None):
        self.url, self._cache = url, cache
        self._sizes: dict[str, int] = {}
        try:
            import fsspec

            # Other processes write objects, which a stored listing would lack.
            system = fsspec.core.url_to_fs(url, use_listings_cache=False)
            self._system, self._root = system
        except ImportError as error:
            raise FeatureError(
                f"{url}: needs a library that cannot be imported ({one_line(error)}); "
                "install fsspec, and s3fs for s3://, gcsfs for gs:// or adlfs for az://"
            ) from None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each object, by name; none if the URL is absent."""
        with self._reported("listed"):
            try:
                entries = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                entries = []
        files = (entry for entry in entries if entry["type"] == "file")
        self._sizes = {Path(file["name"]).name: file["size"] for file in files}
        return dict(self._sizes)

    def write(self, name: str, content: bytes) -> None:
        """Write an object as a whole."""
        with self._reported("written"):
            self._system.pipe_file(f"{self._root}/{name}", content)

    def open(self, name: str) -> BinaryIO:
        """Open an object; only the blocks that are needed are read."""
        with self._reported("read"):
            return self._system.open(f"{self._root}/{name}", block_size=_BLOCK)

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
        """Delete all objects."""
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
    if not path.exists():
        return None
    with reading(path, FeatureError, "restore it, or run `features --overwrite`"):
        content: Any = parse_json(read_text_bytes(path))
        if not _URL.fullmatch(content["url"]):
            raise ValueError("`url` must be the URL of an object store")
        return content["url"]


def store_at(folder: Path, url: str | None) -> FolderStore | ObjectStore:
    """Return the store that receives shards: the URL if there is one, or the folder."""
    return ObjectStore(url) if url else FolderStore(folder)


def open_store(folder: Path) -> FolderStore | ObjectStore:
    """Return the store of a finished set's shards, from which they can be read.

    The cache is named by the URL and the content of the index, so that shards that
    replace others are downloaded again.
    """
    url = stored_url(folder)
    if url is None:
        return FolderStore(folder)
    root = os.environ.get(CACHE) or Path.home() / ".cache" / "show-attend-tell"
    key = hashlib.sha256(url.encode() + (folder / INDEX).read_bytes()).hexdigest()[:24]
    return ObjectStore(url, Path(root) / key)


@contextlib.contextmanager
def durable_path(path: Path, unique: bool = False) -> Iterator[Path]:
    """Yield an `atomic_path`; flush its file to the disk before it is renamed.

    Otherwise a power failure could leave an empty file that counts as complete.

    Raises:
        FeatureError: the file cannot be written.
    """
    try:
        with atomic_path(path, unique) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> FeatureError:
    """Return the error of a path that cannot be written."""
    return FeatureError(
        f"{path}: cannot be written: {error.strerror or error}; free disk space or "
        "choose another folder, and run the command again, without --overwrite, to "
        "resume"
    )
