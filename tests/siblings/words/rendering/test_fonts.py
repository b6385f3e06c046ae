"""Font families are found, and symbol fonts and damaged files are left out."""

import shutil

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.ttLib import TTFont
from made_up_words import FONTS
from matplotlib import font_manager
from refusals import refused

from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.rendering import fonts
from show_attend_tell.siblings.words.rendering.fonts import find_families, open_face


def copy(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(FONTS / name, folder / name)
    return folder


def test_files_of_a_family_are_found_in_subfolders_and_few_are_a_warning(
    tmp_path, caplog
):
    copy(tmp_path, "DejaVuSerif.ttf")
    copy(tmp_path / "sub", "DejaVuSans.ttf", "DejaVuSans-Oblique.ttf")
    families = find_families(tmp_path)
    assert [*families] == ["DejaVu Sans", "DejaVu Serif"]
    assert [font.slanted for font in families["DejaVu Sans"]] == [True, False]
    assert "only 2 font families (DejaVu Sans, DejaVu Serif)" in caplog.text
    (serif,) = families["DejaVu Serif"]
    assert open_face(serif, 30).getname()[0] == "DejaVu Serif"


def test_without_other_fonts_words_are_rendered_in_dejavu(monkeypatch, caplog):
    monkeypatch.setattr(fonts, "entry_points", lambda **_: [])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert [*find_families()] == ["DejaVu Sans", "DejaVu Sans Mono", "DejaVu Serif"]
    assert "only 3 font families" in caplog.text


def test_symbol_fonts_and_damaged_files_are_left_out(tmp_path):
    copy(tmp_path, "DejaVuSans.ttf", "cmex10.ttf", "cmsy10.ttf", "STIXSizOneSymReg.ttf")
    whole = (FONTS / "DejaVuSerif.ttf").read_bytes()
    (tmp_path / "empty.ttf").write_bytes(b"")
    (tmp_path / "text.otf").write_text("font")
    (tmp_path / "cut.ttf").write_bytes(whole[:1000])
    (tmp_path / "folder.ttf").mkdir()
    assert [*find_families(tmp_path)] == ["DejaVu Sans"]


@pytest.mark.parametrize("names", [(), ("cmsy10.ttf",)])
def test_a_folder_without_usable_fonts_is_refused_in_one_line(tmp_path, names):
    with refused(DataError, "`data.fonts` must be .*none of them usable"):
        find_families(copy(tmp_path, *names))
    with pytest.raises(DataError, match="absent: no such folder"):
        find_families(tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Quicksand Light", "Quicksand"),
        ("Open Sans Condensed", "Open Sans"),
        ("Roboto  SemiBold Condensed", "Roboto"),
        ("Black", "Black"),
    ],
)
def test_a_family_is_named_without_weight_and_width(name, family):
    assert fonts._without_style(name) == family


def test_the_weight_of_a_variable_font_changes_its_letters():
    package = pytest.importorskip("fontpkg_oswald", reason="needs '.[words]'")
    folder = next(iter(package.__path__))
    families = find_families(folder)
    assert [*families] == ["Oswald"]
    lengths = [open_face(font, 40).getlength("word") for font in families["Oswald"]]
    assert max(lengths) > 1.1 * min(lengths)


def test_styles_of_a_variable_font_may_have_accents(tmp_path):
    font = TTFont(FONTS / "DejaVuSans.ttf")
    builder = FontBuilder(font=font)
    styles = [
        {"location": {"wght": weight}, "stylename": {"en": name}}
        for name, weight in {"\u00c9troit": 400, "\u00c9troit Italic": 900}.items()
    ]
    builder.setupFvar([("wght", 100, 400, 900, "Weight")], styles)
    builder.setupGvar({glyph: [] for glyph in font.getGlyphOrder()})
    font.save(tmp_path / "variable.ttf")
    (found,) = find_families(tmp_path).values()
    assert [each.slanted for each in found] == [False, True]
    assert open_face(found[1], 40).getlength("word") > 0
