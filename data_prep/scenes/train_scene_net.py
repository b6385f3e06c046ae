"""Train SceneNet from random weights on scenes drawn for the purpose.

    python -m data_prep.scenes.train_scene_net [--weights FILE]

takes about five minutes on two cores and writes the weights that the package ships. No
caption is used: every cell of the map is asked whether its centre lies in the box of a
shape and, if so, for the shape's colour and kind. The scenes have a seed of their own,
and like all training scenes they show no reserved pair.
"""

import logging
from pathlib import Path

import click
import keras
import numpy as np
from keras import layers
from tqdm import tqdm

from data_prep.scenes import scenes
from data_prep.scenes.drawing import COLOURS, SHAPES
from show_attend_tell.data import preprocessing as photos
from show_attend_tell.models import scene_net

SEED = 1502_03044  # of the scenes; data sets of captions have small ones

logger = logging.getLogger(__name__)


def targets(objects: list[dict], side: int, grid: int) -> dict[str, np.ndarray]:
    """Return what each cell of the map should say.

    Args:
        objects: of a scene, boxes in pixels.
        side: of the picture in pixels.
        grid: rows, and columns, of the map.

    Returns:
        ``colour`` and ``kind``, (grid, grid) int32: 0 where the cell's centre lies in
        no box, and else 1 + the position in COLOURS and SHAPES.
    """
    colour, kind = (np.zeros((grid, grid), np.int32) for _ in range(2))
    centres = (np.arange(grid) + 0.5) * side / grid
    for item in objects:
        x0, y0, x1, y1 = item["box"]
        rows, columns = (
            (centres >= low) & (centres < high) for low, high in ((y0, y1), (x0, x1))
        )
        colour_name, kind_name = item["name"].split()
        colour[np.ix_(rows, columns)] = 1 + list(COLOURS).index(colour_name)
        kind[np.ix_(rows, columns)] = 1 + SHAPES.index(kind_name)
    return {"colour": colour, "kind": kind}


def draw_set(split: str, count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw scenes as the encoder sees them, (count, 112, 112, 3) uint8, and targets."""
    side = scene_net.IMAGE_SIZE
    pictures, wanted = np.empty((count, side, side, 3), np.uint8), []
    for number in tqdm(range(count), desc=f"drawing {split}", disable=None):
        image, _, objects = scenes.make_scene(SEED, split, number)
        pictures[number] = photos.to_square(image, side, "squash")
        wanted.append(targets(objects, scenes.SIDE, side // scene_net.STRIDE))
    return pictures, {key: np.stack([one[key] for one in wanted]) for key in wanted[0]}


def with_heads(network: keras.Model) -> keras.Model:
    """Put a linear answer to each question on what every cell sees."""
    seen = network.get_layer("seen").output
    heads = {
        "colour": layers.Conv2D(1 + len(COLOURS), 1, name="colour")(seen),
        "kind": layers.Conv2D(1 + len(SHAPES), 1, name="kind")(seen),
    }
    return keras.Model(network.input, heads)


@click.command()
@click.option("--weights", default=str(scene_net.WEIGHTS), help="File to write.")
@click.option("--count", default=8_000, help="Scenes to train on.")
@click.option("--epochs", default=7, help="Passes over them.")
def main(weights: str, count: int, epochs: int) -> None:
    """Train SceneNet and write its weights."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    keras.utils.set_random_seed(1)
    pictures, wanted = draw_set("train", count)
    network = scene_net.build_scene_net()
    model = with_heads(network)
    batch = 64
    schedule = keras.optimizers.schedules.CosineDecay(
        2e-4, epochs * (count // batch), warmup_target=4e-3, warmup_steps=200
    )
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics={"colour": ["accuracy"], "kind": ["accuracy"]},
    )
    held_out = draw_set("val", 500)
    model.fit(
        pictures,
        wanted,
        batch_size=batch,
        epochs=epochs,
        validation_data=held_out,
        verbose=2,
    )
    Path(weights).parent.mkdir(parents=True, exist_ok=True)
    network.save_weights(weights)
    logger.info("%s: %d bytes", weights, Path(weights).stat().st_size)


if __name__ == "__main__":
    main()
