"""Captions of a split written from one location a word: kept apart, drawn per photo."""

import dataclasses

import numpy as np
import pytest
from tiny_evaluation import EXPERIMENT, IDENTITY, Place, make_place

from show_attend_tell.data import splits as prepared
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.evaluation.validation import write_captions
from show_attend_tell.models.saving import load_captioner


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return make_place(tmp_path_factory.mktemp("locations"))


def looking(locations, **changes):
    """Return the experiment with greedy captions from such locations."""
    changes |= {"beam": 1, "locations": locations}
    decoding = dataclasses.replace(EXPERIMENT.decoding, **changes)
    return dataclasses.replace(EXPERIMENT, decoding=decoding)


@pytest.mark.usefixtures("no_java")
def test_scores_of_other_locations_stand_beside_and_say_so(place):
    how = {"tokenizer": "simple", "progress": False}
    chosen = {
        "": looking("expected"),
        "-likeliest": looking("likeliest"),
        "-sampled-seed-3": looking("sampled", seed=3),
    }
    labels = [
        evaluate(settings, place.work, place.runs, **how).label
        for settings in chosen.values()
    ]
    assert labels == ["beam 1", "beam 1, likeliest", "beam 1, sampled, seed 3"]
    made = [place.saved(f"scores{suffix}.json") for suffix in chosen]
    assert [one["locations"] for one in made] == ["expected", "likeliest", "sampled"]
    assert [one.get("seed") for one in made] == [None, None, 3]
    for suffix in chosen:
        assert len(place.saved(f"captions-val{suffix}.json")) == 5


def test_what_is_drawn_for_photos_does_not_depend_on_their_batches(place):
    model = load_captioner(place.run / "model.keras")
    with prepared.open_features(EXPERIMENT, place.work, identity=IDENTITY) as reader:
        rows = np.repeat(reader.rows["1.png"], 5)

        def drawn(size, seed=3):
            decoding = looking("sampled", seed=seed, batch_size=size).decoding
            parts = list(write_captions(model, reader, rows, decoding))
            return np.concatenate([part.locations for part in parts]).tolist()

        found = drawn(2)
        assert found == drawn(5) != drawn(5, seed=4)
    assert len(set(map(str, found))) > 2  # of one photo, five times
