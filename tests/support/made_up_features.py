"""A made-up feature file of three parts, with one photo that could not be decoded."""

import numpy as np

from data_prep.feature_part import PartContent
from data_prep.feature_writer import FeatureWriter
from show_attend_tell.data.features import FeatureReader

ROWS = 20  # of a part
COUNT = 2 * ROWS + 3
UNREADABLE = ROWS + 5
IDENTITY = {
    "network": "VGG19",
    "layer": "block5_conv4",
    "weights": "imagenet",
    "weights_digest": "a" * 64,
    "grid": [2, 3],
    "width": 4,
    "precision": "float32",
    "versions": {"keras": "3.15.1"},
}
OTHER = {**IDENTITY, "network": "other"}
IDS = [f"photo é {row}.jpg" for row in range(COUNT)]
PROBLEMS = ["cut short" if row == UNREADABLE else "" for row in range(COUNT)]
VALUES = np.random.default_rng(3).normal(size=(COUNT, 6, 4)).astype(np.float16)
VALUES[UNREADABLE] = 0


class Writer(FeatureWriter):
    """The writer, with few rows in a part."""

    part_rows = ROWS


def write(
    path, numbers=None, finish=True, identity=IDENTITY, values=VALUES, **options
) -> list[int]:
    """Write or finish a file; return the parts written by this call."""
    with Writer(path, identity, IDS, **options) as writer:
        if writer.complete:
            return []
        numbers = writer.missing if numbers is None else numbers
        for number in numbers:
            rows = slice(writer.rows(number).start, writer.rows(number).stop)
            writer.part(number).write(PartContent(values[rows], PROBLEMS[rows]))
        if finish:
            writer.finish()
    return numbers


def all_values(path) -> tuple:
    """Return everything that a reader offers."""
    with FeatureReader(path) as reader:
        values = reader.read(list(reader.rows.values())).tobytes()
        return reader.attributes, reader.image_ids, reader.problems, values
