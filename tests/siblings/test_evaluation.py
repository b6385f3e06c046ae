"""The digits that measure a model."""

import made_up_digits
import made_up_drawing
import pytest

from show_attend_tell.runtime.errors import DigitsError
from show_attend_tell.siblings.evaluation import open_digits


@pytest.mark.parametrize("made_up", [made_up_digits, made_up_drawing])
def test_the_validation_digits_measure_where_there_are_no_test_digits(
    tmp_path, made_up
):
    experiment = made_up.experiment()
    made_up_digits.prepare(tmp_path)
    split, digits = open_digits(experiment, tmp_path, None)
    assert (split, len(digits.labels)) == ("val", 16)
    with pytest.raises(DigitsError, match="has no test digits"):
        open_digits(experiment, tmp_path, "test")
    made_up_digits.prepare(tmp_path, test=20)
    assert open_digits(experiment, tmp_path, None)[0] == "test"
    assert open_digits(experiment, tmp_path, "val")[0] == "val"
