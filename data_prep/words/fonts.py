"""Find fonts to render words in: families, their files, and faces of a size.

Unless the user names a folder, the fonts come from installed ``fontpkg-*`` packages,
the system and Matplotlib, which contains DejaVu. A font needs a different glyph for
each letter and digit. Symbol fonts, whose glyphs look nothing like DejaVu, are ignored.
"""

import functools
import importlib.util
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
from PIL import Image, ImageFont

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.regular_files import require_regular

FEW_FAMILIES = 10
INSTALL = "run pip install 'show-attend-tell[words]'"
PUNCTUATION = ".,!?'-:&/$\"%()+#@*"
_SUFFIXES = (".ttf", ".otf", ".ttc")
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_SIZE = 24  # of the glyphs that are compared
_ABSENT = "\ufffe"  # a code point that never has a glyph
# "O" and "0", and "l" or "I" and "1", may be the same.
_MOST_ALIKE = 2
_SYMBOLS = re.compile(
    r"awesome|barcode|braille|dingbat|emoji|icon|initials|keyboard|math|music|ornament"
    r"|symbol",
    re.IGNORECASE,
)
# The weight and width that some fonts add to the name of their family.
_STYLE = re.compile(
    r"\s+(thin|hairline|(extra|ultra|semi|demi)?(light|bold|condensed)|medium|heavy"
    r"|black|regular|book)$",
    re.IGNORECASE,
)
_SLANTED = re.compile(r"italic|oblique|slanted", re.IGNORECASE)
_WEIGHTS = (0.2, 0.45, 0.7, 1.0)  # of the range of a variable font
_SIDE = 16  # pixels of the glyphs that are compared with DejaVu's
_LEAST_LIKE = 0.21  # mean correlation with DejaVu; italics have 0.24, symbols 0.19
_MOST_BYTES = 50_000_000  # of a font file
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Font:
    """A font file; for a variable font, with a value for each axis.

    Attributes:
        path: path of the file.
        axes: value of each axis; empty unless the font is variable.
        punctuation: whether it has a glyph for each of :data:`PUNCTUATION`.
        slanted: whether it is italic or oblique.
    """

    path: str
    axes: tuple[float, ...] = ()
    punctuation: bool = True
    slanted: bool = False


@dataclass(frozen=True)
class Family:
    """The fonts of one design."""

    name: str
    fonts: tuple[Font, ...]

    def choose(self, slanted: bool, position: float) -> Font:
        """Choose a slanted or an upright font, or any font if there are none.

        Args:
            slanted: whether to choose a slanted font.
            position: position of the font among its kind, in [0, 1).
        """
        fonts = [font for font in self.fonts if font.slanted == slanted] or self.fonts
        return fonts[int(position * len(fonts))]


@functools.lru_cache(maxsize=256)
def open_face(font: Font, size: int) -> ImageFont.FreeTypeFont:
    """Return the face of a font at a size in pixels."""
    # Raqm, which orders letters of other scripts, is not installed everywhere.
    face = ImageFont.truetype(font.path, size, layout_engine=ImageFont.Layout.BASIC)
    if font.axes:
        face.set_variation_by_axes(list(font.axes))
    return face


