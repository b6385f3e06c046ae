"""Accept photos as paths, bytes, PIL images and arrays."""

import dataclasses
import io
import os
from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.data.preprocessing import (
    UNREADABLE,
    load_photo,
    pillow_warnings_ignored,
    upright_rgb,
)
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import Failure
from show_attend_tell.runtime.errors import PhotoError, one_line

Photo = str | os.PathLike | bytes | bytearray | Image.Image | np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class NamedPhoto:
    """A photo that is not a file, and the path that its caption gets.

    Attributes:
        path: name of the photo.
        content: encoded bytes, a PIL image or an array.
    """

    path: Path
    content: bytes | bytearray | Image.Image | np.ndarray

    def load(self) -> Image.Image:
        """Return the photo in RGB, upright.

        Raises:
            PhotoError: the content cannot be decoded, or is no array of a photo.
        """
        try:
            if isinstance(self.content, bytes | bytearray):
                return load_photo(io.BytesIO(self.content))
            if isinstance(self.content, np.ndarray):
                return _from_array(self.content)
            with pillow_warnings_ignored():
                return upright_rgb(self.content)
        except PhotoError as error:
            reason = str(error).removeprefix("photo: ")
        except UNREADABLE as error:
            reason = f"cannot be read as a photo: {one_line(error)}"
        raise PhotoError(f"{self.path}: {reason}")


def to_input(photo: Photo, name: str = "photo") -> Path | NamedPhoto | Failure:
    """Return a photo in the form in which the pipeline reads it.

    Args:
        photo: a path; bytes of a file; a PIL image; or an array (H, W), (H, W, 3) or
            (H, W, 4), uint8, of grey levels, RGB or RGBA.
        name: name of a photo that has no path.

    Returns:
        The photo, or a Failure with the reason for a folder, a named pipe, or a value
        of another type.
    """
    if isinstance(photo, str | os.PathLike):
        path = Path(photo)
        if path.is_dir():
            return Failure(
                path,
                f"`photo` must be a file. Received: the folder {path}; name one of its "
                "photos, or pass the folder to caption_photos",
            )
        (found,) = find_photos([path])
        return found
    if isinstance(photo, Image.Image):
        file = os.fsdecode(getattr(photo, "filename", "")) or name
        return NamedPhoto(Path(file), photo)
    if isinstance(photo, bytes | bytearray | np.ndarray):
        return NamedPhoto(Path(name), photo)
    return Failure(
        Path(name),
        f"{name}: must be a path, bytes, a PIL image or a NumPy array. Received: "
        f"{type(photo).__name__}; convert it",
    )


def open_input(photo: Path | NamedPhoto) -> tuple[Path, Image.Image]:
    """Return the path of a photo and its pixels, RGB and upright.

    Raises:
        PhotoError: the photo cannot be read.
    """
    if isinstance(photo, NamedPhoto):
        return photo.path, photo.load()
    return photo, load_photo(photo)


def _from_array(pixels: np.ndarray) -> Image.Image:
    """Return the picture of an array."""
    fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if not fits or pixels.dtype != np.uint8 or not pixels.size:
        raise PhotoError(
            "must be uint8 of shape (H, W), (H, W, 3) or (H, W, 4). Received: "
            f"{pixels.dtype} of shape {pixels.shape}; convert it, and pass a batch as "
            "a list"
        )
    return upright_rgb(Image.fromarray(pixels))
