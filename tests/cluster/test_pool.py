"""Connections that fail in one line, and what a worker verifies before a task."""

import functools
import sys
import time
from types import SimpleNamespace

import pytest

from show_attend_tell.cluster import pool as cluster
from show_attend_tell.cluster import worker as cluster_worker
from show_attend_tell.cluster.address import resolve_address
from show_attend_tell.cluster.pool import connected
from show_attend_tell.cluster.worker import Task, Worker, visible
from show_attend_tell.runtime.errors import ClusterError, FeatureError


class Doubling:
    """A worker's object that counts its tasks."""

    runs = 0

    def run(self, payload):
        self.runs += 1
        if payload is None:
            raise FeatureError("the disk is full;\nfree space")
        return 2 * payload


def unbuildable():
    raise FeatureError("another encoder")


class RayError(Exception):
    """A worker has died."""


class RayTaskError(RayError):
    """A worker has raised an error."""


class FakeRay:
    """Ray's functions for a pool, with workers in this process that may die."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, dies):
        self.dies, self.started, self.killed = dies, 0, 0

    def remote(self, **options):
        return lambda actor: type("Actor", (), {"remote": self.start})

    def start(self, make, processors):
        self.started += 1
        return FakeActor(self, Doubling())

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        return reference()

    def kill(self, actor):
        self.killed += 1


class FakeActor:
    def __init__(self, ray, object_):
        self.ray, self.object = ray, object_
        self.alive = True
        self.prepare = self.run = self

    def remote(self, task=None):
        def result():
            if self.alive and self.ray.dies(task):
                self.alive = False
            if not self.alive:
                raise RayError("class_name: Worker\n\tpid: 7\nthe worker died")
            if task is None:
                return None, None
            if task.payload == "fault":
                return None, "worker on host: the disk is full"
            return self.object.run(task.payload), None

        return result


def run_pool(ray, payloads, workers=2, **options):
    tasks = [Task(f"task {number}", value) for number, value in enumerate(payloads)]
    done = cluster.Cluster(ray).run(Doubling, (), tasks, workers, **options)
    return {task.name: value for task, value in done}


def test_each_task_is_run_once_by_the_workers():
    ray = FakeRay(lambda task: False)
    found = run_pool(ray, range(7))
    assert found == {f"task {n}": 2 * n for n in range(7)}
    assert (ray.started, ray.killed) == (2, 2)


def test_no_more_workers_than_tasks_are_started():
    ray = FakeRay(lambda task: False)
    assert run_pool(ray, [4, 5], workers=8) == {"task 0": 8, "task 1": 10}
    assert ray.started == 2


def test_a_worker_out_of_reach_is_killed_as_it_may_be_alive():
    deaths = iter([False, False, True])
    ray = FakeRay(lambda task: next(deaths, False))
    assert len(run_pool(ray, range(3))) == 3
    assert (ray.started, ray.killed) == (3, 3)


def test_no_worker_is_started_without_tasks():
    ray = FakeRay(lambda task: False)
    assert run_pool(ray, []) == {}
    assert ray.started == 0


def test_the_task_of_a_dead_worker_is_run_by_another():
    deaths = iter([False, False, False, True, False, True])
    ray = FakeRay(lambda task: next(deaths, False))
    found = run_pool(ray, range(7))
    assert found == {f"task {n}": 2 * n for n in range(7)}
    assert ray.started == 4


def test_a_task_that_ends_every_worker_is_named():
    ray = FakeRay(lambda task: task is not None and task.payload == 3)
    with pytest.raises(ClusterError, match="task 3: 4 workers ended while it ran"):
        run_pool(ray, range(7))
    assert ray.killed == ray.started


def test_a_task_that_ends_every_worker_need_not_end_the_others():
    ray = FakeRay(lambda task: task is not None and task.payload == 3)
    found = run_pool(ray, range(7), keep_going=True)
    fault = found.pop("task 3")
    assert isinstance(fault, ClusterError)
    assert "task 3: 4 workers ended while it ran" in str(fault)
    assert found == {f"task {n}": 2 * n for n in range(7) if n != 3}


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


def test_workers_that_cannot_start_end_the_run():
    with pytest.raises(ClusterError, match=r"finish a task \(the worker died\)$"):
        run_pool(FakeRay(lambda task: task is None), range(3))


def test_the_error_of_a_worker_ends_the_run():
    with pytest.raises(ClusterError, match="^worker on host: the disk is full$"):
        run_pool(FakeRay(lambda task: False), [1, "fault", 3])


@pytest.fixture
def worker(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # restored afterwards
    worker = Worker(Doubling, 1)
    assert worker.prepare() == (None, None)
    return worker


def test_a_worker_builds_its_object_once_and_runs_tasks(worker):
    assert worker.run(Task("one", 4)) == (8, None)
    assert worker.run(Task("two", 5)) == (10, None)


def test_errors_of_a_worker_are_one_line_with_its_host(worker):
    value, fault = worker.run(Task("one", None))
    assert value is None
    assert fault.startswith("worker on ")
    assert fault.endswith(": the disk is full; free space")
    assert Worker(unbuildable, 1).prepare()[1].endswith(": another encoder")


def test_a_node_that_joined_later_with_another_version_is_refused():
    build = functools.partial(cluster_worker.build_verified, Doubling, "0.0.1")
    _, fault = Worker(build, 1).prepare()
    assert fault.startswith("worker on ")
    assert "must have version 0.0.1 of this package. Received: " in fault
    assert (
        type(cluster_worker.build_verified(Doubling, cluster_worker.__version__))
        is Doubling
    )


def test_a_path_that_a_worker_cannot_see_is_refused_before_the_task(worker, tmp_path):
    file = tmp_path / "header.json"
    file.write_text("{}")
    seen = (visible(file), visible(tmp_path))
    assert worker.run(Task("one", 1, seen)) == (2, None)
    file.write_text("{ }")
    _, fault = worker.run(Task("one", 1, seen))
    assert "not the file that the driver sees (3 bytes instead of 2)" in fault
    file.unlink()
    _, fault = worker.run(Task("one", 1, seen))
    assert f"{file}: not visible here (No such file or directory); use a" in fault
    assert worker._object.runs == 1


def test_ray_that_is_not_installed_is_one_line_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ClusterError, match=r"show-attend-tell\[cluster\]"),
        connected("auto"),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("local", "when this machine is less busy"), ("head:6379", "check that the ver")],
)
def test_a_ray_that_does_not_start_is_one_line(address, remedy):
    def init(*arguments, **options):
        raise Exception("The current node timed out\nduring startup.")

    with pytest.raises(ClusterError, match=f"{address}: no connection .*{remedy}") as e:
        cluster._connect(SimpleNamespace(init=init), address)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "somewhere", "127.0.0.1:port"])
def test_an_address_that_nothing_answers_is_refused_within_seconds(
    address, monkeypatch
):
    grpc = pytest.importorskip("grpc")
    start = time.monotonic()
    for name, given in ((address, "auto"), ("auto", address)):
        monkeypatch.setenv("RAY_ADDRESS", name)
        with pytest.raises(ClusterError, match="no Ray answers") as caught:
            resolve_address(given, grpc)
        assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 20


def test_auto_starts_a_cluster_if_that_of_the_machine_was_killed(tmp_path, monkeypatch):
    grpc = pytest.importorskip("grpc")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert resolve_address("auto", grpc) == "local"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    assert resolve_address("auto", grpc) == "local"
