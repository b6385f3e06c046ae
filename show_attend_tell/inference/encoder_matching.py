"""Build the encoder that a captioner was trained with, and refuse any other."""

import dataclasses
from pathlib import Path

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import (
    BUILT_IN_WEIGHTS,
    accepts_packaged,
    identity_difference,
    is_accepted,
)
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generator import Generator
from show_attend_tell.runtime.errors import CaptionError

_REQUIRED = {"network", "layer", "weights", "image_size", "resize"}


def matching_encoder(
    generator: Generator, file: Path, weights: str | Path | None = None
) -> Encoder:
    """Build the encoder whose annotations a generator reads.

    Args:
        generator: a generator of loaded captioners.
        file: the first model file, beside which a file of weights is looked up.
        weights: a file, or a name of ``EncoderSettings.weights``; by default the
            weights that the captioner was trained with, or the packaged ones if they
            are rounded from those. Either of these two is accepted for the other.

    Raises:
        CaptionError: the weights are absent, or are not those the captioner was
            trained with.
        EncoderError: the weights cannot be loaded.
    """
    wanted = generator.encoder_identity
    known = {field.name for field in dataclasses.fields(EncoderSettings)}
    settings = {name: value for name, value in wanted.items() if name in known}
    if not settings.keys() >= _REQUIRED:
        raise CaptionError(
            f"{file}: must name the encoder that it reads. Received: the keys "
            f"{sorted(wanted)}; save the model with encoder_identity=Encoder.identity()"
        )
    weights = weights or _trained_weights(file, wanted)
    changes = {"weights": str(weights)}
    if (
        settings.get("precision") == "bfloat16"
    ):  # slow on processors without bfloat16 units
        changes["precision"] = "auto"
    encoder = Encoder(EncoderSettings(**settings | changes))
    identity = encoder.identity()
    if is_accepted(wanted, weights):
        identity["weights_digest"] = wanted["weights_digest"]
    difference = identity_difference(wanted, identity, either=True)
    if difference:
        raise CaptionError(
            f"{file}: trained with the {wanted['network']} weights "
            f"{wanted['weights']!r}. Received: {str(weights)!r}, another encoder "
            f"({difference}); name the right file with --encoder-weights"
        )
    return encoder


def _trained_weights(file: Path, wanted: dict) -> str | Path:
    """Return the name or the path of the weights that a model was trained with.

    A file is looked up beside the model; if it is absent, the packaged weights or else
    the first name that the model accepts instead is returned.
    """
    name = wanted["weights"]
    if name in BUILT_IN_WEIGHTS:
        return name
    beside = file.with_name(name)
    if beside.is_file():
        return beside
    if accepts_packaged(wanted):
        return "imagenet_8bit"
    for accepted in wanted.get("accepts", {}):
        return accepted
    raise CaptionError(
        f"{file}: needs the encoder's weights {name!r}, a file that is not beside it; "
        "name the file with --encoder-weights"
    )
