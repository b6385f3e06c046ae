"""The settings of the words of an experiment that reads."""

import pytest
from pydantic import ValidationError

from show_attend_tell.config.words import WordSettings


def test_each_source_has_its_number_of_validation_words():
    assert WordSettings("name", "words").held_out == 2000
    assert WordSettings("name", "iiit5k").held_out == 400
    assert WordSettings("name", "iiit5k", validation=7).held_out == 7


@pytest.mark.parametrize(
    "change", [{"count": 5}, {"fonts": "dir"}, {"words": "file"}, {"seed": 1}]
)
def test_crops_of_photos_have_no_settings_of_rendering(change):
    with pytest.raises(ValidationError, match="must go with source = 'words'"):
        WordSettings("name", "iiit5k", **change)
    WordSettings("name", "words", **change)


@pytest.mark.parametrize("change", [{"count": 0}, {"validation": -1}, {"source": "x"}])
def test_values_out_of_range_are_refused(change):
    with pytest.raises(ValidationError):
        WordSettings(**{"name": "name", "source": "words", **change})
