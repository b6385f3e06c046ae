"""A server of two captioners, and the page opened in a browser."""

import pytest
from page_fixtures import browser, captioned, page  # noqa: F401
from served import serving
from tiny_pipeline import with_decoding

OWN = {"locations": "sampled", "seed": 6}  # decoding of the second model


@pytest.fixture(scope="session")
def address(pipeline):
    """The address of a server of two captioners."""
    models = {"Tiny": pipeline, "second": with_decoding(pipeline, **OWN)}
    with serving(models) as address:
        yield address
