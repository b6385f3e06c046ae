"""Compare encoders: decide whether a model may read another encoder's features.

These modules refuse another encoder: :mod:`data.features` and :mod:`data.splits` for
feature files, :mod:`inference.engine` for photos, :mod:`training.initial_model`
for initial weights, and :mod:`data_prep.feature_writer` for interrupted extractions.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from show_attend_tell.config.captioner import EncoderSettings

# Everything that determines features, as JSON values; `Encoder.identity` has the keys.
Identity: TypeAlias = dict[str, Any]

# Keys stored for the record; two encoders that differ in these alone are equal.
_INFORMATIVE = ("weights", "precision", "seed", "versions", "accepts")
# Values of `encoder.weights` that name no file.
BUILT_IN_WEIGHTS = ("imagenet", "imagenet_8bit", "none", "scenes")
# Digests up to VGG16's block5_conv3, printed by data_prep.quantise_encoder: of the
# packaged weights, and of the weights that were rounded to make them.
PACKAGED_DIGEST = "487f50294cd385735859797ce5a2567c4a40fd193209d8d4fb73fb9ae2424b91"
ROUNDED_DIGEST = "9371966e1f1ab8aa3ea26ef386db298c8fd51ae48be9762745774babdb206a4f"


def identity_difference(
    expected: Identity, actual: Identity, exact: bool = False, either: bool = False
) -> str | None:
    """Describe the difference between two encoders; None if their features agree.

    Precision, library versions and the source of the weights are ignored: they change
    features by rounding, or not at all. The packaged weights may replace the weights
    that were rounded to make them; the reverse is allowed only with `either`.

    Args:
        expected: identity of the required encoder, from ``Encoder.identity``.
        actual: identity of the other encoder.
        exact: whether to refuse that replacement, as within one feature file.
        either: whether to allow both directions, as for captions of photos, or for two
            models that read the same features.

    Returns:
        For instance ``layer block5_conv3 instead of block5_conv4``.
    """
    if not exact and (either or accepts_packaged(expected)):
        expected = _as_rounded(expected)
        actual = _as_rounded(actual)
    keys = [key for key in {**expected, **actual} if key not in _INFORMATIVE]
    return _difference(expected, actual, keys)


def _difference(
    expected: Identity, actual: Identity, keys: Iterable[str]
) -> str | None:
    differences = [
        f"{key} {_shorten(actual.get(key))} instead of {_shorten(expected.get(key))}"
        for key in keys
        if _plain(actual.get(key)) != _plain(expected.get(key))
    ]
    return ", ".join(differences) or None


def _as_rounded(identity: Identity) -> Identity:
    """Return an identity in which the original weights replace the packaged ones."""
    if identity.get("weights_digest") != PACKAGED_DIGEST:
        return identity
    return {**identity, "weights_digest": ROUNDED_DIGEST}


def accepts_packaged(identity: Identity) -> bool:
    """Return whether the packaged weights were rounded from an encoder's weights."""
    return bool(identity.get("weights_digest") == ROUNDED_DIGEST)


def settings_difference(settings: EncoderSettings, actual: Identity) -> str | None:
    """Describe the difference between an experiment's encoder settings and an identity.

    Precision is ignored. Weights are compared by name only where both names are
    built-in: ``features --encoder-weights FILE`` may load the same weights from a file,
    and digests are compared elsewhere. A key that the identity lacks is ignored.

    Args:
        settings: encoder settings of the experiment.
        actual: identity of the encoder that made the features.

    Returns:
        For instance ``resize squash instead of crop``; None if they agree.
    """
    wanted: Identity = {
        "network": settings.network,
        "layer": settings.layer,
        "image_size": settings.image_size,
        "resize": settings.resize,
    }
    names = {settings.weights, str(actual.get("weights"))}
    if names <= set(BUILT_IN_WEIGHTS):
        wanted["weights"] = settings.weights
        # Only random weights depend on the seed.
        if names == {"none"}:
            wanted["seed"] = settings.seed
    return _difference(wanted, actual, (key for key in wanted if key in actual))


def _plain(value: object) -> object:
    # JSON has lists where an encoder has tuples.
    return list(value) if isinstance(value, tuple) else value


def _shorten(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."


def is_accepted(
    identity: Identity, weights: str | Path, md5: str | None = None
) -> bool:
    """Return whether a model accepts these encoder weights in place of its own.

    Args:
        identity: ``encoder_identity`` of the model.
        weights: ``imagenet`` or the path of a file.
        md5: of the file of Keras that the weights are from, if any.
    """
    accepted = identity.get("accepts", {})
    return str(weights) in accepted or md5 in accepted.values()
