"""Captions generated from one location for each word, selected or sampled."""

import dataclasses

import numpy as np
import pytest
from tiny_pipeline import ENCODER, make_captioner, photo_bytes

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference.batch import caption_into_file
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import OutputFileError


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


def test_rows_of_other_locations_or_seeds_are_not_mixed(pipeline, photo, tmp_path):
    for how, other, message in (
        ({"locations": "likeliest"}, {}, "beam 3, likeliest, and not by .* beam 3; "),
        (
            {"locations": "sampled", "seed": 3},
            {"locations": "sampled", "seed": 4},
            "beam 3, sampled with seed 3, and not",
        ),
        (
            {"method": "sample", "seed": 3},
            {"method": "sample", "seed": 4},
            "words sampled at temperature 1.0 with seed 3, and not",
        ),
    ):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        batch = (pipeline, [photo], out)
        caption_into_file(*batch, CaptionRequest(**how), shown=False)
        with pytest.raises(OutputFileError, match=message):
            caption_into_file(*batch, CaptionRequest(**other), shown=False)


def test_the_models_own_locations_are_the_default():
    encoder = Encoder(ENCODER)
    model = make_captioner(encoder)
    own = {**dataclasses.asdict(model.decoding), "locations": "likeliest"}
    model.decoding = DecodingSettings(**own)
    pipeline = CaptioningPipeline(model.generator, encoder)
    assert pipeline.decoding() == DecodingSettings(**own)
    assert (
        pipeline.decoding(CaptionRequest(locations="expected")).locations == "expected"
    )
