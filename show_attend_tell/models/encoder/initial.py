"""Set the fine-tuned convolutions of a captioner to the encoder's."""

import dataclasses

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import EncoderError


def assign_convolutions(model: Captioner, settings: EncoderSettings) -> dict:
    """Set the convolutions of a captioner to those of the encoder's weights.

    Args:
        model: the captioner; one without convolutions is left as it is.
        settings: the encoder's settings.

    Returns:
        The identity of the encoder that, up to ``settings.layer``, computes the
        annotations of the captioner.

    Raises:
        EncoderError: the weights cannot be loaded, or are not those that made the
            features.
    """
    made = model.encoder_identity
    if not settings.trainable_layers:
        return made
    encoder = Encoder(settings)
    if difference := identity_difference(made, encoder.identity(), exact=True):
        raise EncoderError(
            "encoder.weights must be those that made the features, from which "
            f"{settings.trainable_from} is fine-tuned. Received: {settings.weights!r} "
            f"({difference}); pass --set encoder.weights=FILE, or run `features` again"
        )
    layer = model.convolutions
    for name, kernel, bias in zip(
        layer.names, layer.kernels, layer.biases, strict=True
    ):
        for own, value in zip(
            (kernel, bias), encoder.trainable_weights[name], strict=True
        ):
            own.assign(value)
    return Encoder(dataclasses.replace(settings, trainable_from="")).identity()
