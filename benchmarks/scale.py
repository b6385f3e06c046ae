"""Simulate features and training on 1 to 1,000 workers; docs/scale.md has the results.

Features: the discrete events of :class:`cluster.pool.Cluster`. One driver starts the
workers and handles one event after the other; each costs it a time that grows with the
number of workers it waits for. A free worker is given the task of a dead worker, or
else the next one; the fourth worker that one task ends is an error. Training: the
slowest of n workers, then a ring all-reduce; a dead worker stops all, and the last
checkpoint is read. Every number of the model is a field of :class:`Assumptions`.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from benchmarks import resources
from benchmarks.resources import PHOTOS, Rates
from benchmarks.table import markdown, number

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "scale.png"
WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # in the figure
TABULATED = (1, 10, 100, 1000)
_ATTEMPTS = 4  # as in cluster.pool
# simulated updates, and stretches between checkpoints
_STEPS = 2000
_SEGMENTS = 5000
_NEVER = math.inf


@dataclass(frozen=True)
class Assumptions:
    """The numbers of the simulation, in seconds, bytes and US dollars.

    Measured: `python -m benchmarks.rates` on one core of an AMD EPYC (Zen 4), in
    processor seconds, rounded. Published: the source is named. Assumed: neither.

    Attributes:
        photo: VGG16 on one core, JPEG file to written feature; measured.
        task_photos: photos of a task, ``data_prep.feature_writer.PART_ROWS``.
        set_photos: photos of one data set; a larger collection is divided into sets
            that are extracted one after the other, as the driver holds the rows of a
            whole manifest in memory; assumed.
        manifest_row: reading a row of the manifest; measured.
        start: start of a worker until its first photo; measured.
        actor: Ray starts an actor: 389 a second (github.com/ray-project/ray,
            release_logs/1.12.0/benchmarks/many_actors.json); published.
        task: work of the driver on a task; measured with two workers.
        wait: more of it for each worker that it waits for; measured.
        part: joining a part to the file; measured.
        spread: standard deviation of the logarithm of a task's or update's time;
            assumed.
        slow_tasks: share of tasks that are stragglers; assumed.
        slow_updates: share of a worker's updates that are stragglers; assumed.
        slowness: a straggler's time as a multiple; assumed.
        mtbf: mean time between failures of one worker: 5 % of spot instances are
            interrupted in a month (nops.io/blog/aws-spot-facts), 720 h / -ln 0.95;
            published as an upper bound.
        replacement: time until another machine is ready; assumed.
        update: one update of 64 captions on one core, ``flickr8k_soft`` in float32;
            measured.
        gradients: gradients of an update, four bytes for each of its weights.
        bandwidth: of a worker's network link, 10 Gbit/s; assumed.
        latency: of a message; assumed.
        checkpoint: writing a checkpoint; assumed.
        restart: starting the workers again and reading it; assumed.
        price: of a core and hour; assumed. An Amazon c7a.large, which has two cores,
            was listed at 0.103 an hour.
    """

    photo: float = Rates.vgg16
    task_photos: int = 256
    set_photos: int = 10**7
    manifest_row: float = Rates.row_seconds
    start: float = Rates.start
    actor: float = 1 / 389
    task: float = Rates.task
    wait: float = Rates.wait
    part: float = Rates.part
    spread: float = 0.1
    slow_tasks: float = 0.02
    slow_updates: float = 0.001
    slowness: float = 2.5
    mtbf: float = 720 * 3600 / -math.log(0.95)
    replacement: float = 300.0
    update: float = Rates.update
    gradients: float = Rates.gradients
    bandwidth: float = 1.25e9
    latency: float = 50e-6
    checkpoint: float = 5.0
    restart: float = 360.0
    price: float = 0.05


IDEAL = replace(
    Assumptions(), spread=0.0, slow_tasks=0.0, slow_updates=0.0, mtbf=_NEVER
)


class TaskError(Exception):
    """A task has ended four workers."""


@dataclass(frozen=True)
class Queue:
    """A simulated run: its duration and the number of workers that died."""

    seconds: float
    deaths: int


def driver_seconds(workers: int, a: Assumptions) -> float:
    """Return the driver's time for one event, if it waits for `workers` workers."""
    return a.task + a.wait * workers


def driver_limit(task: float, a: Assumptions) -> int:
    """Return the workers whose tasks of `task` seconds occupy the driver wholly.

    The root n of n (a.task + a.wait n) = task.
    """
    root = math.sqrt(a.task**2 + 4 * a.wait * task)
    return int(2 * task / (root + a.task))


def _times(rng, mean: float, share: float, a: Assumptions, size) -> np.ndarray:
    """Draw log-normal times of a mean, a share of them multiplied by ``slowness``."""
    times = mean * np.exp(a.spread * rng.standard_normal(size) - a.spread**2 / 2)
    return np.where(rng.random(size) < share, a.slowness * times, times)


