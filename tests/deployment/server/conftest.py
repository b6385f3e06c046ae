"""The page that captions a photo, with two models, opened in a browser."""

import pytest
from chromium import browser as start_browser
from served import serving
from tiny_pipeline import photo_bytes, tiny_pipeline, with_decoding

OWN = {"locations": "sampled", "seed": 6}  # decoding of the second model


@pytest.fixture(scope="module")
def address():
    first = tiny_pipeline()
    with serving({"first": first, "second": with_decoding(first, **OWN)}) as address:
        yield address


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    downloads = tmp_path_factory.mktemp("downloads")
    with start_browser(downloads, offline=False) as started:
        started.downloads = downloads
        yield started


@pytest.fixture
def page(browser, address):
    """The page, opened again, without motion so that all words are shown together."""
    from captioned_page import CSS, wait

    motion = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [motion]})
    browser.set_window_size(1280, 900)
    browser.get(address)
    wait(browser, lambda b: b.find_elements(CSS, "#examples img"))
    return browser


@pytest.fixture
def captioned(page, tmp_path):
    """The page with the caption of a photo."""
    from captioned_page import wait

    (tmp_path / "été 1.png").write_bytes(photo_bytes())
    page.find_element("id", "file").send_keys(str(tmp_path / "été 1.png"))
    wait(page, lambda b: b.find_element("id", "announced").get_property("textContent"))
    return page
