"""The simulation of docs/scale.md agrees with closed forms in its limits."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import resources, scale
from benchmarks.scale import IDEAL, Assumptions

DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
FREE = replace(IDEAL, start=0.0, actor=0.0, task=0.0, wait=0.0)


def test_one_worker_takes_the_sum_of_all_times():
    one = replace(FREE, start=20.0, actor=0.5, task=0.25)
    # the end of the start and that of each task are handled by the driver
    assert scale.run_queue(100, 1, 3.0, one).seconds == 20 + 100 * 3 + 101 * 0.25


def test_without_stragglers_and_failures_the_workers_share_the_tasks_equally():
    assert scale.run_queue(1000, 10, 3.0, FREE).seconds == pytest.approx(300)
    assert scale.run_queue(1001, 10, 3.0, FREE).seconds == pytest.approx(303)
    late = replace(FREE, start=20.0)
    efficiency = 20_000 * 3 / (10 * scale.run_queue(20_000, 10, 3.0, late).seconds)
    assert efficiency == pytest.approx(1, abs=0.004)


def test_the_same_seed_gives_the_same_run():
    a = Assumptions()
    first, second, other = (scale.run_queue(500, 20, 36.0, a, n) for n in (1, 1, 2))
    assert first == second != other


def test_an_overloaded_driver_limits_the_tasks_a_second():
    slow = replace(FREE, task=1e-2, wait=1e-3)
    workers = 2 * scale.driver_limit(3.0, slow)
    seconds = scale.run_queue(5000, workers, 3.0, slow).seconds
    assert seconds == pytest.approx(5000 * scale.driver_seconds(workers, slow), rel=0.1)


def test_a_task_is_repeated_until_its_worker_survives():
    # M (e^(x/M) - 1) is the expected time of x seconds that are repeated after each
    # failure, of mean time M between failures.
    dying = replace(FREE, mtbf=100.0, replacement=0.0)
    queue = scale.run_queue(20_000, 1, 4.0, dying)
    expected = 100 * math.expm1(4 / 100)
    assert queue.seconds / 20_000 == pytest.approx(expected, rel=2e-3)
    assert queue.deaths / 20_000 == pytest.approx(math.expm1(4 / 100), rel=0.05)


def test_the_ring_sends_twice_the_gradients_and_has_2n_minus_2_messages():
    a = replace(Assumptions(), gradients=1e8, bandwidth=1e9, latency=1e-3)
    assert scale.allreduce_seconds(1, a) == 0
    assert scale.allreduce_seconds(2, a) == pytest.approx(0.1 + 2e-3)
    assert scale.allreduce_seconds(4, a) == pytest.approx(0.15 + 6e-3)
    none = replace(a, latency=0.0)
    assert scale.allreduce_seconds(10**6, none) == pytest.approx(0.2, rel=1e-5)


def test_an_update_is_as_slow_as_its_slowest_worker():
    even = replace(IDEAL, gradients=0.0, latency=0.0)
    assert scale.update_seconds(50, even) == pytest.approx(even.update)
    slow = replace(even, slow_updates=0.01, slowness=3.0)
    expected = even.update * (1 + 2 * (1 - 0.99**50))
    assert scale.update_seconds(50, slow) == pytest.approx(expected, rel=0.03)
    noisy = replace(even, spread=0.1)
    assert scale.update_seconds(50, noisy) > 1.1 * even.update


@pytest.mark.parametrize("mtbf", [2000.0, 20_000.0])
def test_simulated_failures_take_the_time_of_daly(mtbf):
    a = Assumptions()
    interval = scale.checkpoint_interval(a.checkpoint, mtbf)
    taken = scale.run_training(20_000, interval, mtbf, a)
    expected = scale.daly_seconds(20_000 * interval, interval, mtbf, a)
    assert taken == pytest.approx(expected, rel=0.01)


def test_hours_and_bytes_are_multiples_of_the_rates():
    rates = replace(resources.Rates(), vgg16=0.36, features=2e4)
    hours = resources.hours_table(rates).splitlines()
    assert [cell.strip() for cell in hours[2].split("|")][2:6] == [
        *("360 ms", "100", "10,000", "1,000,000")
    ]
    table = resources.bytes_table(rates)
    assert "| disk: features, VGG16 " in table
    assert "| 20.0kB  | 20.0GB | 2.00TB | 200TB  " in table


@pytest.mark.nightly
def test_the_document_holds_the_output_of_the_command(monkeypatch, tmp_path):
    figure = tmp_path / "scale.png"
    monkeypatch.setattr(scale, "FIGURE", figure)
    done = CliRunner().invoke(command.main, ["scale"], catch_exceptions=False)
    assert done.exit_code == 0
    *lines, path = done.output.splitlines()
    assert path == str(figure)
    assert figure.read_bytes().startswith(b"\x89PNG")
    document = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and line not in document] == []
