"""Captions generated from one location for each word, selected or sampled."""

import numpy as np
import pytest
from tiny_pipeline import photo_bytes

from show_attend_tell.inference.batch import made_by
from show_attend_tell.inference.request import CaptionRequest


def peaks(attention):
    return np.reshape(attention, (len(attention), -1)).argmax(1).tolist()


def test_locations_are_given_where_each_word_has_one(pipeline, photo):
    assert pipeline.caption(photo).locations is None
    found = pipeline.caption(photo, locations="likeliest")
    assert found.locations.tolist() == peaks(found.attention)
    sampled = pipeline.caption(photo, locations="sampled", seed=4)
    assert len(sampled.locations) == len(sampled.words)
    assert sampled.locations.tolist() != peaks(sampled.attention)


def test_other_seeds_sample_other_locations(pipeline, photo):
    seeds = (None, 0, 2, 4, 6, 7)
    captions = [pipeline.caption(photo, locations="sampled", seed=k) for k in seeds]
    sampled = [
        () if caption.locations is None else tuple(caption.locations)
        for caption in captions
    ]
    assert sampled[0] == sampled[1]  # the model's own seed is 0
    assert len(set(sampled)) > 2


def test_a_photos_samples_do_not_depend_on_other_photos(pipeline, photo, tmp_path):
    for seed in (6, 7):
        (tmp_path / f"{seed}.png").write_bytes(photo_bytes(seed))
    among = [tmp_path / "6.png", photo, tmp_path / "7.png"]
    request = CaptionRequest(locations="sampled", seed=4)
    (alone,) = pipeline.caption_photos([photo], request)
    _, found, _ = pipeline.caption_photos(among, request)
    assert found.locations.tolist() == alone.locations.tolist()


@pytest.mark.parametrize(
    ("options", "author"),
    [
        ({}, "beam 3"),
        ({"locations": "likeliest"}, "beam 3, likeliest"),
        ({"locations": "sampled", "seed": 3}, "beam 3, sampled with seed 3"),
        (
            {"method": "sample", "seed": 4},
            "words sampled at temperature 1.0 with seed 4",
        ),
    ],
)
def test_rows_name_the_locations_and_the_seed(pipeline, options, author):
    assert made_by(pipeline, CaptionRequest(**options)).endswith(f", {author}")
