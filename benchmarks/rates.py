"""Measure the rates of docs/scale.md: processor seconds of one thread, and bytes."""

import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from benchmarks import cost, turns
from benchmarks.extraction import write_photos
from benchmarks.sizes import FULL, Sizes

_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
_PHOTOS = 64
_UPDATES = 6
_TASKS = 2000
_ROWS = 100_000
_PARTS = 200
_PENDING = (10, 100, 1000)  # references that the driver waits for


def _files(photos: str | None, folder: str) -> list[Path]:
    """Return 64 photos of a folder, or synthetic ones."""
    if photos is None:
        write_photos(folder, _PHOTOS)
    return sorted(Path(photos or folder).rglob("*.jpg"))[:_PHOTOS]


def _seconds(run, *arguments) -> float:
    start = time.process_time()
    run(*arguments)
    return time.process_time() - start


def features(network: str, layer: str, weights: str, photos: str | None) -> dict:
    """Run the feature worker of a cluster on one part after a warm-up."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from data_prep.feature_part import Part
    from data_prep.photo_features import decode
    from show_attend_tell.cluster.features import part_writer
    from show_attend_tell.config.settings import EncoderSettings
    from show_attend_tell.models.encoder.network import Encoder

    settings = EncoderSettings(
        network=network, layer=layer, weights=weights, precision="bfloat16"
    )
    identity = Encoder(settings).identity()
    with tempfile.TemporaryDirectory() as folder:
        files = _files(photos, folder)

        def run(write: Callable, count: int) -> int:
            chosen = tuple(files[:count])
            path = Path(folder, f"{count}.h5")
            part = Part(path, identity, False, tuple(map(str, chosen)))
            write((part, chosen))
            return path.stat().st_size

        before = time.process_time()
        write = part_writer(settings, identity, 10**6)
        run(write, 32)
        warm = time.process_time() - before
        start = time.process_time()
        size = run(write, len(files))
        seconds = (time.process_time() - start) / len(files)
        encoder = Encoder(settings)
        decoding = _seconds(lambda: [decode(encoder, one, False) for one in files])
        photo_size = sum(one.stat().st_size for one in files)
    return {
        "s a photo": seconds,
        "s of decoding a photo": decoding / len(files),
        "bytes of a photo": photo_size / len(files),
        "bytes of features a photo": size / len(files),
        "s until the first batch ends, without it": warm - 32 * seconds,
        "s of the process until then": before,
    }


def captions(photos: str | None) -> dict:
    """Run the caption worker of a cluster on one chunk after a warm-up."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from show_attend_tell.cluster import captions as cluster
    from show_attend_tell.inference.batch import made_by
    from show_attend_tell.inference.pipeline import load_requested
    from show_attend_tell.inference.request import CaptionRequest
    from show_attend_tell.models.pretrained import shipped_model

    request = CaptionRequest((shipped_model("shipped-lstm"),))
    before = time.process_time()
    pipeline = load_requested(request)
    author = made_by(pipeline, request)
    encoder = pipeline.encoder.identity()
    worker = cluster.shard_writer(request, author, encoder, 10**6)
    with tempfile.TemporaryDirectory() as folder:
        files = tuple(_files(photos, folder))
        out = Path(folder, "captions.jsonl")
        job = cluster.Chunk(out, files, frozenset())
        warm = _seconds(worker, job)
        seconds = _seconds(worker, job)
        size = out.stat().st_size
    return {
        "s a photo": seconds / len(files),
        "bytes of a caption's row": size / len(files),
        "s of the first chunk, without its photos": warm - seconds,
        "s of the process until then": before,
    }


def updates(precision: str) -> dict:
    """Run updates of flickr8k_soft after a warm-up."""
    from benchmarks import train_step

    work = train_step.ours(FULL, precision, _UPDATES)
    work.run()
    return {
        "s an update of 64 captions": _seconds(work.run) / _UPDATES,
        "bytes of gradients": 4.0 * cost.parameters(FULL),
    }


