"""Grids of settings: their points, the names of runs, and malformed ones."""

import pytest
from tiny_run import experiment

from show_attend_tell.config.grid import grid_variants, parse_grid
from show_attend_tell.config.settings import experiment_to_dict
from show_attend_tell.runtime.errors import ConfigError

RATE = "training.learning_rate"


def variants(*axes, seeds=None, chosen=None):
    return grid_variants(chosen or experiment(), parse_grid(axes), seeds)


def test_a_grid_is_the_product_of_its_settings_and_of_the_seeds():
    found = variants(f"{RATE}=1e-4,5e-4", "model.dropout = 0.2, 0.5", seeds=[3, 1])
    points = [
        (one.training.learning_rate, one.model.dropout, one.training.seed)
        for one in found
    ]
    rates, dropouts = (1e-4, 5e-4), (0.2, 0.5)
    assert points == [(r, d, s) for r in rates for d in dropouts for s in (3, 1)]
    assert found[0].name == "tiny-learning_rate-0.0001-dropout-0.2-seed-3"
    assert len({one.name for one in found}) == 8


def test_nothing_but_the_settings_of_the_grid_is_changed():
    (found,) = variants("model.dropout=0.3")
    expected = experiment_to_dict(experiment())
    expected["name"] = "tiny-dropout-0.3"
    expected["model"]["dropout"] = 0.3
    assert experiment_to_dict(found) == expected


def test_seeds_without_a_grid_have_the_names_of_before():
    assert [one.name for one in variants(seeds=[5, 2])] == [
        "tiny-seed-5",
        "tiny-seed-2",
    ]


def test_words_lists_and_switches_are_values_with_names_of_their_own():
    found = variants("model.initializer=glorot,normal", "model.selector=true,false")
    assert [one.name for one in found][1:3] == [
        "tiny-initializer-glorot-selector-false",
        "tiny-initializer-normal-selector-true",
    ]
    names = [
        one.name
        for one in variants("training.init_from='a/b.keras','a_b.keras','c, d.keras'")
    ]
    assert names[0].startswith("tiny-init_from-a_b_keras-")
    assert len(set(names)) == 3
    assert not any("/" in name or " " in name for name in names)


def test_two_settings_of_the_same_last_part_have_distinct_names():
    (found,) = variants("training.batch_size=4", "decoding.batch_size=2")
    assert found.name == "tiny-training.batch_size-4-decoding.batch_size-2"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["training.epoch=3"], "--grid: training.epoch: unknown key, nearest: train"),
        (["trainin.epochs=3"], "--grid: trainin: unknown key, nearest: training"),
        ([f"{RATE}=1e-4,-1"], f"--grid: {RATE}: "),
        ([f"{RATE}=1e-4,fast"], f"--grid: {RATE}: "),
        ([f"{RATE}=1e-4,0.0001"], "have the same settings; give each value once"),
        (["training.epochs=2", "training.epochs=3"], "training.epochs is given twice"),
        ([f"{RATE}="], f"--grid: {RATE} has an empty value"),
        ([f"{RATE}=,1e-4"], f"--grid: {RATE} has an empty value"),
        ([f"{RATE}=1e-4,"], f"--grid: {RATE} has an empty value"),
        ([f"{RATE}=1e-4,,5e-4"], f"--grid: {RATE} has an empty value"),
        (["model.initializer=glorot,,normal"], "initializer has an empty value"),
        ([f"{RATE}=" + "1" * 5000], f"--grid: {RATE}: "),
        ([RATE], "must be table.key=value,value"),
        (["learning_rate=1"], "must be table.key=value,value"),
        ([".epochs=1"], "must be table.key=value,value"),
        (["training.=1"], "must be table.key=value,value"),
        (["a.b.c=1"], "must be table.key=value,value"),
        (["name=a,b"], "must be table.key=value,value"),
        (["training.seed=1,2"], "pass the seeds as --seeds 1,2,3"),
        (["data.name=a,b"], "train each data set by a command of its own"),
    ],
)
def test_a_malformed_grid_is_one_line(axes, message):
    with pytest.raises(ConfigError) as caught:
        variants(*axes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
