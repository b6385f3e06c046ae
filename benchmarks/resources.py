"""Multiply rates by numbers of photos: core-hours, GPU-hours, disk and network.

Every row names its source: measured here by `python -m benchmarks.rates` on one core of
an AMD EPYC (Zen 4), published elsewhere, or computed from other numbers.
"""

from dataclasses import dataclass

from benchmarks.table import markdown, number
from data_prep.disk import format_bytes

PHOTOS = (10**6, 10**8, 10**10)
_BATCH = 64  # captions of an update
# seconds of a photo by VGG19 in bfloat16, without decoding it; benchmarks/README.md
H100 = 0.075e-3
V100 = 60.23e-3 / 64  # seconds of a photo by VGG16 in float16, batch 64; published
_MEASURED = "measured"
# github.com/PaddlePaddle/Paddle, paddle/contrib/float16/float16_benchmark.md, batch 64;
# github.com/jcjohnson/cnn-benchmarks, batch 16
_PADDLE = "published: Paddle"
_JOHNSON = "published: cnn-benchmarks"


@dataclass(frozen=True)
class Rates:
    """Measured seconds and bytes, by photo or update.

    Attributes:
        vgg16: seconds of features on one core.
        vgg19: the same, with random weights.
        captions: VGG16 and a beam of 5.
        decoding: seconds of a JPEG file of 39 kB, a part of the three above.
        update: of 64 captions in float32.
        update_half: the same in bfloat16.
        gradients: bytes of an update, four for each weight.
        features: bytes of VGG16's features.
        caption: bytes of a row of JSON Lines.
        row: bytes of a row of the manifest, with one caption.
        row_memory: bytes of memory for it.
        row_seconds: seconds of reading it.
        index: bytes of the index of features.
        index_memory: bytes of memory for them, when they are opened.
        part: seconds of joining a part to the feature file; 47 ms on a machine that
            reads a manifest's row in 31 µs, scaled to the 17 µs of the others' machine.
        start: seconds of a worker until its first photo.
        task: seconds of the driver on a task, with two workers.
        wait: more of it for each worker that it waits for.
        jpeg: bytes of a photo: COCO's 82,783 training photos are 13 GB
            (cocodataset.org); published.
    """

    vgg16: float = 0.141
    vgg19: float = 0.183
    captions: float = 0.165
    decoding: float = 1.94e-3
    update: float = 0.623
    update_half: float = 0.506
    gradients: float = 29.55e6
    features: float = 20.4e3
    caption: float = 231.0
    row: float = 169.0
    row_memory: float = 718.0
    row_seconds: float = 16.6e-6
    index: float = 31.1
    index_memory: float = 153.0
    part: float = 25e-3
    start: float = 5.0
    task: float = 1.03e-3
    wait: float = 0.15e-6
    jpeg: float = 13e9 / 82_783


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.3g}" if seconds < 3.6e6 else f"{seconds / 3600:,.0f}"


def hours_table(rates: Rates) -> str:
    """Return the hours of cores and GPUs for 1 million to 10 billion photos."""
    rows = [
        ("features, VGG16, core-hours", rates.vgg16, _MEASURED),
        ("features, VGG19, core-hours", rates.vgg19, _MEASURED),
        ("captions, VGG16, beam 5, core-hours", rates.captions, _MEASURED),
        ("decoding for GPUs, core-hours", rates.decoding, _MEASURED),
        ("training, float32, core-hours an epoch", rates.update / _BATCH, _MEASURED),
        (
            "training, bfloat16, core-hours an epoch",
            rates.update_half / _BATCH,
            _MEASURED,
        ),
        ("VGG16, V100 in float16, GPU-hours", V100, _PADDLE),
        ("VGG16, GTX 1080 in float32, GPU-hours", 66.56e-3 / 16, _JOHNSON),
        ("VGG19, GTX 1080 in float32, GPU-hours", 80.39e-3 / 16, _JOHNSON),
        ("VGG19, H100 in bfloat16, GPU-hours", H100, _MEASURED),
    ]
    return _table(rows, lambda value: number(1e3 * value, "ms"), _hours)


def bytes_table(rates: Rates) -> str:
    """Return the bytes on disk, over the network and in the driver's memory."""
    gradients = 2 * rates.gradients / _BATCH
    computed = "computed: 2 gradients / 64"
    rows = [
        ("disk: photos, JPEG", rates.jpeg, "published: cocodataset.org"),
        ("disk: features, VGG16", rates.features, _MEASURED),
        ("disk: captions, JSON Lines", rates.caption, _MEASURED),
        ("disk: manifest, one caption", rates.row, _MEASURED),
        ("disk: index of the features", rates.index, _MEASURED),
        ("network: features", rates.jpeg + rates.features, "computed: JPEG + features"),
        ("network: captions", rates.jpeg + rates.caption, "computed: JPEG + row"),
        ("network: training, features", rates.features, "computed: an epoch"),
        ("network: training, all-reduce", gradients, computed),
        ("memory of the driver: manifest", rates.row_memory, _MEASURED),
        ("memory of a training: index", rates.index_memory, _MEASURED),
    ]
    return _table(rows, format_bytes, format_bytes)


def count_text(photos: int) -> str:
    """Return a number of photos in millions or billions."""
    return f"{photos // 10**6:,} M" if photos < 10**9 else f"{photos // 10**9:,} B"


def _table(rows, one, many) -> str:
    head = ("work", "a photo", *map(count_text, PHOTOS), "source")
    lines = [
        (name, one(value), *(many(value * count) for count in PHOTOS), source)
        for name, value, source in rows
    ]
    return markdown(head, lines)
