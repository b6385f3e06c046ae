"""Workers meet at the chief's address; a worker alone needs no other."""

import json
import threading

import numpy as np
import pytest
from worker_processes import free_addresses

from show_attend_tell.runtime.errors import ClusterError, ConfigError
from show_attend_tell.training import joining
from show_attend_tell.training.joining import join, meet, read_configuration
from show_attend_tell.training.workers import ALONE, Workers


def configuration(index=1, kind="worker", addresses=("a:1", "b:2")):
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def test_a_configuration_names_the_rank_and_the_addresses():
    assert read_configuration(configuration()) == (1, ["a:1", "b:2"])


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
    with pytest.raises(ClusterError, match="`TF_CONFIG` must be .* Received: "):
        read_configuration(text)


def test_one_worker_is_alone(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", configuration(0, addresses=("a:1",)))
    workers = join()
    assert workers.part == (0, 1)
    assert workers.is_chief
    assert workers.sum([1, 2]) == [1, 2]
    workers.raise_if_ended()


def test_the_batch_must_be_a_multiple_of_the_workers():
    workers = Workers()
    workers.count = 3
    workers.require_divisible(9, "training.batch_size")
    with pytest.raises(ConfigError, match="multiple of the 3 workers.*Received: 8"):
        workers.require_divisible(8, "training.batch_size")


def test_workers_meet_at_the_chief():
    addresses = free_addresses(3)
    met = []

    def come(rank):
        meet(rank, addresses)
        met.append(rank)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in (2, 0)]
    for thread in threads:
        thread.start()
    threads[0].join(0.5)
    assert not met
    come(1)
    for thread in threads:
        thread.join(20)
    assert sorted(met) == [0, 1, 2]


@pytest.mark.parametrize(("rank", "absent"), [(0, "worker 1"), (1, "no worker 0")])
def test_an_absent_worker_is_one_line(monkeypatch, rank, absent):
    monkeypatch.setattr(joining, "JOIN_SECONDS", 0.3)
    monkeypatch.setenv("TF_CONFIG", configuration(rank, addresses=free_addresses(2)))
    with pytest.raises(ClusterError, match=f"worker {rank} of 2 .*{absent}.*; start"):
        join()


def test_a_used_port_is_one_line(monkeypatch):
    addresses = free_addresses(2)
    with joining.socket.create_server(("", int(addresses[0].split(":")[1]))):
        monkeypatch.setenv("TF_CONFIG", configuration(0, addresses=addresses))
        with pytest.raises(ClusterError, match="Address already in use.*a free port"):
            join()


def test_a_worker_alone_raises_its_own_fault():
    with pytest.raises(ConfigError, match="own"), ALONE.together():
        raise ConfigError("own")


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
