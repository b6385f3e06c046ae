"""Find and read photos: files, folders, bytes, PIL images and arrays."""

import contextlib
import dataclasses
import functools
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from PIL import Image

from show_attend_tell.data.photo_faults import UNREADABLE
from show_attend_tell.data.preprocessing import (
    has_photo_content,
    has_suffix,
    is_photo,
    is_raw,
    load_photo,
    pillow_warnings_ignored,
    remedy,
    to_square,
    to_view,
    upright_rgb,
)
from show_attend_tell.runtime.errors import PhotoError, one_line
from show_attend_tell.runtime.folders import walk_folders

_DIGEST_LENGTH = 16  # hexadecimal digits of a photo's SHA-256 that are kept
VIEW = 512  # longest side of a displayed photo, in pixels

# One photo; `to_input` describes the kinds.
Photo: TypeAlias = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | IO[bytes]
    | Image.Image
    | np.ndarray
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A path without a caption, and the reason in one line that names the path."""

    path: Path
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return values for JSON."""
        return {"path": str(self.path), "error": self.reason}


def photo_key(photo: str | os.PathLike[str]) -> str:
    """Return one key for all paths of a photo: absolute, links to folders resolved.

    A link to the photo itself is another photo.
    """
    # The name is not resolved, so that a link has a row, and a sidecar, of its own.
    folder, name = os.path.split(os.path.abspath(photo))
    return os.path.join(_real_folder(folder), name)


def describe_file(photo: Path) -> dict[str, int | str]:
    """Return the size, the time of the last change and the digest of a file."""
    with photo.open("rb") as file:
        # Of the open file: the path may name another photo a moment later.
        found = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "bytes": found.st_size,
        "modified": found.st_mtime_ns,
        "sha256": digest[:_DIGEST_LENGTH],
    }


@functools.lru_cache(maxsize=1000)  # asks the system about every folder of a path
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def find_photos(
    paths: Iterable[str | os.PathLike[str] | Failure],
) -> Iterator[Path | Failure]:
    """Yield photos named directly, and the photos inside folders.

    A file is yielded whatever its suffix. Inside a folder files with one of
    ``data.preprocessing.PHOTO_SUFFIXES`` are yielded, and files without a suffix, or
    with one of a format that cannot be decoded, whose content is a photo; sorted by
    name, before those of its subfolders, in the order and with the exceptions of
    :func:`runtime.folders.walk_folders`.

    Args:
        paths: files and folders; a Failure is passed through.

    Yields:
        Paths, and a Failure for a folder that cannot be read or has no photo, for a
        symlink that cannot be followed, for a named pipe, socket or device in place of
        a photo, and for a photo of a folder whose format cannot be decoded, but not for
        a raw photo beside a photo of the same name.
    """
    for path in paths:
        if isinstance(path, Failure):
            yield path
        elif os.path.isdir(path):
            folder = Path(path)
            inside = list(_scan(folder))
            yield from inside or [Failure(folder, f"{folder}: no photo in this folder")]
        else:
            yield _regular(Path(path))


def _scan(root: Path) -> Iterator[Path | Failure]:
    """Yield the photos in a folder and its subfolders."""
    for folder, files, error in walk_folders(root):
        if error is not None:
            yield Failure(Path(folder), f"{folder}: {error.strerror}")
        # Cameras write a raw photo and a JPEG of the same name.
        stems = {Path(entry.name).stem for entry in files if is_photo(entry.name)}
        for entry in files:
            has_photo_beside = is_raw(entry.name) and Path(entry.name).stem in stems
            yield from _check(Path(entry.path), has_photo_beside)


def _check(path: Path, has_photo_beside: bool) -> Iterator[Path | Failure]:
    """Yield a photo of a folder, a Failure, or nothing for other files.

    A file without a suffix, or with one of a format that cannot be decoded, is known by
    its content.
    """
    try:
        # First, so that a link that cannot be followed is listed with the system's
        # reason.
        os.stat(path)
    except OSError as error:
        yield Failure(path, f"{path}: {error.strerror}")
        return
    unsupported = remedy(path)
    if is_photo(path):
        yield _regular(path)
    elif unsupported or not has_suffix(path):
        if has_photo_content(path):
            yield path
        elif unsupported and not has_photo_beside:
            yield Failure(path, f"{path}: {unsupported}")


def _regular(path: Path) -> Path | Failure:
    """Return a path, or a Failure for a special file, since reading it may block."""
    with contextlib.suppress(OSError, ValueError):  # decoding it gives the reason
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Failure(
                path,
                f"{path}: a named pipe, socket or device is no photo; name a regular "
                "file",
            )
    return path


class NamedPhoto(NamedTuple):
    """A photo that is not a file, and the path that its caption gets."""

    path: Path
    content: bytes | bytearray | Image.Image | np.ndarray  # bytes of a file, or pixels

    def load(self) -> Image.Image:
        """Return the photo in RGB, upright; raise a PhotoError if it is no photo."""
        if isinstance(self.content, bytes | bytearray):
            return load_photo(io.BytesIO(self.content), name=str(self.path))
        try:
            if isinstance(self.content, np.ndarray):
                return _from_array(self.content)
            with pillow_warnings_ignored():
                return upright_rgb(self.content)
        except PhotoError as error:  # of an array, which has no name there
            reason = str(error)
        except UNREADABLE as error:
            reason = f"cannot be read as a photo: {one_line(error)}"
        raise PhotoError(f"{self.path}: {reason}")


