"""Build a prepared folder and a run to evaluate: photos of noise, a tiny captioner."""

import dataclasses
import json
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from show_attend_tell.config import settings
from show_attend_tell.data import manifest
from show_attend_tell.data.features import FORMAT, feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.evaluation.evaluate import evaluate
from show_attend_tell.models.captioner import Captioner

SPLITS = ("train", "val", "val", "val", "val", "val", "none")
WORDS = "a dog cat runs on grass sits red".split()
GRID, WIDTH, SIDE = (2, 2), 3, 20
IDENTITY = {
    "network": "Tiny",
    "layer": "last",
    "weights_digest": "0",
    "image_size": 8,
    "resize": "squash",
    "grid": list(GRID),
    "width": WIDTH,
}
_ENCODER_KEYS = ("network", "layer", "image_size", "resize")
EXPERIMENT = settings.experiment_from_dict(
    {
        "name": "tiny",
        "data": {"name": "tiny", "source": "folder"},
        "encoder": {key: IDENTITY[key] for key in _ENCODER_KEYS},
        "model": {
            "embedding_width": 8,
            "lstm_width": 8,
            "attention_width": 8,
            "initializer": "glorot",
        },
        "training": {},
        "decoding": {
            "beam": 2,
            "max_words": 6,
            "batch_size": 2,
            "length_normalisation": 0.5,
        },
    }
)


def make_photos(folder: Path, rng: np.random.Generator) -> list[Photo]:
    """Write photos of noise, each with two captions of random words."""
    photos = []
    for number, split in enumerate(SPLITS):
        path = folder / "photos" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        Image.fromarray(noise).save(path)
        captions = [" ".join(rng.choice(WORDS, 5)).capitalize() + "." for _ in "ab"]
        photos.append(Photo(f"{number}.png", path, split, tuple(captions)))
    return photos


def write_features(path: Path, ids: list[str], rng: np.random.Generator) -> None:
    """Write a valid feature file of random values."""
    with h5py.File(path, "w") as file:
        shape = (len(ids), GRID[0] * GRID[1], WIDTH)
        file["features"] = rng.normal(0, 3, shape).astype(np.float16)
        file["written"] = np.ones(len(ids), bool)
        file.create_dataset("image_ids", data=ids, dtype=h5py.string_dtype())
        file.create_dataset("problems", data=[""] * len(ids), dtype=h5py.string_dtype())
        file.attrs.update(
            format=FORMAT, identity=json.dumps(IDENTITY), mirrored=False, complete=True
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
    def manifest(self) -> Path:
        return self.work / "tiny" / "manifest.jsonl"

    def evaluate(self, **changes):
        chosen = {"tokenizer": "simple", "progress": False, **changes}
        return evaluate(EXPERIMENT, self.work, self.runs, **chosen)

    def saved(self, name: str):
        return json.loads((self.run / name).read_text(encoding="utf-8"))


def make_place(root: Path) -> Place:
    """Write random photos and features, and an untrained captioner."""
    place = Place(root / "prepared", root / "runs")
    rng = np.random.default_rng(7)
    folder = place.work / "tiny"
    photos = make_photos(folder, rng)
    manifest.write_manifest(place.manifest, photos)
    path = feature_path(folder, EXPERIMENT.encoder)
    write_features(path, [p.id for p in reversed(photos)], rng)
    vocabulary = Vocabulary.build([WORDS])
    model = Captioner(
        vocabulary, EXPERIMENT.model, WIDTH, GRID, encoder_identity=IDENTITY, seed=3
    )
    place.run.mkdir(parents=True)
    model.save(place.run / "model.keras")
    return place
