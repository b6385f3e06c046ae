"""Train SceneNet, the encoder of the scenes, from random weights.

    python -m data_prep.scenes.train_scene_net [--weights FILE]

takes about five minutes on two cores and writes the weights of the package. No caption
is used: every cell of the feature map is classified by the colour and the kind of the
shape whose box contains its centre, or as background. The scenes have their own seed
and, like all training scenes, no reserved pair.
"""

from pathlib import Path

import click
import keras
import numpy as np
from keras import layers
from tqdm import tqdm

from data_prep.scenes.drawing import COLOURS, SHAPES
from data_prep.scenes.scenes import SIDE, make_scene
from show_attend_tell.data.preprocessing import to_square
from show_attend_tell.models.encoder import scene_net
from show_attend_tell.runtime.files import atomic_path

SEED = 1502_03044  # seed of the scenes; data sets with captions have small seeds


def cell_labels(objects: list[dict], side: int, grid: int) -> dict[str, np.ndarray]:
    """Return the labels of all cells of the feature map.

    Args:
        objects: objects of a scene, boxes in pixels.
        side: side of the picture in pixels.
        grid: number of rows, and of columns, of the feature map.

    Returns:
        ``colour`` and ``kind``, (grid, grid) int32: 0 if the cell's centre is in no
        box, else 1 + the index in COLOURS or SHAPES.
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
    """Draw inputs of the encoder, (count, 112, 112, 3) uint8, and their labels."""
    side = scene_net.IMAGE_SIZE
    pictures, labels = np.empty((count, side, side, 3), np.uint8), []
    for number in tqdm(range(count), desc=f"drawing {split}", disable=None):
        image, _, objects = make_scene(SEED, split, number)
        pictures[number] = to_square(image, side, "squash")
        labels.append(cell_labels(objects, SIDE, side // scene_net.STRIDE))
    return pictures, {key: np.stack([row[key] for row in labels]) for key in labels[0]}


def with_heads(network: keras.Model) -> keras.Model:
    """Add a linear classifier of every cell for colour and for kind."""
    seen = network.get_layer("seen").output
    heads = {
        "colour": layers.Conv2D(1 + len(COLOURS), 1, name="colour")(seen),
        "kind": layers.Conv2D(1 + len(SHAPES), 1, name="kind")(seen),
    }
    return keras.Model(network.input, heads)


@click.command()
@click.option(
    "--weights", default=str(scene_net.WEIGHTS), help="Weights file to write."
)
@click.option("--count", default=8_000, help="Number of training scenes.")
@click.option("--epochs", default=7, help="Epochs.")
def main(weights: str, count: int, epochs: int) -> None:
    """Train SceneNet and write its weights."""
    keras.utils.set_random_seed(1)
    pictures, labels = draw_set("train", count)
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
        labels,
        batch_size=batch,
        epochs=epochs,
        validation_data=held_out,
        verbose=2,
    )
    with atomic_path(weights) as temporary:
        network.save_weights(temporary)
    click.echo(f"{weights}: {Path(weights).stat().st_size} bytes")


if __name__ == "__main__":
    main()
