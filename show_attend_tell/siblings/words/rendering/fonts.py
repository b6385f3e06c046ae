"""Find fonts to render words in: families, their files, and faces of a size.

Unless the user names a folder, the fonts come from installed ``fontpkg-*`` packages,
the system and Matplotlib, which contains DejaVu. A font needs a glyph for each letter,
digit and punctuation mark. Symbol fonts, whose glyphs look nothing like DejaVu, are
ignored.
"""

import functools
import importlib.util
import logging
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageFont

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.untrusted import require_regular

FEW_FAMILIES = 10
INSTALL = "run pip install 'show-attend-tell[words]'"
_SUFFIXES = (".ttf", ".otf", ".ttc")
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NEEDED = _CAPITALS + _CAPITALS.lower()[:26] + ".,!?'-:&/$\"%()+#@*"
_DEJAVU = Path(matplotlib.get_data_path(), "fonts/ttf")
_ABSENT = "\ufffe"  # a code point that never has a glyph
# The weight and width that some fonts add to the name of their family.
_STYLE = re.compile(
    r"\s+(thin|hairline|(extra|ultra|semi|demi)?(light|bold|condensed)|medium|heavy"
    r"|black|regular|book)$",
    re.IGNORECASE,
)
_SLANTED = re.compile(r"italic|oblique|slanted", re.IGNORECASE)
_SIZE = 24  # of the glyphs that are compared
_SIDE = 16  # pixels of the glyphs that are compared with DejaVu's
_LEAST_LIKE = 0.21  # mean correlation with DejaVu; italics have 0.24, symbols 0.19
_LOGGER = logging.getLogger(__name__)


class Font(NamedTuple):
    """A font file."""

    path: str
    style: bytes | None = None  # named style of a variable font, such as b"Bold"
    slanted: bool = False  # whether the font is italic or oblique


@functools.lru_cache(maxsize=256)
def open_face(font: Font, size: int) -> ImageFont.FreeTypeFont:
    """Return the face of a font at a size in pixels."""
    face = _open(font.path, size)
    if font.style is not None:
        face.set_variation_by_name(font.style)
    return face


def _open(path: str | Path, size: int) -> ImageFont.FreeTypeFont:
    # Raqm, which orders letters of other scripts, is not installed everywhere.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def find_families(folder: str | Path | None = None) -> dict[str, list[Font]]:
    """Return the usable fonts of each family, sorted by name.

    Logs a warning if there are fewer than :data:`FEW_FAMILIES`.

    Args:
        folder: a folder of font files, searched with its subfolders in place of
            installed fonts.

    Raises:
        DataError: the folder is absent, or no font is usable.
    """
    if folder is not None and not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of font files")
    paths = _installed() if folder is None else _files_below(Path(folder))
    families: dict[str, list[Font]] = {}
    # Resolved, because links in several places may lead to the same file.
    for path in sorted({path.resolve() for path in paths}):
        for name, font in _usable(path):
            families.setdefault(name, []).append(font)
    if not families:
        raise DataError(
            "`data.fonts` must be a folder of .ttf or .otf files that have all letters "
            f"and digits. Received: {'installed fonts' if folder is None else folder}, "
            f"with {len(paths)} font files, none of them usable; name another folder, "
            f"or {INSTALL}"
        )
    if len(families) < FEW_FAMILIES:
        _LOGGER.warning(
            "only %d font families (%s); a reader of photos needs 40 or more, see "
            "`Rendered words` in docs/digits_and_words.md",
            len(families),
            ", ".join(sorted(families)),
        )
    return dict(sorted(families.items()))


def _files_below(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES]


def _installed() -> list[Path]:
    """Return the font files of packages, the system and Matplotlib."""
    from matplotlib.font_manager import findSystemFonts

    paths = list(_DEJAVU.glob("DejaVu*.ttf"))  # the others are for formulas
    for package in entry_points(group="fontpkg.family"):
        spec = importlib.util.find_spec(package.value)
        for place in spec.submodule_search_locations or () if spec else ():
            paths += _files_below(Path(place))
    return paths + [Path(path) for path in findSystemFonts()]


def _usable(path: Path) -> Iterator[tuple[str, Font]]:
    """Yield family name and font of each style of a file, if it draws text."""
    try:
        # Opening a named pipe would wait for its writer.
        require_regular(path)
        face = _open(path, _SIZE)
        family, style = face.getname()
        if not family or not _has_glyphs(face) or likeness(face) < _LEAST_LIKE:
            return
    except (OSError, ValueError):  # damaged, or a size is absent
        return
    try:
        styles = face.get_variation_names()
    except OSError:  # not a variable font
        styles = [None]
    for named in styles:
        # The bytes of a name may be in any encoding, such as Mac Roman.
        shown = f"{named.decode('ascii', 'replace') if named else style} {path.stem}"
        yield (
            _without_style(family),
            Font(str(path), named, bool(_SLANTED.search(shown))),
        )


def _without_style(family: str) -> str:
    """Return the name of a family without weight and width."""
    name = " ".join(family.split())
    # A name may end in several of them, such as "Condensed Bold".
    while (shorter := _STYLE.sub("", name)) != name:
        name = shorter
    return name


def _has_glyphs(face: ImageFont.FreeTypeFont) -> bool:
    """Return whether each character has ink, and not the ink of an absent glyph."""
    absent = bytes(face.getmask(_ABSENT))
    glyphs = [bytes(face.getmask(character)) for character in _NEEDED]
    return all(any(ink) and ink != absent for ink in glyphs)


def likeness(face: ImageFont.FreeTypeFont) -> float:
    """Return the mean correlation of a face's capitals and digits with DejaVu's."""
    return float((_shapes(face) * _reference()).sum(axis=1).mean())


@functools.cache
def _reference() -> np.ndarray:
    return _shapes(_open(_DEJAVU / "DejaVuSans.ttf", _SIZE))


def _shapes(face: ImageFont.FreeTypeFont) -> np.ndarray:
    """Return glyphs of capitals and digits, (36, 256), each of mean 0 and norm 1."""
    shapes = []
    for character in _CAPITALS:
        mask = face.getmask(character)
        image = Image.frombytes("L", mask.size, bytes(mask)).crop(mask.getbbox())
        shapes.append(np.asarray(image.resize((_SIDE, _SIDE)), np.float64).ravel())
    centred = np.stack(shapes) - np.mean(shapes, axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