def _drawn(rng, mean: float, a: Assumptions) -> Iterator[tuple[float, float]]:
    """Yield the time of a task, and the time until its worker would die, forever."""
    while True:
        times = _times(rng, mean, a.slow_tasks, a, 1000).tolist()
        lives = rng.standard_exponential(1000).tolist()
        yield from zip(times, (a.mtbf * life for life in lives), strict=True)


def run_queue(
    tasks: int, workers: int, mean: float, a: Assumptions, seed: int = 0
) -> Queue:
    """Simulate tasks of a mean time.

    Args:
        tasks: number of tasks, at least one.
        workers: number of workers.
        mean: seconds of a task, without stragglers.
        a: the assumptions.
        seed: seed of the random numbers.

    Raises:
        TaskError: four workers have died during one task.
    """
    rng = np.random.default_rng(seed)
    draw = _drawn(rng, mean, a)
    handling = driver_seconds(workers, a)
    events: list[tuple[float, int, bool, int | None]] = []  # (end, worker, alive, task)
    again: deque[int] = deque()
    attempts: Counter[int] = Counter()
    following = 0
    left = tasks
    free = 0.0
    deaths = 0

    def begin(now: float, worker: int, task: int | None) -> None:
        seconds, life = next(draw)
        seconds = a.start if task is None else seconds
        end = now + min(seconds, life)
        heapq.heappush(events, (end, worker, life >= seconds, task))

    for worker in range(workers):
        begin(worker * a.actor, worker, None)
    while left:
        end, worker, alive, task = heapq.heappop(events)
        free = max(end, free) + handling  # the driver handles one event at a time
        if not alive:
            deaths += 1
            if task is not None:
                again.append(task)
                attempts[task] += 1
                if attempts[task] == _ATTEMPTS:
                    raise TaskError(f"task {task} has ended {_ATTEMPTS} workers")
            begin(free + a.replacement, worker, None)
            continue
        left -= task is not None
        if again:
            begin(free, worker, again.popleft())
        elif following < tasks:
            begin(free, worker, following)
            following += 1
    return Queue(free, deaths)