def to_input(photo: Photo, name: str = "photo") -> Path | NamedPhoto | Failure:
    """Return a photo in the form in which the pipeline reads it.

    Args:
        photo: a path; bytes of a file, or an open binary file, which is read from its
            start and stays open; a PIL image; or an array (H, W), (H, W, 3) or (H, W,
            4), uint8 or floating-point numbers from 0 to 1, of grey levels, RGB or
            RGBA, also of another library that NumPy can convert.
        name: name of a photo that has no path.

    Returns:
        The photo, or a Failure with the reason for a folder, a named pipe, a file
        opened as text, or a value of another type.
    """
    if isinstance(photo, str | os.PathLike):
        path = Path(photo)
        if os.path.isdir(path):  # False for a name that is too long
            return Failure(
                path,
                f"`photo` must be a file. Received: the folder {path}; name one of its "
                "photos, or pass the folder to caption_photos",
            )
        # The same rules, and messages, as for the paths of a run.
        (named,) = find_photos([path])
        return named
    if isinstance(photo, Image.Image):
        file = os.fsdecode(getattr(photo, "filename", "")) or name
        return NamedPhoto(Path(file), photo)
    if isinstance(photo, bytes | bytearray | np.ndarray):
        return NamedPhoto(Path(name), photo)
    # A copy: the buffer may change, or be released, before it is decoded.
    if isinstance(photo, memoryview):
        return NamedPhoto(Path(name), photo.tobytes())
    if hasattr(photo, "read"):
        return _read_file(photo, name)
    if hasattr(photo, "__array__"):  # a tensor
        return NamedPhoto(Path(name), np.asarray(photo))
    return Failure(
        Path(name),
        f"{name}: must be a path, bytes, an open file, a PIL image or an array. "
        f"Received: {type(photo).__name__}; convert it",
    )


def _read_file(file: IO[bytes], name: str) -> NamedPhoto | Failure:
    """Read an open file."""
    named = getattr(file, "name", None)  # a number for a file that has no path
    path = Path(named if isinstance(named, str | os.PathLike) else name)
    try:
        if file.seekable():  # a buffer that was just written is at its end
            file.seek(0)
        content = file.read()
    except (OSError, ValueError) as error:  # closed, or not open for reading
        return Failure(path, f"{path}: cannot be read: {one_line(error)}")
    if not isinstance(content, bytes | bytearray):
        return Failure(path, f'{path}: opened as text; open it with the mode "rb"')
    return NamedPhoto(path, content)


def is_several(photos: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value is an iterable of photos, such as a list or generator."""
    if isinstance(photos, str | bytes | bytearray | memoryview | os.PathLike):
        return False
    # An array is iterable too, row by row, but is one photo.
    one = isinstance(photos, Image.Image) or hasattr(photos, "__array__")
    return not one and not hasattr(photos, "read") and isinstance(photos, Iterable)


class OpenedPhoto(NamedTuple):
    """A decoded photo."""

    path: Path
    square: np.ndarray  # (S, S, 3) uint8, the network's input
    view: np.ndarray  # (H, W, 3) uint8, the same part of the photo, to display
    size: tuple[int, int]  # width and height of the photo in pixels


def read_photo(
    photo: Path | NamedPhoto | Failure, side: int, resize: str
) -> OpenedPhoto | Failure:
    """Decode and resize a photo; return a Failure if it cannot be read.

    ``side`` and ``resize`` are those of :func:`data.preprocessing.to_square`.
    """
    if isinstance(photo, Failure):
        return photo
    path = photo.path if isinstance(photo, NamedPhoto) else photo
    try:
        image = photo.load() if isinstance(photo, NamedPhoto) else load_photo(photo)
    except PhotoError as error:
        return Failure(path, str(error))
    square = to_square(image, side, resize)
    view = to_view(image, side, resize, VIEW)
    return OpenedPhoto(path, square, view, image.size)


def _from_array(pixels: np.ndarray) -> Image.Image:
    """Return the picture of an array of 8-bit levels, or of shares from 0 to 1."""
    fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    is_float = np.issubdtype(pixels.dtype, np.floating)
    if not fits or not pixels.size or not (is_float or pixels.dtype == np.uint8):
        raise PhotoError(
            "must be uint8, or floating-point numbers from 0 to 1, of shape (H, W), "
            f"(H, W, 3) or (H, W, 4). Received: {pixels.dtype} of shape "
            f"{pixels.shape}; convert it, and pass a batch as a list"
        )
    if is_float:
        low = pixels.min()
        high = pixels.max()
        if not (0 <= low and high <= 1):  # refuses NaN too
            raise PhotoError(
                "floating-point numbers must be from 0 to 1. Received: "
                f"{low:g} to {high:g}; divide by the white level, or convert levels "
                "of 0 to 255 by .astype('uint8')"
            )
        pixels = np.rint(pixels.astype(np.float64) * 255).astype(np.uint8)
    return upright_rgb(Image.fromarray(pixels))
