"""Scores of captions that need no attention."""

import pytest

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.evaluation.report import (
    decoding_label,
    decoding_record,
    score_photos,
)

pytestmark = pytest.mark.usefixtures("no_java")


def scores_of(pairs):
    """The scores of captions; a pair is a caption and those of the photo by people."""
    photos = [
        Photo(id=f"{n}.jpg", path=f"{n}.jpg", split="val", captions=tuple(by_people))
        for n, (_, by_people) in enumerate(pairs)
    ]
    captions = {photo.id: pair[0] for photo, pair in zip(photos, pairs, strict=True)}
    return score_photos(captions, photos, "simple").scores


def test_the_record_and_the_label_name_the_method():
    greedy = DecodingSettings(method="greedy", beam=5)
    assert decoding_label(greedy) == "greedy"
    record = decoding_record(greedy)
    assert (record["method"], record["beam"]) == ("greedy", 1)
    assert "seed" not in record
    sampled = DecodingSettings(method="sample", seed=3, temperature=0.5)
    assert decoding_label(sampled) == "words sampled, seed 3"
    record = decoding_record(sampled)
    assert (record["method"], record["beam"]) == ("sample", 1)
    assert (record["seed"], record["temperature"]) == (3, 0.5)


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
