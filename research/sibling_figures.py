"""Draw the figures of siblings.md from trained runs.

    python research/sibling_figures.py --work prepared --runs experiments/runs

The runs are those of ram_mnist, draw_cluttered and draw_mnist; a run that is absent is
named, and its figure is left as it is.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from keras import ops
from PIL import Image

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.runs import MODEL
from show_attend_tell.inference.visualization.attention_figure import figure_to_array
from show_attend_tell.runtime.errors import ShowAttendTellError
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.siblings.digits.data import (
    held_out_binary,
    held_out_pictures,
    read_digits,
)
from show_attend_tell.siblings.digits.draw.figures import canvas_strip, encode_png
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.ram.figures import (
    draw_glimpses,
    glimpses_of,
    named,
)
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.digits.ram.prediction import Predictor

_IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_ROWS = 4
_DPI = 110


def picture_of_glimpses(experiment, digits, path: Path) -> Image.Image:
    """Return the glimpses at the first validation pictures."""
    model = CLASSIFIERS.load(path, experiment)
    images = held_out_pictures(digits, experiment.data, "val").images[:_ROWS]
    seen = Predictor(model)(images)
    glimpses = glimpses_of(model, images, seen)
    figure = draw_glimpses(images, glimpses, named(model, seen.classes))
    return Image.fromarray(figure_to_array(figure, _DPI))


def picture_of_canvases(experiment, digits, path: Path) -> Image.Image:
    """Return the canvases of the first validation pictures."""
    model = GENERATORS.load(path, experiment)
    binary = held_out_binary(digits, experiment.data, "val")[:_ROWS]
    images = binary.astype(np.float32) / 255
    s = model.settings
    noise = np.random.default_rng(0).standard_normal((_ROWS, s.steps, s.latent))
    given = (images, noise.astype(np.float32))
    outputs = model.draw(*map(ops.convert_to_tensor, given))
    arrays = {name: ops.convert_to_numpy(x) for name, x in outputs.items()}
    return canvas_strip(images, arrays, model, scale=3)


FIGURES = {
    "ram_mnist": ("ram-glimpses.png", picture_of_glimpses),
    "draw_cluttered": ("read-windows.png", picture_of_glimpses),
    "draw_mnist": ("draw-canvas.png", picture_of_canvases),
}


def main() -> None:
    """Draw the figures of all runs that are present."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("prepared"))
    parser.add_argument("--runs", type=Path, default=Path("experiments/runs"))
    arguments = parser.parse_args()
    for name, (file, draw) in FIGURES.items():
        model = arguments.runs / name / MODEL
        if not model.is_file():
            print(f"{model}: no such model; {file} is left as it is")
            continue
        experiment = load_experiment(name, [])
        folder = arguments.work / experiment.data.name
        digits = read_digits(folder, "val", experiment.data.validation)
        atomic_write(_IMAGES / file, encode_png(draw(experiment, digits, model)))
        print(_IMAGES / file)


if __name__ == "__main__":
    try:
        main()
    except (ShowAttendTellError, OSError) as error:
        sys.exit(f"error: {error}")
