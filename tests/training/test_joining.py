"""The configuration of workers; a worker alone needs no other."""

import json

import numpy as np
import pytest

from show_attend_tell.runtime.errors import ConfigError, SetupError
from show_attend_tell.training.workers import ALONE, Workers, join, read_configuration


def configuration(index=1, kind="worker", addresses=("a:1", "b:2")):
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        configuration(2),
        configuration(-1),
        configuration("0"),
        configuration(kind="ps"),
        configuration(addresses=("a", "b")),
        configuration(addresses=(1, 2)),
    ],
)
def test_a_malformed_configuration_is_one_line(text):
    with pytest.raises(SetupError, match="`TF_CONFIG` must be .* Received: "):
        read_configuration(text)


def test_one_worker_is_alone_and_raises_its_own_fault(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", configuration(0, addresses=("a:1",)))
    assert read_configuration(configuration()) == (1, ["a:1", "b:2"])
    workers = join()
    assert workers.share.is_whole
    assert workers.is_chief
    assert workers.sum([1, 2]) == [1, 2]
    workers.raise_if_ended()
    with pytest.raises(ConfigError, match="own"), ALONE.together():
        raise ConfigError("own")


def test_the_batch_must_be_a_multiple_of_the_workers():
    workers = Workers()
    workers.count = 3
    workers.require_divisible(9, "training.batch_size")
    with pytest.raises(ConfigError, match="multiple of the 3 workers.*Received: 8"):
        workers.require_divisible(8, "training.batch_size")


def test_dropout_differs_by_worker_and_not_the_chiefs():
    import keras

    def masks(rank):
        layer = keras.layers.Dropout(0.5, seed=3)
        model = keras.Sequential([keras.Input((8,)), layer])
        workers = Workers()
        workers.rank = rank
        workers.separate_dropout(model)
        return np.asarray(model(np.ones((4, 8)), training=True))

    same = keras.layers.Dropout(0.5, seed=3)(np.ones((4, 8)), training=True)
    np.testing.assert_array_equal(masks(0), same)
    assert len({masks(rank).tobytes() for rank in range(4)}) == 4
