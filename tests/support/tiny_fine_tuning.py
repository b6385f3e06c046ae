"""Prepare features of a small VGG16 with random weights, and fine-tune its end."""

from tiny_run import experiment, prepare

from data_prep.extract import extract

VGG = {"network": "VGG16", "layer": "block5_conv3", "weights": "none"}
VGG |= {"image_size": 32, "resize": "squash"}
FIRST = "block5_conv3"  # the fine-tuned convolution, the last one alone
SCALED = {"scale_annotations": True}


def settings(name="tuned", first=FIRST, encoder=None, **changes):
    """Return an experiment that fine-tunes the encoder from a layer on."""
    tables = {"model": SCALED, "training": {"epochs": 1}}
    tables = {key: {**tables.get(key, {}), **changes.get(key, {})} for key in tables}
    rest = {key: value for key, value in changes.items() if key not in tables}
    encoder = {**VGG, "trainable_from": first, **(encoder or {})}
    return experiment(name, encoder=encoder, **tables, **rest)


def prepare_features(work):
    """Write photos, captions, and features with and without fine-tuning."""
    prepare(work)
    for first in ("", FIRST):
        extract(settings(first=first, encoder={"mirror": True}), work, progress=False)
    return work