def find_families(folder: str | Path | None = None) -> list[Family]:
    """Return the usable font families, sorted by name.

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
    fonts: dict[str, list[Font]] = {}
    for path in sorted({path.resolve() for path in paths}):
        for name, font in _usable(path):
            fonts.setdefault(name, []).append(font)
    if not fonts:
        raise DataError(
            "`data.fonts` must be a folder of .ttf or .otf files that have all letters "
            f"and digits. Received: {'installed fonts' if folder is None else folder}, "
            f"with {len(paths)} font files, none of them usable; name another folder, "
            f"or {INSTALL}"
        )
    if len(fonts) < FEW_FAMILIES:
        _LOGGER.warning(
            "only %d font families (%s); a reader of photos needs 40 or more, see "
            "`Rendered words` in docs/digits_and_words.md",
            len(fonts),
            ", ".join(sorted(fonts)),
        )
    return [Family(name, tuple(fonts[name])) for name in sorted(fonts)]


def _files_below(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES]


def _installed() -> list[Path]:
    """Return the font files of packages, the system and Matplotlib."""
    import matplotlib
    from matplotlib.font_manager import findSystemFonts

    # Matplotlib's other fonts are for formulas.
    paths = list(Path(matplotlib.get_data_path(), "fonts/ttf").glob("DejaVu*.ttf"))
    for package in entry_points(group="fontpkg.family"):
        spec = importlib.util.find_spec(package.value)
        for place in spec.submodule_search_locations or () if spec else ():
            paths += _files_below(Path(place))
    return paths + [Path(path) for path in findSystemFonts()]


def _usable(path: Path) -> Iterator[tuple[str, Font]]:
    """Yield family name and font of each usable weight of a file."""
    try:
        require_regular(path)
        if path.stat().st_size > _MOST_BYTES:
            return
        face = ImageFont.truetype(
            str(path), _SIZE, layout_engine=ImageFont.Layout.BASIC
        )
        name = _family_name(face)
        if name is None or not _has_letters(face):
            return
        punctuation = _has_glyphs(face, PUNCTUATION)
        slanted = bool(_SLANTED.search(f"{face.getname()[1]} {path.stem}"))
        points = list(_points(face))
    except (OSError, ValueError):  # damaged, or a size is absent
        return
    for axes in points:
        yield name, Font(str(path), axes, punctuation, slanted)


def _family_name(face: ImageFont.FreeTypeFont) -> str | None:
    """Return the family name without weight and width, or None for a symbol font."""
    name = " ".join((face.getname()[0] or "").split())
    if not name or _SYMBOLS.search(name):
        return None
    while (shorter := _STYLE.sub("", name)) != name:
        name = shorter
    return name


def _points(face: ImageFont.FreeTypeFont) -> Iterator[tuple[float, ...]]:
    """Yield values of the axes: several weights, and the default of each other axis."""
    try:
        axes = face.get_variation_axes()
    except OSError:  # not a variable font
        yield ()
        return
    names = [axis["name"] or b"" for axis in axes]
    for share in _WEIGHTS if b"Weight" in names else (0.0,):
        yield tuple(
            axis["minimum"] + share * (axis["maximum"] - axis["minimum"])
            if name == b"Weight"
            else axis["default"]
            for name, axis in zip(names, axes, strict=True)
        )


def _glyph(face: ImageFont.FreeTypeFont, character: str) -> tuple:
    mask = face.getmask(character)
    return mask.size, bytes(mask)


def _has_glyphs(face: ImageFont.FreeTypeFont, characters: str) -> bool:
    """Return whether each character has ink, and not the ink of an absent glyph."""
    absent = _glyph(face, _ABSENT)
    glyphs = [_glyph(face, character) for character in characters]
    return all(any(ink) and (size, ink) != absent for size, ink in glyphs)


def _has_letters(face: ImageFont.FreeTypeFont) -> bool:
    """Return whether letters and digits have different glyphs, in both cases."""
    for characters in (_LOWER + _DIGITS, _LOWER.upper() + _DIGITS):
        glyphs = {_glyph(face, character) for character in characters}
        few = len(glyphs) < len(characters) - _MOST_ALIKE
        if few or not _has_glyphs(face, characters):
            return False
    return likeness(face) >= _LEAST_LIKE


def likeness(face: ImageFont.FreeTypeFont) -> float:
    """Return the mean correlation of a face's capitals and digits with DejaVu's."""
    return float((_shapes(face) * _reference()).sum(axis=1).mean())


@functools.cache
def _reference() -> np.ndarray:
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    return _shapes(ImageFont.truetype(str(path), _SIZE))


def _shapes(face: ImageFont.FreeTypeFont) -> np.ndarray:
    """Return glyphs of capitals and digits, (36, 256), each of mean 0 and norm 1."""
    shapes = []
    for character in _LOWER.upper() + _DIGITS:
        mask = face.getmask(character)
        image = Image.frombytes("L", mask.size, bytes(mask)).crop(mask.getbbox())
        shapes.append(np.asarray(image.resize((_SIDE, _SIDE)), np.float64).ravel())
    centred = np.stack(shapes) - np.mean(shapes, axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
