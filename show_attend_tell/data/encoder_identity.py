"""Compare encoders: whether features of one may be read by a model of the other."""

import hashlib
from pathlib import Path

# What the identity says for the record, and what no two encoders differ by.
_INFORMATIVE = ("weights", "precision", "seed", "versions", "accepts")


def identity_difference(expected: dict, found: dict) -> str | None:
    """Say in which way two encoders differ, or None when their features agree.

    Precision, library versions and where weights came from are on record only: they
    change features by rounding, or not at all.

    Args:
        expected: identity of the encoder wanted, as ``Encoder.identity`` returns it.
        found: identity of the other one.

    Returns:
        For instance ``layer block5_conv3 instead of block5_conv4``.
    """
    keys = [key for key in {**expected, **found} if key not in _INFORMATIVE]
    differences = [
        f"{key} {_shorten(found.get(key))} instead of {_shorten(expected.get(key))}"
        for key in keys
        if _plain(found.get(key)) != _plain(expected.get(key))
    ]
    return ", ".join(differences) or None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shorten(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."


def is_accepted(identity: dict, weights: str | Path) -> bool:
    """Tell whether a model names these encoder weights as good enough.

    Args:
        identity: ``encoder_identity`` of the model.
        weights: ``imagenet`` or a file.
    """
    accepted = identity.get("accepts", {})
    if str(weights) in accepted:
        return True
    if not accepted or not Path(weights).is_file():
        return False
    with open(weights, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() in accepted.values()
