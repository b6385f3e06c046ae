"""The changelog and the citation belong to the version of the package."""

import re
from pathlib import Path

import pytest

from show_attend_tell import __version__

ROOT = Path(__file__).resolve().parents[1]


def test_the_changelog_has_every_version_newest_first():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[(\d[\d.]*)\] - \d{4}-\d\d-\d\d$", text, re.M)
    assert __version__ in released
    assert released == sorted(released, reverse=True)
    sections = re.findall(r"^### (\w+)", text, re.M)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(sections) <= kinds


def test_the_citation_names_this_version_and_the_paper_in_its_schema():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {__version__}\n" in text
    assert "arXiv:1502.03044" in text.partition("preferred-citation:")[2]
    cffconvert = pytest.importorskip("cffconvert", reason="needs cffconvert")
    cffconvert.Citation(text).validate()