def features(photos: int, workers: int, a: Assumptions, seed: int = 0) -> Queue:
    """Simulate the features of photos, one data set after the other."""
    sets = -(-photos // a.set_photos)
    each = -(-photos // sets)
    tasks = -(-each // a.task_photos)
    queue = run_queue(tasks, workers, a.photo * a.task_photos, a, seed)
    alone = each * a.manifest_row + tasks * a.part  # the workers wait for the driver
    return Queue(sets * (alone + queue.seconds), sets * queue.deaths)


def features_efficiency(photos: int, workers: int, a: Assumptions) -> float:
    """Return the share of the workers' time that is necessary work."""
    return photos * a.photo / (workers * features(photos, workers, a).seconds)


def allreduce_seconds(workers: int, a: Assumptions) -> float:
    """Return the time of a ring all-reduce: 2(n-1)/n bytes/bandwidth + 2(n-1) latency.

    Each of 2(n - 1) rounds sends bytes/n; Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009.
    """
    rounds = 2 * (workers - 1)
    return rounds * (a.gradients / workers / a.bandwidth + a.latency)


def update_seconds(workers: int, a: Assumptions, seed: int = 0) -> float:
    """Return the mean time of an update: the slowest worker and the all-reduce."""
    rng = np.random.default_rng(seed)
    times = _times(rng, a.update, a.slow_updates, a, (_STEPS, workers))
    return float(times.max(axis=1).mean()) + allreduce_seconds(workers, a)


def checkpoint_interval(write: float, mtbf: float) -> float:
    """Return the time between checkpoints that wastes least.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart
    dumps", 2006, Eq. (37); the first term is Young's, 1974.
    """
    if write >= 2 * mtbf:
        return mtbf
    ratio = math.sqrt(write / (2 * mtbf))
    return math.sqrt(2 * write * mtbf) * (1 + ratio / 3 + ratio**2 / 9) - write


def daly_seconds(work: float, interval: float, mtbf: float, a: Assumptions) -> float:
    """Return the expected time of work with failures; Daly's Eq. (20).

    M e^(R/M) (e^((tau + delta)/M) - 1) T/tau, of the mean time between failures M, the
    restart R, the interval tau, the time delta of a checkpoint and the work T.
    """
    segment = math.expm1((interval + a.checkpoint) / mtbf)
    return mtbf * math.exp(a.restart / mtbf) * segment * work / interval


def run_training(
    segments: int, interval: float, mtbf: float, a: Assumptions, seed: int = 0
) -> float:
    """Simulate stretches of work that each end with a checkpoint; return the time.

    Args:
        segments: number of stretches.
        interval: work of each, without its checkpoint.
        mtbf: mean time between failures of the whole group.
        a: the assumptions.
        seed: seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    total = 0.0
    for stretch in [interval + a.checkpoint] * segments:
        while (life := rng.exponential(mtbf)) < stretch:
            total += life
            while (life := rng.exponential(mtbf)) < a.restart:
                total += life
            total += a.restart
        total += stretch
    return total


def availability(workers: int, a: Assumptions) -> float:
    """Return the share of time in which updates are made and kept."""
    if a.mtbf == _NEVER:
        return 1.0
    mtbf = a.mtbf / workers
    interval = checkpoint_interval(a.checkpoint, mtbf)
    return _SEGMENTS * interval / run_training(_SEGMENTS, interval, mtbf, a)


def training_efficiency(workers: int, a: Assumptions) -> float:
    """Return the captions per second and worker, relative to an undisturbed one."""
    return a.update / update_seconds(workers, a) * availability(workers, a)


def duration(seconds: float) -> str:
    """Return a duration with its unit."""
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("h", 3600)):
        if seconds >= 2 * size:
            return number(seconds / size, unit)
    return number(seconds / 60, "min")


def _dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def features_table(a: Assumptions) -> str:
    """Return the table of features: time and dollars, and the efficiency."""
    small, medium, large = map(resources.count_text, PHOTOS)
    # Collections of whole sets have the same efficiency.
    head = ("workers", f"{small}: time, USD", "efficiency")
    head += (f"{medium}: time, USD", f"{large}: time, USD", "efficiency")
    lines = []
    for workers in TABULATED:
        cells = []
        shares = []
        for photos in PHOTOS:
            seconds = features(photos, workers, a).seconds
            shares.append(f"{photos * a.photo / (workers * seconds):.1%}")
            cost = workers * seconds / 3600 * a.price
            cells.append(f"{duration(seconds)}, {_dollars(cost)}")
        lines.append((f"{workers:,}", cells[0], shares[0], *cells[1:], shares[2]))
    return markdown(head, lines)


def training_table(a: Assumptions) -> str:
    """Return the table of data-parallel training."""
    head = ("workers", "all-reduce", "update", "checkpoint every", "kept", "efficiency")
    lines = []
    for workers in TABULATED:
        interval = checkpoint_interval(a.checkpoint, a.mtbf / workers)
        update = update_seconds(workers, a)
        kept = availability(workers, a)
        lines.append(
            (
                f"{workers:,}",
                f"{1e3 * allreduce_seconds(workers, a):.1f} ms",
                f"{update:.2f} s",
                duration(interval),
                f"{kept:.2%}",
                f"{a.update / update * kept:.1%}",
            )
        )
    return markdown(head, lines)


def draw(path: Path, a: Assumptions) -> None:
    """Draw the efficiencies against the number of workers, as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    steady = replace(a, slow_tasks=0.0, slow_updates=0.0, spread=0.0)
    for axes, function, curves in (
        (
            left,
            lambda n, photos, a: features_efficiency(photos, n, a),
            (
                ("10 M photos, no stragglers or failures", a.set_photos, IDEAL),
                ("sets of 10 M photos", a.set_photos, a),
                ("1 M photos", 10**6, a),
            ),
        ),
        (
            right,
            lambda n, _, a: training_efficiency(n, a),
            (
                ("all-reduce only", None, replace(steady, mtbf=_NEVER)),
                ("and stragglers", None, replace(a, mtbf=_NEVER)),
                ("and failures", None, a),
            ),
        ),
    ):
        for (label, photos, one), style in zip(curves, ("--", "-", ":"), strict=True):
            values = [100 * function(n, photos, one) for n in WORKERS]
            axes.plot(WORKERS, values, style, marker="o", markersize=3, label=label)
        axes.set(xscale="log", xlabel="workers of one core", ylim=(0, 105))
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.grid(alpha=0.3)
        axes.legend(loc="lower left", fontsize=8)
    left.set(title="Features, VGG16", ylabel="efficiency, %")
    right.set(title="Training, 64 captions a worker and update")
    figure.savefig(path, dpi=110)


def run(path: Path | None = FIGURE, a: Assumptions | None = None) -> None:
    """Print all tables and the driver's limits, and draw the figure."""
    a = a or Assumptions()
    rates = Rates()
    for table in (
        resources.hours_table(rates),
        resources.bytes_table(rates),
        features_table(a),
        training_table(a),
    ):
        click.echo(f"{table}\n")
    for name, seconds in (("one core", a.photo), ("one V100", resources.V100)):
        limit = driver_limit(seconds * a.task_photos, a)
        click.echo(f"The driver is fully occupied by {limit:,} workers of {name}.")
    if path is not None:
        draw(path, a)
        click.echo(str(path))
