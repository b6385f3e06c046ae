"""Export a model of digits or words with smaller weights: 16 or 8 bits per weight."""

import json
import tempfile
import zipfile
from pathlib import Path

from show_attend_tell.deployment.exports.half_precision import write_smaller
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.siblings.draw.classifier import WindowClassifier
from show_attend_tell.siblings.draw.model import Draw
from show_attend_tell.siblings.ram.classifier import PictureClassifier
from show_attend_tell.siblings.ram.model import RecurrentAttention
from show_attend_tell.siblings.saved_model import read_model
from show_attend_tell.siblings.words.model import Reader

_CLASSES = (Draw, PictureClassifier, Reader, RecurrentAttention, WindowClassifier)
_NAMES = {one.__name__ for one in _CLASSES}


def is_of_digits(path: Path) -> bool:
    """Return whether a file is a saved model of digits or words, by its class."""
    try:
        with zipfile.ZipFile(path) as archive:
            saved = json.loads(archive.read("config.json"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return False
    return isinstance(saved, dict) and saved.get("class_name") in _NAMES


def export_smaller(source: Path, target: Path, eight_bit: bool) -> int:
    """Write a copy of a model file with smaller weights, atomically.

    Args:
        source: a ``.keras`` file of a model of digits or words.
        target: path of the new file.
        eight_bit: whether matrices have 8 bits per weight, in place of 16.

    Returns:
        The size of the new file in bytes.

    Raises:
        ModelFileError: the source cannot be read, or a weight is not finite or does
            not fit into float16.
    """
    model = read_model(source)
    with tempfile.TemporaryDirectory() as folder, atomic_path(target) as temporary:
        full = Path(folder) / "full.keras"
        model.save(full)
        write_smaller(full, temporary, source, eight_bit)
    return target.stat().st_size
