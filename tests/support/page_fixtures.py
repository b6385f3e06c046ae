"""The page of a server, whose fixture is ``address``, opened in a browser."""

import pytest
from chromium import browser as start_browser
from chromium import shown_as, upload, wait
from tiny_pipeline import photo_bytes


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    downloads = tmp_path_factory.mktemp("downloads")
    with start_browser(downloads, offline=False) as started:
        started.downloads = downloads
        yield started


@pytest.fixture
def page(request, browser, address):
    """The page, opened again, without motion so that all words are shown together.

    A test may give the arguments of :func:`chromium.shown_as`.
    """
    shown_as(browser, **getattr(request, "param", {}))
    forgotten = {"origin": address, "storageTypes": "all"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", forgotten)
    browser.get(address)
    wait(browser, lambda b: b.find_element("id", "tabs").is_displayed())
    return browser


@pytest.fixture
def captioned(page, tmp_path):
    """The page with the caption of a photo."""
    upload(page, "file", tmp_path / "été 1.png", photo_bytes())
    wait(page, lambda b: b.find_element("id", "announced").get_property("textContent"))
    return page
