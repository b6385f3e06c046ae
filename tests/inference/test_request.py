"""A request refuses values out of range."""

import pytest

from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.runtime.errors import CaptionError


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"min_confidence": -0.1}, "`min_confidence` must be from 0 to 1"),
        ({"min_confidence": 1.1}, "`min_confidence` must be from 0 to 1"),
        ({"region": "1,2,3"}, "`region` must be four numbers"),
    ],
)
def test_values_out_of_range_are_refused(values, text):
    with pytest.raises(CaptionError, match=text):
        CaptionRequest(**values)
