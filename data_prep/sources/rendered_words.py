"""Render the words of an experiment: fonts, a list of words and photos as grounds."""

from pathlib import Path

import numpy as np
from PIL import Image

from data_prep.sources.preparation import Preparation, Prepared
from data_prep.words.fonts import find_families
from data_prep.words.parts import SHEET, render_words
from data_prep.words.render import Renderer
from data_prep.words.word_list import load_words
from show_attend_tell.data.preprocessing import is_photo, load_photo
from show_attend_tell.runtime.errors import DataError, PhotoError

_MOST_PHOTOS = 300  # each word uses a part of one of them
_SIDE = 400  # longest side of a photo, in pixels


def prepare_rendered_words(
    preparation: Preparation, workers: int | None = None
) -> Prepared:
    """Render words into the prepared folder, unless it holds the same words.

    Args:
        preparation: the data set; the table [data] names counts, seed, fonts, words
            and photos.
        workers: number of processes; by default the number of processor cores.

    Raises:
        DataError: a file or font is absent or malformed, or the folder cannot be
            written.
        WordsError: the file of words cannot be read.
    """
    settings, folder = preparation.experiment.data, preparation.folder
    families = find_families(settings.fonts or None)
    words = load_words(settings.words or None)
    photos = load_grounds(settings.photos or None)
    renderer = Renderer(families, words, settings.seed, photos)
    counts = {"train": settings.count, "val": settings.held_out}
    rendered = render_words(renderer, counts, folder, workers, preparation.progress)
    fonts = sum(len(family.fonts) for family in families)
    facts = [
        f"{'rendered' if rendered else 'already rendered'} from {len(words):,} words "
        f"in {len(families)} font families, {fonts} fonts",
        f"look at {folder / SHEET}",
    ]
    words = {split: {"words": count} for split, count in counts.items()}
    return Prepared(folder, words, facts)


def load_grounds(folder: str | Path | None) -> list[np.ndarray]:
    """Return photos of a folder and its subfolders, each (H, W) uint8.

    At most 300 photos are loaded, evenly spaced among the sorted paths. Photos that
    cannot be decoded are left out.

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
    step = max(1, len(paths) / _MOST_PHOTOS)
    grounds = []
    for k in range(min(len(paths), _MOST_PHOTOS)):
        try:
            image = load_photo(paths[int(k * step)]).convert("L")
        except PhotoError:
            continue
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.BILINEAR)
        grounds.append(np.asarray(image))
    if not grounds:
        raise DataError(
            f"`photos` must be a folder of photos. Received: {folder}, with "
            f"{len(paths)} files that are named as photos, none of them readable; name "
            "another folder"
        )
    return grounds
