"""Compare the captions of the two engines.

``python -m benchmarks.engines FOLDER`` captions a folder of photos with NumPy and with
Keras. An engine's caption is compared as it is written: each encodes the photos itself.
Attention and log p are compared where the words are equal. Photos that cannot be read
are left out. Ctrl-C reports the photos until then.
"""

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from show_attend_tell.inference.photos import Failure, find_photos
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.result import Caption

# the bars
LEAST_EQUAL = 0.995
MOST_DIFFERENCE = 1e-4


class Comparison(NamedTuple):
    """The captions of two engines: how many are equal, and differences of those."""

    photos: int
    different: list[tuple[Caption, Caption]]  # captions with other words
    attention: np.ndarray  # largest difference of each pair with equal words
    log_prob: np.ndarray

    @property
    def equal(self) -> float:
        """The share of equal captions."""
        return 1 - len(self.different) / self.photos

    @property
    def reached(self) -> bool:
        """Whether the bars are reached."""
        worst = max(self.attention.max(initial=0), self.log_prob.max(initial=0))
        return self.equal >= LEAST_EQUAL and worst <= MOST_DIFFERENCE


def compare(
    pairs: Iterable[tuple[Caption | Failure, Caption | Failure]],
) -> Comparison:
    """Compare the two captions of each photo; of those so far after Ctrl-C.

    Raises:
        click.ClickException: no photo has captions.
    """
    different = []
    attention = []
    log_prob = []
    with contextlib.suppress(KeyboardInterrupt):
        for one, other in pairs:
            if isinstance(one, Failure) or isinstance(other, Failure):
                continue
            if one.words != other.words:
                different.append((one, other))
                continue
            attention.append(np.abs(one.attention - other.attention).max(initial=0))
            log_prob.append(abs(one.log_prob - other.log_prob))
    photos = len(different) + len(attention)
    if not photos:
        raise click.ClickException("no photo was captioned by both engines")
    return Comparison(photos, different, np.array(attention), np.array(log_prob))


def _median(differences: np.ndarray) -> float:
    """Return the median, 0 if no captions were equal."""
    return float(np.median(differences)) if len(differences) else 0.0


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--model", "models", multiple=True, default=("shipped", "shipped-lstm"))
def main(folder: Path, models: tuple[str, ...]) -> None:
    """Print a line for each model, and the captions that differ."""
    photos = list(find_photos([folder]))
    reached = True
    for model in models:
        engines = (
            load(model, engine=engine).caption_inputs(photos)
            for engine in ("numpy", "keras")
        )
        found = compare(zip(*engines, strict=True))
        reached &= found.reached
        click.echo(
            f"{model}: {found.photos} photos, {found.equal:.2%} equal (bar "
            f"{LEAST_EQUAL:.1%}); largest difference of attention "
            f"{found.attention.max(initial=0):.1e}, of log p "
            f"{found.log_prob.max(initial=0):.1e} (bar {MOST_DIFFERENCE:.0e}), "
            f"medians {_median(found.attention):.1e} and "
            f"{_median(found.log_prob):.1e}"
        )
        for one, other in found.different:
            difference = one.log_prob - other.log_prob
            click.echo(
                f"  {one.path.name}: {one.text} | {other.text} | {difference:.1e}"
            )
    sys.exit(not reached)


if __name__ == "__main__":
    main()
