"""Compare our feature extraction from JPEG files with ``model.predict``, on VGG19."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import turns
from benchmarks.cost import vgg19
from benchmarks.row import Bar, Row
from benchmarks.turns import Contender, Work
from show_attend_tell.data import manifest

HALF_BAR = Bar("ratio", least=1.9)
BAR = Bar("ratio", least=1.0)
# enough photos for the faster convolutions of many
PHOTOS = 256
SIDE = 224
_THEIRS = 32  # photos in a burst of the baseline, which is scaled
_BATCH = 32  # batch of the baseline; Keras' default, and ours
_SECONDS = 60
_DATA = "synthetic"


def write_photos(
    work: str | Path, photos: int, smallest: int = 224, largest: int = 500
) -> int:
    """Write JPEG files of the sizes of Flickr's photos, and their manifest.

    Returns:
        Total bytes of the files.
    """
    rng = np.random.default_rng(5)
    folder = Path(work) / _DATA
    folder.mkdir(parents=True)
    rows = []
    for k in range(photos):
        width, height = rng.integers(smallest, largest + 1, 2).tolist()
        coarse = rng.integers(0, 256, (12, 12, 3), np.uint8)
        image = Image.fromarray(coarse).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        grain = rng.integers(-12, 13, (height, width, 3), np.int16)
        pixels = np.clip(np.asarray(image, np.int16) + grain, 0, 255).astype(np.uint8)
        file = folder / f"{k:04d}.jpg"
        Image.fromarray(pixels).save(file, quality=90)
        rows.append(manifest.Photo(file.name, file.name, "train", ["a photo"]))
    manifest.write_manifest(folder / "manifest.jsonl", rows)
    return sum(file.stat().st_size for file in folder.glob("*.jpg"))


def ours(
    work: str, photos: int, precision: str, side: int = SIDE, cores: int | None = None
) -> Work:
    """Prepare :func:`data_prep.extract.extract`, optionally on fewer processors.

    The time is its own: that of one feature file, from the first photo read to the
    file's last byte on disk, without building the network.
    """
    turns.use_cores(cores)
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from data_prep.extract import extract
    from show_attend_tell.config import experiments

    changes = {
        "data.name": _DATA,
        "encoder.network": "VGG19",
        "encoder.layer": "block5_conv4",
        "encoder.weights": "none",
        "encoder.precision": precision,
        "encoder.image_size": side,
        "encoder.mirror": "false",
    }
    settings = experiments.load_experiment(
        "flickr8k_soft", [f"{key}={value}" for key, value in changes.items()]
    )

    def run() -> float:
        (file,) = extract(settings, work, overwrite=True, progress=False)
        assert file.extracted == photos
        assert not file.unreadable
        return file.seconds

    return Work(run, photos)


def keras_predict(work: str, photos: int, side: int = SIDE) -> Work:
    """Prepare ``predict`` of keras.applications on the photos decoded by Pillow."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    import keras

    whole = keras.applications.VGG19(
        include_top=False, weights=None, input_shape=(side, side, 3)
    )
    model = keras.Model(whole.inputs, whole.get_layer("block5_conv4").output)
    files = sorted((Path(work) / _DATA).glob("*.jpg"))[:photos]
    assert len(files) == photos

    def run():
        squares = np.empty((photos, side, side, 3), np.float32)
        for k, file in enumerate(files):
            with Image.open(file) as image:
                square = image.convert("RGB").resize((side, side))
            squares[k] = square
        pixels = keras.applications.vgg19.preprocess_input(squares)
        model.predict(pixels, batch_size=_BATCH, verbose=0)

    return Work(run, photos)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return one row, in seconds for all photos."""
    photos, side = (4, 32) if quick else (PHOTOS, SIDE)
    half = machine["instruction_sets"]["AMX-BF16"]
    precision = "bfloat16" if half else "float32"
    with tempfile.TemporaryDirectory() as work:
        size = write_photos(work, photos)
        common = {"work": work, "side": side}
        theirs = min(_THEIRS, photos)
        contenders = {
            "ours": Contender(
                ours, {**common, "photos": photos, "precision": precision}
            ),
            "predict": Contender(keras_predict, {**common, "photos": theirs}),
        }
        times = turns.compare(contenders, 1 if quick else _SECONDS, rounds=6)
    reason = "" if half else "the processor lacks AMX-BF16, or it is unknown; "
    row = Row(
        work="extraction",
        what=f"VGG19 to block5_conv4 in {precision}, {photos} JPEG files, {side} px",
        unit="s",
        machine=machine,
        **times.fields("ours", "predict", photos),
        bar=HALF_BAR if half else BAR,
        precision=precision,
        note=f"{reason}224 to 500 px, {size / photos / 1e3:.0f} kB a file; ours to the "
        "finished features.h5, the baseline in float32 to an array, "
        f"{theirs} photos a round",
    )
    return [row.limited(vgg19(photos, side, precision))]
