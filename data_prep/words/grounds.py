"""Load photos of which parts become the grounds of rendered words."""

from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.data.preprocessing import is_photo, load_photo
from show_attend_tell.runtime.errors import DataError, PhotoError

_MOST = 300  # photos, of which each word uses one part
_SIDE = 400  # longest side of a photo, in pixels


def load_grounds(folder: str | Path | None) -> list[np.ndarray]:
    """Return photos of a folder and its subfolders, each (H, W) uint8.

    Of more than 300 photos, 300 in regular distances of the sorted paths are loaded.
    Photos that cannot be decoded are left out.

    Args:
        folder: the folder; None for no photos.

    Raises:
        DataError: the folder is absent, or has no photo that can be decoded.
    """
    if folder is None:
        return []
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of photos")
    paths = sorted(path for path in folder.rglob("*") if is_photo(path))
    step = max(1, len(paths) / _MOST)
    chosen = [paths[int(k * step)] for k in range(min(len(paths), _MOST))]
    grounds = [ground for path in chosen if (ground := _load(path)) is not None]
    if not grounds:
        raise DataError(
            f"`photos` must be a folder of photos. Received: {folder}, with "
            f"{len(paths)} files that are named as photos, none of them readable; name "
            "another folder"
        )
    return grounds


def _load(path: Path) -> np.ndarray | None:
    try:
        image = load_photo(path).convert("L")
    except PhotoError:
        return None
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    return np.asarray(image)
