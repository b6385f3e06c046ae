"""The page shows the tags of a photo, and saves those of a folder."""

import csv
import io

import pytest
from chromium import shown_as, upload, wait, wait_for
from served import serving
from tiny_calibration import tagged_pipeline
from tiny_pipeline import photo_bytes


@pytest.fixture(scope="module")
def names():
    """The tags of the photo."""
    found = tagged_pipeline().caption(photo_bytes(), tags=True).tag_names
    assert found
    return found


@pytest.fixture
def tagged_page(browser):
    """The page of a model with calibrated tags."""
    shown_as(browser)
    with serving({"Tiny": tagged_pipeline()}) as address:
        browser.get(address)
        wait(browser, lambda b: b.find_element("id", "tabs").is_displayed())
        yield browser
        browser.get("about:blank")


def test_a_photo_has_its_tags_below_it(tagged_page, names, tmp_path):
    upload(tagged_page, "file", tmp_path / "a.png", photo_bytes())
    wait(tagged_page, lambda b: b.find_element("id", "tags").text)
    text = tagged_page.find_element("id", "tags").text
    assert text.startswith("Tags: ")
    assert [part.split()[0] for part in text[6:].split(", ")] == list(names)


def test_a_folder_is_searched_and_saved_with_its_tags(tagged_page, names, tmp_path):
    tagged_page.find_element("id", "tab-folder").click()
    upload(tagged_page, "files", tmp_path / "a.png", photo_bytes())
    wait(tagged_page, lambda b: b.find_elements("css selector", "#rows .tags"))
    row = "#rows li .tags"
    wait(tagged_page, lambda b: b.find_element("css selector", row).text)
    expected = f"Tags: {', '.join(names)}"
    assert tagged_page.find_element("css selector", row).text == expected
    search = tagged_page.find_element("id", "folder-search")
    for text, is_shown in ((names[0], True), ("zeppelin", False), ("", True)):
        search.clear()
        search.send_keys(text or " ")
        item = tagged_page.find_element("css selector", "#rows li")
        assert item.is_displayed() is is_shown
    tagged_page.find_element("id", "approve-shown").click()
    tagged_page.find_element("id", "save-csv").click()
    saved = tagged_page.downloads / "captions.csv"
    assert wait_for(saved.exists, 60)
    (line,) = csv.DictReader(io.StringIO(saved.read_text("utf-8-sig")))
    assert line["tags"] == ", ".join(names)
