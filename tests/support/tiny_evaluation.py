"""Build a prepared folder and a run to evaluate: drawn photos, a random captioner."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import tiny_run
from random_weights import randomised

from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.models.captioner import Captioner

PHOTO = (24, 16)  # width and height
IDENTITY = {**tiny_run.IDENTITY, "weights_digest": "0"}
IDENTITY |= {"image_size": 8, "resize": "squash"}
EXPERIMENT = tiny_run.experiment(
    encoder={"image_size": 8, "resize": "squash"},
    decoding={"batch_size": 2, "length_normalisation": 0.5},
)


@dataclasses.dataclass(frozen=True)
class Place:
    """Folders of prepared data and of runs."""

    work: Path
    runs: Path

    @property
    def run(self) -> Path:
        return self.runs / EXPERIMENT.name

    @property
    def data(self) -> Path:
        return self.work / EXPERIMENT.data.name

    @property
    def manifest(self) -> Path:
        return self.data / "manifest.jsonl"

    def evaluate(self, **changes):
        chosen = {"tokenizer": "simple", "progress": False, **changes}
        return evaluate(EXPERIMENT, self.work, self.runs, **chosen)

    def saved(self, name: str):
        return json.loads((self.run / name).read_text(encoding="utf-8"))


def make_place(root: Path) -> Place:
    """Write photos, features and captions, and a captioner of random weights."""
    place = Place(root / "prepared", root / "runs")
    tiny_run.prepare(place.work, identity=IDENTITY)
    vocabulary = Vocabulary.load(place.data / "vocabulary.json")
    model = Captioner(
        vocabulary,
        EXPERIMENT.model,
        IDENTITY["width"],
        tuple(IDENTITY["grid"]),
        encoder_identity=IDENTITY,
        seed=3,
    )
    randomised(model, np.random.default_rng(2), 1.5)
    place.run.mkdir(parents=True)
    model.save(place.run / "model.safetensors")
    return place
