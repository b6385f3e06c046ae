"""Make the packaged encoder: VGG16's convolutions in 8 bits per weight.

    python -m data_prep.quantise_encoder FILE.weights.h5

FILE holds ImageNet weights for ``keras.applications.VGG16(include_top=False)``, whose
blocks 1 and 2 and biases are exact in float16. The SHA-256 and the digests that are
printed are constants of
:mod:`show_attend_tell.models.encoder.quantised_weights` and
:mod:`show_attend_tell.data.encoder_identity`.
"""

from pathlib import Path

import click
import keras

from show_attend_tell.models.encoder.network import weights_digest
from show_attend_tell.models.encoder.quantised_weights import (
    NETWORK,
    WEIGHTS,
    assign_quantised,
    quantised_arrays,
    write_quantised,
)

_LAYER = "block5_conv3"  # the last convolution


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--out", type=click.Path(path_type=Path), default=WEIGHTS, help="File to write."
)
def main(source: Path, out: Path) -> None:
    """Quantise the weights in SOURCE; print checksum and digests of the result."""
    whole = getattr(keras.applications, NETWORK)(include_top=False, weights=None)
    whole.load_weights(source)
    network = keras.Model(whole.inputs[0], whole.get_layer(_LAYER).output)
    original, arrays = weights_digest(network), quantised_arrays(network)
    sha256 = write_quantised(arrays, out)
    assign_quantised(network, arrays)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, SHA-256 {sha256}")
    click.echo(f"weights_digest of {source.name}: {original}")
    click.echo(f"weights_digest of {out.name}: {weights_digest(network)}")


if __name__ == "__main__":
    main()
