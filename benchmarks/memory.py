"""Measure peak memory and the first step of training on features of COCO's size."""

import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import feature_file, synthetic, turns
from benchmarks.row import Bar, Row
from benchmarks.sizes import FULL, TINY, Sizes

MEMORY_BAR = Bar("ours", most=2.5)
START_BAR = Bar("ours", most=20)
PHOTOS = 123_287
VOCABULARY = 10_000
STEPS = 25
_HELD_OUT = 5000  # photos of validation and of test in Karpathy's split
_PER_PHOTO = 5
_DISTINCT = 256  # distinct photos; all others repeat their bytes
_COPIES = 5  # weights, gradients, two moments, the copy that is saved


def changes(sizes: Sizes, quick: bool) -> list[str]:
    """Return changes of coco_soft: none, or all widths in a quick run."""
    if not quick:
        return []
    widths = {
        "model.embedding_width": sizes.embedding_width,
        "model.lstm_width": sizes.lstm_width,
        "model.attention_width": sizes.attention_width,
        "training.batch_size": sizes.batch,
    }
    return [f"{key}={value}" for key, value in widths.items()]


def prepare(work: str | Path, photos: int, vocabulary: int, sizes: Sizes) -> int:
    """Write the prepared folder of synthetic data under the name of COCO's.

    Returns:
        Bytes of the feature file.
    """
    from show_attend_tell.config import experiments
    from show_attend_tell.config.settings import Experiment
    from show_attend_tell.data import manifest
    from show_attend_tell.data.features import feature_path
    from show_attend_tell.data.splits import folder_of
    from show_attend_tell.data.vocabulary import Vocabulary

    settings: Experiment = experiments.load_experiment("coco_soft")
    folder = folder_of(settings, work)
    folder.mkdir(parents=True)
    words = synthetic.words(vocabulary)
    Vocabulary(words).save(folder / "vocabulary.json")
    held_out = min(_HELD_OUT, photos // 4)
    splits = ["val"] * held_out + ["test"] * held_out
    splits += ["train"] * (photos - len(splits))
    rng = np.random.default_rng(11)
    captions = synthetic.tokens(
        rng, synthetic.lengths(rng, photos * _PER_PHOTO), vocabulary
    )
    texts = [" ".join(words[k] for k in ids) for ids in captions]
    rows = [
        manifest.Photo(
            name, f"{name}.jpg", split, texts[k * _PER_PHOTO : (k + 1) * _PER_PHOTO]
        )
        for k, (name, split) in enumerate(
            zip(feature_file.names(photos), splits, strict=True)
        )
    ]
    manifest.write_manifest(folder / "manifest.jsonl", rows)
    path = feature_path(folder, settings.encoder)
    return feature_file.write_feature_file(path, photos, _DISTINCT, sizes)


def train(work: str, started: float, steps: int, changed: list[str]) -> dict:
    """Train through :func:`training.train.train`, as the command line does.

    Args:
        work: the prepared folder.
        started: ``time.monotonic()`` when this process was started.
        steps: number of steps before an interrupt as by Ctrl-C, which writes the
            checkpoint.
        changed: changed settings of coco_soft.

    Returns:
        ``first``, seconds from the process's start to the end of the first step,
        ``cores``, processors used until then,
        ``peak``, peak resident bytes, and ``parameters``.
    """
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from show_attend_tell.config import experiments
    from show_attend_tell.training import train as training

    result = {}
    watch = turns.Stopwatch()

    class Watched(training.Trainer):
        """The trainer, interrupted after some steps."""

        def _after_update(self, log, bar):
            result.setdefault("first", time.monotonic() - started)
            result.setdefault("cores", watch.read()[1])
            result["parameters"] = self.model.count_params()
            super()._after_update(log, bar)
            if self.position.step >= steps:
                raise KeyboardInterrupt

    training.Trainer = Watched
    settings = experiments.load_experiment("coco_soft", changed)
    try:
        training.train(settings, work, Path(work) / "runs", progress=False)
    except KeyboardInterrupt:
        pass
    return {**result, "peak": turns.peak_memory()}


def _resident(sizes: Sizes, parameters: int) -> float:
    """Return the necessary bytes of a step: weights, photos, P, dP, logits."""
    B, L, D, A, _, _, K, T = sizes.letters
    return 4 * (_COPIES * parameters + B * L * (D + 2 * A) + B * T * K)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return a row for memory and one for the start."""
    photos, vocabulary = (60, 50) if quick else (PHOTOS, VOCABULARY)
    sizes, steps = (TINY, 3) if quick else (FULL, STEPS)
    with tempfile.TemporaryDirectory() as work:
        free = shutil.disk_usage(work).free
        needed = photos * 25_000  # a tenth of (L, D) float16, and a margin
        if free < needed:
            raise turns.ContenderError(
                f"{work} must have {needed / 1e9:.1f} GB free. Received: "
                f"{free / 1e9:.1f} GB; set TMPDIR to a folder with more space"
            )
        size = prepare(work, photos, vocabulary, sizes)
        found = turns.run_in_process(
            train,
            work=work,
            started=time.monotonic(),
            steps=steps,
            changed=changes(sizes, quick),
        )
    data = f"{photos} photos, {size / 1e9:.2f} GB of features"
    common = {"work": "memory", "machine": machine}
    held = dataclasses.replace(sizes, vocabulary=vocabulary)
    limit = _resident(held, found["parameters"]) / 2**30
    return [
        Row(
            what=f"training of coco_soft on {data}",
            unit="GiB",
            ours=found["peak"] / 2**30,
            bar=MEMORY_BAR,
            limit=limit,
            bytes=limit * 2**30,
            note=f"peak in {steps} steps and a checkpoint; the limit is "
            "weights, gradients, moments, one batch with its projection and logits",
            **common,
        ),
        Row(
            what=f"from start to the end of the first step, {data}",
            unit="s",
            ours=found["first"],
            cores=found["cores"],
            bar=START_BAR,
            note="manifest, tokens and compilation included",
            **common,
        ),
    ]
