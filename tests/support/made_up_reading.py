"""A small experiment that reads, and a prepared folder of drawn words."""

import numpy as np
from tiny_reader import drawn_words

from show_attend_tell.config.settings import experiment_from_dict
from show_attend_tell.data.words import IMAGES, Word, write_manifest

_TABLES = {
    "data": {"name": "made-up", "source": "words"},
    "training": {"epochs": 2, "batch_size": 8, "warmup_steps": 2, "jit_compile": False},
    "reader": {
        "iterations": 1,
        "channels": [4, 4, 8, 8],
        "width": 16,
        "embedding_width": 8,
        "attention_width": 8,
        "feature_width": 16,
    },
}


def prepare_words(work, train=40, val=12, test=0, name="made-up", longest=6):
    """Write a prepared folder; return the work folder."""
    counts = {"train": train, "val": val, "test": test}
    folder, images, rows = work / name, [], []
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate(counts.items()):
        if count:
            crops, words = drawn_words(count, longest, seed)
            images.append(crops)
            rows += [Word(split, word) for word in words]
    np.save(folder / IMAGES, np.concatenate(images))
    write_manifest(folder, rows)
    return work


def experiment(name="tiny", **changes):
    """Return a small experiment; keywords are tables of changed settings."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _TABLES.items()}
    return experiment_from_dict({"name": name, "task": "read", **tables})
