"""A captioner and its encoder, not trained, that give photos different captions.

Keras is imported when a model is built, so that files of tests are collected without.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pictures import image_bytes
from PIL import Image
from random_weights import randomised

from show_attend_tell.config.settings import (
    EncoderSettings,
    ModelSettings,
    TransformerSettings,
)
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.pipeline import CaptioningPipeline, load

if TYPE_CHECKING:
    from show_attend_tell.models.captioner import Captioner
    from show_attend_tell.models.encoder.network import Encoder

WORDS = ("a", "red", "blue", "circle", "square", "above", "below", "the")
ENCODER = EncoderSettings("SceneNet", "annotations", "none", 32, "crop")
DECODING = {"beam": 3, "max_words": 6, "length_normalisation": 0.5}
_FOLDER = tempfile.TemporaryDirectory()


def make_encoder(settings: EncoderSettings = ENCODER) -> Encoder:
    """Return an encoder in Keras."""
    from show_attend_tell.models.encoder.network import Encoder

    return Encoder(settings)


def make_captioner(
    encoder: Encoder,
    identity: dict | None = None,
    decoder: str = "lstm",
    words: tuple[str, ...] = WORDS,
    seed: int = 1,
) -> Captioner:
    """Return a small captioner with weights so large that captions differ."""
    from show_attend_tell.models.captioner import Captioner

    widths = {"embedding_width": 8, "lstm_width": 8, "attention_width": 8}
    model = Captioner(
        Vocabulary((*SPECIAL, *words)),
        ModelSettings(decoder=decoder, **widths),
        annotation_width=encoder.width,
        grid=encoder.grid,
        encoder_identity=encoder.identity() if identity is None else identity,
        decoding=DECODING,
        transformer=TransformerSettings(2, 8, 2, 16, 0.0, tie_output=False),
    )
    model.set_annotation_scale(1 / 60)
    return randomised(model, np.random.default_rng(seed), 0.7)


def save_for_numpy(file: Path, **options) -> None:
    """Save a small captioner, and beside it its encoder's weights, which NumPy reads.

    The options are those of :func:`make_captioner`.
    """
    from show_attend_tell.models.encoder.weights import save_weights

    encoder, weights = make_encoder(), file.with_name("net.safetensors")
    save_weights(encoder._network, weights, "SceneNet")
    identity = encoder.identity() | {"weights": weights.name}
    make_captioner(encoder, identity, **options).save(file)


@functools.cache
def tiny_pipeline() -> CaptioningPipeline:
    """Return a pipeline loaded from a file, the same in the whole test session.

    Its engine is that of NumPy, which compiles nothing. None may change it.
    """
    file = Path(_FOLDER.name) / "model.safetensors"
    save_for_numpy(file)
    return load(file, engine="numpy")


@functools.cache
def tiny_keras_pipeline() -> CaptioningPipeline:
    """Return such a pipeline with the engine of Keras, whose graphs tests share."""
    file = Path(_FOLDER.name) / "keras" / "model.safetensors"
    file.parent.mkdir()
    make_captioner(make_encoder()).save(file)
    return load(file)


def with_decoding(pipeline: CaptioningPipeline, **changes) -> CaptioningPipeline:
    """Return a pipeline with the same graphs and decoding settings of its own."""
    from show_attend_tell.models.generator import Generator

    class OwnDecoding(Generator):
        decoding = dataclasses.replace(pipeline.generator.decoding, **changes)

        def __init__(self):
            vars(self).update(vars(pipeline.generator))

    return CaptioningPipeline(OwnDecoding(), pipeline.encoder)


def photo_image(seed=1, size=(96, 72)) -> Image.Image:
    """Return a photo of large random tiles."""
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


def write_photos(folder, names, side, broken, absent=None):
    """Write photos of several sizes, one of them damaged, and leave one out."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(8)
    for number, name in enumerate(names):
        pixels = rng.integers(0, 256, (5, 7 + number % 3, 3), np.uint8)
        image = Image.fromarray(pixels).resize(
            (side, side + number % 50), Image.Resampling.NEAREST
        )
        if name not in (broken, absent):
            image.save(folder / name)
    (folder / broken).write_bytes(b"no photo")


def rough_pixels(rng, size):
    """Return pixels of soft tiles with noise, on which ways to resize differ."""
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), np.uint8))
    pixels = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC))
    return np.uint8(np.clip(pixels + rng.integers(-40, 40, pixels.shape), 0, 255))


def photo_bytes(seed=1, kind="PNG", size=(96, 72), **options) -> bytes:
    """Return the bytes of such a photo."""
    return image_bytes(photo_image(seed, size), kind, **options)
