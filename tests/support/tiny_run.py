"""Prepare data of synthetic photos, small enough to train on in seconds."""

import numpy as np
from PIL import Image

from data_prep.feature_part import PartContent
from data_prep.feature_writer import PART_ROWS, FeatureWriter
from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.data import manifest
from show_attend_tell.data.features import feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import Vocabulary, tokenize

SHAPES = ("circle", "square", "star")
COLOURS = ("red", "green", "blue")
IDENTITY = {"network": "Tiny", "layer": "last", "grid": [2, 3], "width": 5}
_TABLES = {
    "data": {"name": "made-up", "source": "folder"},
    "encoder": {"network": "Tiny", "layer": "last"},
    "model": {
        "embedding_width": 6,
        "lstm_width": 8,
        "attention_width": 7,
        "dropout": 0.2,
        "initializer": "glorot",
    },
    "training": {
        "epochs": 3,
        "batch_size": 8,
        "optimizer": "adam",
        "learning_rate": 0.02,
        "patience": 100,
        "jit_compile": False,
    },
    "decoding": {"beam": 2, "validation_beam": 1, "max_words": 6, "batch_size": 8},
}


def experiment(name="tiny", **changes):
    """Return the tiny experiment; keywords are tables of changed settings."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _TABLES.items()}
    tables |= {key: changes[key] for key in changes.keys() - _TABLES.keys()}
    return experiment_from_dict({"name": name, **tables})


def prepare(work, mirror=False, identity=IDENTITY, name="made-up", seed=3):
    """Write manifest, vocabulary and features of 12 training and 4 other photos.

    A photo's annotations encode its caption's colour and shape, so they can be learnt.
    """
    folder = work / name
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    photos, features = [], []
    for k in range(16):
        name, split = f"photo-{k:02d}", "train" if k < 12 else "val"
        colour, shape = k % 3, (k // 3) % 3
        texts = [f"a {COLOURS[colour]} {SHAPES[shape]}", f"A {SHAPES[shape]}."]
        texts = texts[: 1 + (k % 2)]
        Image.new("RGB", (24, 16), COLOURS[colour]).save(folder / f"{name}.png")
        photos.append(Photo(name, f"{name}.png", split, texts))
        a = 0.1 * rng.standard_normal((6, 5))
        a[colour, 0], a[3 + shape, 1] = 3, 3
        features.append(a)
    manifest.write_manifest(folder / "manifest.jsonl", photos)
    words = [tokenize(t) for p in photos if p.split == "train" for t in p.captions]
    Vocabulary.build(words).save(folder / "vocabulary.json")
    ids, features = [photo.id for photo in photos], np.array(features, np.float16)
    write_features(folder, ids, features, False, identity)
    if mirror:  # another order of rows, as training photos alone have
        mirrored = features[11::-1, ::-1]
        write_features(folder, ids[11::-1], mirrored, True, identity)
    return work


def write_features(folder, ids, features, mirror=False, identity=IDENTITY):
    """Write a feature file of all photos."""
    path = feature_path(folder, experiment().encoder, "train" if mirror else None)
    assert len(ids) <= PART_ROWS
    with FeatureWriter(path, identity, ids, mirror) as writer:
        writer.part(0).write(PartContent(features, [""] * len(ids)))
        writer.finish()
