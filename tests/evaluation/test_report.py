"""Scores of captions that need no attention."""

import pytest

from show_attend_tell.data.manifest import Photo
from show_attend_tell.evaluation.report import score_photos

pytestmark = pytest.mark.usefixtures("no_java")


def scores_of(pairs):
    """The scores of captions; a pair is a caption and those of the photo by people."""
    photos = [
        Photo(id=f"{n}.jpg", path=f"{n}.jpg", split="val", captions=tuple(by_people))
        for n, (_, by_people) in enumerate(pairs)
    ]
    captions = {photo.id: pair[0] for photo, pair in zip(photos, pairs, strict=True)}
    return score_photos(captions, photos, "simple").scores


DOG = ("a dog runs", ["A dog runs.", "a brown dog"])


def test_people_are_invented_where_no_caption_by_people_has_them():
    scores = scores_of(
        [
            DOG,
            ("a man with a dog", ["A dog.", "two dogs"]),
            ("a Man sleeps", ["an empty bed", "A MAN sleeps."]),
            ("a dog", ["a woman walks a dog"]),
            ("a mango", ["fruit on a table"]),
        ]
    )
    assert scores["invented_people"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("other", [DOG, ("people", ["a cat"])])
def test_data_that_never_name_people_have_no_invented_people(other):
    assert "invented_people" not in scores_of([DOG, other])
    assert "invented_people" not in scores_of([("a man", ["a man"])] * 2)