def metadata() -> dict:
    """Read a manifest of 100,000 rows; join 200 parts, and open the file."""
    from benchmarks.feature_file import identity
    from data_prep.feature_part import PartContent
    from data_prep.feature_writer import PART_ROWS, FeatureWriter
    from show_attend_tell.data.features import FeatureReader
    from show_attend_tell.data.manifest import Photo, read_manifest, write_manifest

    found = {}
    ids = [f"{k:010d}_0123456789.jpg" for k in range(_ROWS)]
    words = "a brown dog runs across the wet grass with a red ball"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "manifest.jsonl")
        write_manifest(path, (Photo(k, f"photos/{k}", "train", (words,)) for k in ids))
        found["bytes of a manifest's row"] = path.stat().st_size / _ROWS
        found["s of reading a row"] = _seconds(read_manifest, path) / _ROWS
        memory = _memory(lambda: read_manifest(path))
        found["bytes of memory for a row"] = memory / _ROWS
        count = _PARTS * PART_ROWS
        tiny = identity(Sizes(locations=1, annotation_width=1))
        features = np.ones((PART_ROWS, 1, 1), np.float16)
        path = Path(folder, "features.h5")
        with FeatureWriter(path, tiny, ids[:count]) as writer:
            for number in writer.missing:
                content = PartContent(features, [""] * PART_ROWS)
                writer.part(number).write(content)
            found["s of a part to join"] = _seconds(writer.finish) / _PARTS
        # One location of one value, so that nearly all bytes are not features.
        found["bytes of the file a photo, without its features"] = (
            path.stat().st_size / count
        )
        seconds = _seconds(lambda: FeatureReader(writer.path).close())
        found["s of opening the file a photo"] = seconds / count
        memory = _memory(lambda: FeatureReader(writer.path))
        found["bytes of memory for the open file a photo"] = memory / count
    return found


def _memory(make: Callable[[], object]) -> int:
    """Return the bytes of Python's memory that a new object occupies."""
    tracemalloc.start()
    kept = make()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def no_work() -> Callable[[tuple], int]:
    """Return the function of an empty job, which returns its payload's length."""
    return len


def driver() -> dict:
    """Run empty tasks with the payload of 256 photos, and wait for many of them."""
    import ray

    from benchmarks.rates import no_work  # not of __main__, which workers lack
    from show_attend_tell.cluster.pool import WorkItem, connected

    paths = tuple(Path(f"/data/photos/{k:010d}_0123456789.jpg") for k in range(256))
    found = {"bytes of a task": float(len(pickle.dumps(WorkItem("part 0", paths))))}
    with connected("auto") as cluster:
        tasks = (WorkItem(f"part {number}", paths) for number in range(_TASKS))
        start = time.perf_counter()
        seconds = _seconds(lambda: sum(1 for _ in cluster.run(no_work, (), tasks, 2)))
        found["s of the driver a task, 2 workers"] = seconds / _TASKS
        found["s of the clock a task, 2 workers"] = (
            time.perf_counter() - start
        ) / _TASKS

        @ray.remote(num_cpus=1)
        def sleep() -> None:
            time.sleep(600)

        for count in _PENDING:
            pending = [sleep.remote() for _ in range(count)]
            ready = ray.put(0)
            ray.wait([*pending, ready])

            def wait(pending=pending, ready=ready):
                for _ in range(100):
                    ray.wait([*pending, ready], timeout=5)

            found[f"s of a wait for {count} tasks"] = _seconds(wait) / 100
            for one in pending:
                ray.cancel(one, force=True)
    return found


_VGG16 = {"network": "VGG16", "layer": "block5_conv3", "weights": "imagenet_8bit"}
_VGG19 = {"network": "VGG19", "layer": "block5_conv4", "weights": "none"}
_RATES = {
    "vgg16": (features, _VGG16),
    "vgg19": (features, _VGG19),
    "captions": (captions, {}),
    "float32": (updates, {"precision": "float32"}),
    "bfloat16": (updates, {"precision": "bfloat16"}),
    "metadata": (metadata, {}),
    "driver": (driver, {}),
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(_RATES)))
@click.option(
    "--photos",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="A folder of JPEG files; by default 64 files are generated.",
)
def main(names: tuple[str, ...], photos: str | None) -> None:
    """Measure the named rates, by default all, each in a process of one thread."""
    for name in names or _RATES:
        function, options = _RATES[name]
        if function in (features, captions):
            options = {**options, "photos": photos}
        with turns.own_ray() as environment:
            found = turns.run_in_process(function, _THREAD | environment, **options)
        for what, value in found.items():
            click.echo(f"{name}: {value:.4g} {what}")


if __name__ == "__main__":
    main()
