"""Work items run once, lost items again, and faults are one line."""

import concurrent.futures
import pickle
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import grpc
import pytest
from refusals import refused

from show_attend_tell.cluster import pool as cluster
from show_attend_tell.cluster.pool import (
    WorkItem,
    connected,
    resolve_address,
    task_of,
)
from show_attend_tell.runtime.errors import DataError, SetupError

PREPARED = []  # of this process


def doubling(factor=2):
    """Return the function of a job, which fails for None."""
    PREPARED.append(factor)

    def run(payload):
        if payload is None:
            raise DataError("the disk is full;\nfree space")
        return factor * payload

    return run


def unbuildable():
    raise DataError("another encoder")


class RayError(Exception):
    """A worker has died."""


class RayTaskError(RayError):
    """A worker has raised an error."""


class FakeRay:
    """Ray's functions for a pool; `ends` returns whether a payload ends its worker."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, ends=lambda payload: False, free=2.0):
        self.ends, self.free = ends, free
        self.started, self.most = 0, 0

    def available_resources(self):
        return {"CPU": self.free}

    def remote(self, num_cpus, max_retries):
        assert max_retries == 0
        return lambda task: SimpleNamespace(remote=lambda item: self.start(task, item))

    def start(self, task, item):
        self.started += 1
        return task, item

    def wait(self, references):
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference):
        task, item = reference
        if self.ends(pickle.loads(item)[0]):
            raise RayError("the worker died")
        return task(item)


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """Restore what a job prepares in this process."""
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    PREPARED.clear()
    cluster._prepared.cache_clear()


def run_pool(ray, payloads, workers=2, **options):
    items = [WorkItem(f"item {number}", value) for number, value in enumerate(payloads)]
    done = cluster.Cluster(ray).run(doubling, (), items, workers, **options)
    return {item.name: value for item, value in done}


DOUBLED = {f"item {n}": 2 * n for n in range(7)}


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_each_item_is_run_once_and_the_process_is_prepared_once(workers, caplog):
    ray = FakeRay()
    assert run_pool(ray, range(7), workers) == DOUBLED
    assert (ray.started, ray.most) == (7, min(workers, 7))
    assert PREPARED == [2]
    assert run_pool(FakeRay(), []) == {}
    assert run_pool(FakeRay(free=0.0), [1]) == {"item 0": 2}
    assert "waiting for a free processor" in caplog.text


def test_the_item_of_a_dead_worker_is_run_again(caplog):
    deaths = iter([False, False, True, False, True])
    ray = FakeRay(lambda payload: next(deaths, False))
    assert run_pool(ray, range(7)) == DOUBLED
    assert ray.started == 9
    assert caplog.text.count("a worker has ended (the worker died)") == 2


def test_an_item_that_ends_every_worker_is_named_and_need_not_end_the_others():
    ray, message = FakeRay((3).__eq__), "item 3: 4 workers ended while it ran"
    with pytest.raises(SetupError, match=message):
        run_pool(ray, range(7))
    values = run_pool(ray, range(7), keep_going=True)
    assert message in str(values["item 3"])
    assert {**values, "item 3": 6} == DOUBLED


@pytest.mark.parametrize(
    ("nodes", "workers", "each"),
    [
        ([8], 1, 8),
        ([8], 3, 2),
        ([8, 8], 3, 4),
        ([0, 1, 1], 2, 1),
        ([2, 6], 3, 2),
        ([4], 9, 1),
        ([], 2, 1),
    ],
)
def test_the_processors_of_the_nodes_are_shared_among_the_workers(nodes, workers, each):
    dead = {"Alive": False, "Resources": {"CPU": 64.0}}
    alive = [{"Alive": True, "Resources": {"CPU": float(n)}} for n in nodes]
    alive += [{"Alive": True, "Resources": {}}]
    ray = SimpleNamespace(nodes=lambda: [dead, *alive])
    assert cluster.Cluster(ray).processors_each(workers) == each


def fault_of(payload, sizes=(), job=doubling, version=cluster.__version__):
    task = task_of(pickle.dumps((job, (), 1, ".")), version)
    value, fault = task(pickle.dumps((payload, dict(sizes))))
    assert value is None
    assert fault.startswith("worker on ")
    assert "\n" not in fault
    return fault


def test_errors_of_a_worker_are_one_line_with_its_host_and_end_the_run():
    assert fault_of(None).endswith(": the disk is full; free space")
    assert fault_of(None, job=unbuildable).endswith(": another encoder")
    refused = "must have version 0.0.1 of this package. Received: "
    assert refused in fault_of(None, version="0.0.1")
    with pytest.raises(SetupError, match="^worker on .*: the disk is full; free spa"):
        run_pool(FakeRay(), [1, None, 3])


def test_a_file_that_a_worker_cannot_see_is_refused_before_the_item(tmp_path):
    file = tmp_path / "header.json"
    file.write_text("{}")
    items = [WorkItem("an item", 1, (file,))]
    ((_, value),) = cluster.Cluster(FakeRay()).run(doubling, (), items, 1)
    assert value == 2
    PREPARED.clear()
    refused = "not the file that the driver sees (2 bytes instead of 3)"
    assert refused in fault_of(1, {file: 3})
    file.unlink()
    refused = f"{file}: not visible here (No such file or directory); use a"
    assert refused in fault_of(1, {file: 2})
    assert PREPARED == []


def test_a_worker_has_the_working_directory_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    for folder in (tmp_path, tmp_path / "absent"):
        cluster._prepared(pickle.dumps((doubling, (), 1, str(folder))))
        assert Path.cwd() == tmp_path


def test_a_ray_that_is_absent_or_does_not_start_is_one_line(monkeypatch):
    init = mock.Mock(side_effect=Exception("The current node\ntimed out."))
    remedies = {"local": "when this machine is less busy", "head:6379": "check that"}
    for address, remedy in remedies.items():
        with refused(SetupError, f"{address}: no connection .*{remedy}"):
            cluster._connect(SimpleNamespace(init=init), address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused(SetupError, r"show-attend-tell\[cluster\]"):
        connected("auto").__enter__()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "somewhere", "127.0.0.1:port"])
def test_an_address_that_nothing_answers_is_refused_within_seconds(
    address, monkeypatch
):
    start = time.monotonic()
    for variable, option in ((address, "auto"), ("auto", address)):
        monkeypatch.setenv("RAY_ADDRESS", variable)
        with refused(SetupError, "no Ray answers"):
            resolve_address(option)
    assert time.monotonic() - start < 120


def test_auto_finds_the_cluster_where_ray_notes_it(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "")  # as if it were unset
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "ray").mkdir()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        address = f"127.0.0.1:{port}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"{address}\n")
        assert resolve_address("auto") == address
        monkeypatch.setenv("RAY_ADDRESS", f" {address} ")
        assert resolve_address("auto") == address
        monkeypatch.setenv("RAY_ADDRESS", "local")
        assert resolve_address("auto") == "local"
    finally:
        server.stop(None)


def test_a_port_that_another_program_has_taken_is_no_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:  # accepts and is silent
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert resolve_address("auto") == "local"
        with refused(SetupError, "no Ray answers .another program has the port"):
            resolve_address(address)


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "http://127.0.0.1:8265"])
def test_addresses_of_the_client_and_the_dashboard_are_refused(address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    for option in ("auto", address):
        with refused(SetupError, f"must be HOST:PORT .*{address}.*mostly 6379"):
            resolve_address(option)


def test_an_ipv6_address_is_asked_without_its_brackets(monkeypatch):
    asked = []

    def refuse(place, seconds):
        asked.append(place)
        raise OSError("nothing there")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with refused(SetupError, "nothing there"):
        resolve_address("[::1]:6379")
    assert asked == [("::1", 6379)]


def test_a_path_that_is_too_long_for_sockets_has_its_own_remedy(monkeypatch):
    folder = "/tmp/" + "a" * 60
    monkeypatch.setenv("RAY_TMPDIR", folder)
    error = OSError("AF_UNIX path length cannot exceed 107 bytes: " + folder)
    ray = SimpleNamespace(init=mock.Mock(side_effect=error))
    with refused(SetupError, f"RAY_TMPDIR to a shorter path than {folder}, such as"):
        cluster._connect(ray, "local")


def test_auto_starts_a_cluster_if_that_of_the_machine_was_killed(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert resolve_address("auto") == "local"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    assert resolve_address("auto") == "local"
