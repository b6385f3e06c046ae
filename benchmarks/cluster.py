"""Compare two workers of a cluster, of one processor each, with one worker."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import turns
from benchmarks.extraction import write_photos
from benchmarks.row import Bar, Row

BAR = Bar("ratio", least=1.7)
TRAINING_BAR = Bar("ratio", least=1.5)
_TASK = 32  # photos of a task: a batch of the encoder, two of the pipeline
_TASKS = 10  # of each measurement, without those during which workers start
_ROUNDS = 3
_UPDATES = 20  # of each measurement of training
_TRAINING_ROUNDS = 5


def _seconds(cluster, job, arguments, items, workers: int) -> float:
    """Return the seconds per item once all workers have run an item."""
    ends = []
    for _ in cluster.run(job, arguments, items, workers):
        ends.append(time.perf_counter())
    # The workers start together; the first item of each is not measured.
    return (ends[-1] - ends[workers - 1]) / (len(ends) - workers)


def _feature_tasks(folder: Path, files: list[Path], identity: dict) -> Iterator:
    from data_prep.feature_part import Part
    from show_attend_tell.cluster.pool import WorkItem

    for number in range(_TASKS + 2):
        part = Part(folder / f"{number}.h5", identity, False, tuple(map(str, files)))
        yield WorkItem(f"part {number}", (part, tuple(files)))


def _caption_tasks(folder: Path, files: list[Path]) -> Iterator:
    from show_attend_tell.cluster.captions import Chunk
    from show_attend_tell.cluster.pool import WorkItem

    for number in range(_TASKS + 2):
        chunk = Chunk(folder / f"{number}.jsonl", tuple(files), frozenset())
        yield WorkItem(f"chunk {number}", chunk)


def measure(work: str, photos: int, rounds: int) -> dict:
    """Run features and captions by one worker and by two.

    Returns:
        Seconds per task of each round, by ``features-1``, ``features-2``,
        ``captions-1`` and ``captions-2``.
    """
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from show_attend_tell.cluster import captions
    from show_attend_tell.cluster import features as cluster_features
    from show_attend_tell.cluster.pool import connected
    from show_attend_tell.config.experiments import load_experiment
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.pipeline import load_requested
    from show_attend_tell.inference.request import CaptionRequest
    from show_attend_tell.models.encoder.network import Encoder
    from show_attend_tell.models.pretrained import shipped_model

    write_photos(work, photos)
    folder = Path(work)
    files = sorted(folder.rglob("*.jpg"))
    encoder = load_experiment("flickr8k_soft").encoder
    request = CaptionRequest((shipped_model("shipped-lstm"),))
    pipeline = load_requested(request)
    author = made_by(pipeline, request)
    count = photos * _TASKS
    identity = Encoder(encoder).identity()
    found: dict[str, list[float]] = {}
    with connected("auto") as cluster:
        for number in range(rounds):
            for workers in (1, 2) if number % 2 else (2, 1):
                works = {
                    "features": (
                        cluster_features.part_writer,
                        (encoder, identity, count),
                        _feature_tasks(folder, files, identity),
                    ),
                    "captions": (
                        captions.shard_writer,
                        (request, author, pipeline.encoder.identity(), count),
                        _caption_tasks(folder, files),
                    ),
                }
                for name, arguments in works.items():
                    taken = _seconds(cluster, *arguments, workers)
                    found.setdefault(f"{name}-{workers}", []).append(taken)
    return found


def measure_training(quick: bool, rounds: int) -> dict:
    """Train on a shared batch by one worker and by two.

    Returns:
        Seconds per update of each round, by number of workers.
    """
    from benchmarks.training_workers import seconds_per_update
    from show_attend_tell.cluster.pool import connected
    from show_attend_tell.cluster.training import run_together

    found: dict[int, list[float]] = {1: [], 2: []}
    arguments = {"quick": quick, "updates": 2 if quick else _UPDATES}
    with connected("auto") as cluster, tempfile.TemporaryDirectory() as folder:
        ray_folder = Path(folder) / "ray"
        for number in range(rounds):
            for workers in (1, 2) if number % 2 else (2, 1):
                taken = run_together(
                    cluster, seconds_per_update, arguments, ray_folder, workers
                )
                found[workers].append(taken)
    return found


def _training_row(machine: dict, quick: bool, rounds: int) -> Row:
    with turns.own_ray() as environment:
        found = turns.run_in_process(
            measure_training, environment, quick=quick, rounds=rounds
        )
    pairs = zip(found[1], found[2], strict=True)
    return Row(
        work="the same",
        what="training by two workers of one core, `flickr8k_soft`, against one worker",
        unit="s",
        ours=statistics.median(found[2]),
        machine=machine,
        baseline=statistics.median(found[1]),
        ratio=statistics.median(one / two for one, two in pairs),
        ratio_is="baseline / ours",
        bar=TRAINING_BAR,
        note="updates of a batch of 64 captions, 32 for each of two workers, each on "
        "a core of its own; without the start of the workers and the compilation",
    )


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return one row each for features, captions and training."""
    photos, rounds = (2, 1) if quick else (_TASK, _ROUNDS)
    with tempfile.TemporaryDirectory() as work, turns.own_ray() as environment:
        found = turns.run_in_process(
            measure, environment, work=work, photos=photos, rounds=rounds
        )
    of_tasks = [
        Row(
            work="cluster" if name == "features" else "the same",
            what=f"{name} by two workers of one core, VGG16, against one worker",
            unit="photos/s",
            ours=photos / statistics.median(found[f"{name}-2"]),
            machine=machine,
            baseline=photos / statistics.median(found[f"{name}-1"]),
            ratio=statistics.median(
                one / two
                for one, two in zip(found[f"{name}-1"], found[f"{name}-2"], strict=True)
            ),
            ratio_is="ours / baseline",
            bar=BAR,
            note=f"{_TASKS} tasks of {photos} JPEG files of 224 to 500 px; without "
            "the start of the workers; driver and Ray on the same cores",
        )
        for name in ("features", "captions")
    ]
    return [*of_tasks, _training_row(machine, quick, 1 if quick else _TRAINING_ROUNDS)]
