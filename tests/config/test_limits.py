"""Experiments limited to the first photos of each split."""

from tiny_run import experiment

from show_attend_tell.config.experiments import limit_experiment, limit_message
from show_attend_tell.data.manifest import Photo, first_of_each_split


def test_data_and_run_of_a_limited_experiment_have_folders_of_their_own():
    limited = limit_experiment(experiment(), 20)
    assert (limited.name, limited.data.name) == ("tiny-first-20", "made-up-first-20")
    assert limited.training == experiment().training


def test_the_message_names_the_rule_and_the_folders():
    message = limit_message(limit_experiment(experiment(), 20), 20)
    assert "first 20 photos of each split, in the order of the data set" in message
    assert "made-up-first-20" in message
    assert "tiny-first-20" in message


def test_the_first_photos_of_each_split_are_chosen_in_their_order():
    splits = ["val", "train", "train", "val", "train", "test"]
    photos = [Photo(str(k), f"{k}.jpg", s, ("a",)) for k, s in enumerate(splits)]
    assert [p.id for p in first_of_each_split(photos, 2)] == ["0", "1", "2", "3", "5"]
    assert [p.id for p in first_of_each_split(photos, 1)] == ["0", "1", "5"]
