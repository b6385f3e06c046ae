"""Encode photos and generate their captions with Keras.

This is the only module of the folder that imports Keras. An engine of another library
has the attributes and methods of :class:`KerasEngine` from `vocabulary` on.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.config.settings import DecodingSettings, EncoderSettings
from show_attend_tell.data.encoder_identity import (
    BUILT_IN_WEIGHTS,
    accepts_packaged,
    identity_difference,
    is_accepted,
)
from show_attend_tell.data.region import cell_shares
from show_attend_tell.data.vocabulary import START
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.result import Caption
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generation import MANY_PHOTOS, make_region_bias
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import CaptionError

_REQUIRED = {"network", "layer", "weights", "image_size", "resize"}


class KerasEngine:
    """Encode photos and generate captions from their annotations.

    Attributes:
        generator: annotations -> hypotheses; a captioner becomes a generator of its own
            captions.
        encoder: squares -> annotations.
        vocabulary: the words.
        grid: (rows, columns) of the annotations; L is their product.
        side: side of the encoder's square input in pixels, S.
        resize: ``crop`` or ``squash``, see :func:`data.preprocessing.seen_region`.
        mirror: whether captions are generated from mirror images too.
    """

    def __init__(self, generator: Generator | Captioner, encoder: Encoder):
        if isinstance(generator, Captioner):
            generator = generator.generator
        self.generator, self.encoder = generator, encoder
        self.vocabulary, self.grid = generator.vocabulary, generator.grid
        self.side, self.resize = encoder.settings.image_size, encoder.settings.resize
        self.mirror = generator.mirror

    @property
    def decoding(self) -> DecodingSettings:
        """The decoding settings saved with the model."""
        return self.generator.decoding

    def encode(self, squares: np.ndarray, photos: int = 1) -> np.ndarray:
        """Compute annotations, (B, S, S, 3) -> (B, L, D) or, mirrored, (B, 2, L, D).

        Args:
            squares: uint8, RGB.
            photos: number of photos of the whole run.
        """
        self.encoder.expect(photos * (1 + self.mirror))
        return self.encoder.encode(squares, self.mirror)

    def describe(
        self,
        annotations: np.ndarray,
        decoding: DecodingSettings,
        seeds: Sequence,
        regions: np.ndarray | None = None,
        photos: int = 1,
    ) -> Hypotheses:
        """Generate captions; see :meth:`models.generator.Generator.generate`.

        Args:
            annotations: of B photos, from :meth:`encode`.
            decoding: the decoding settings.
            seeds: B seeds.
            regions: (B, L) from :func:`data.region.cell_shares`, or None.
            photos: number of photos of the whole run.
        """
        many = photos >= MANY_PHOTOS
        return self.generator.generate(annotations, decoding, seeds, many, regions)

    def reranker_file(self, decoding: DecodingSettings) -> Path | None:
        """Return the file of the reranker that orders the hypotheses, if any."""
        return self.generator.reranker_file(decoding)

    def head_attention(self, caption: Caption) -> tuple[np.ndarray, int, int] | None:
        """Compute the attention of all layers and heads at each word of a caption.

        The photo is encoded again, and the T words are read together.

        Returns:
            Weights (layers, heads, T, rows, columns), each map of sum 1; the number,
            from 1, of the layer of alpha; and the number of its head, 0 for the mean.
            None for an ensemble, a decoder without heads, and a caption without words.
        """
        captioner, T = self.generator.captioner, len(caption.words)
        if captioner is None or not T:
            return None
        ids = captioner.vocabulary.encode(caption.words[:-1])
        inputs = np.array([[START, *ids]], np.int32)  # (1, T)
        features = self.encoder.encode(caption.square[None])  # (1, L, D)
        bias = None
        if caption.region is not None:
            shares = cell_shares(caption.region, self.grid)[None]  # (1, L)
            region = make_region_bias(shares, captioner.decoding)
            held = np.arange(T)[None, :, None] < region.words  # (1, T, 1)
            bias = np.where(held, region.scores[:, None], 0).astype(np.float32)
        weights = captioner.attention_heads(features, inputs, bias)
        if weights is None:
            return None
        settings = captioner.decoder.settings
        # (1, N, H, T, L) -> (N, H, T, rows, columns)
        weights = weights[0].reshape(*weights.shape[1:4], *self.grid)
        return weights, settings.alpha_layer or settings.layers, settings.alpha_head


def load_engine(
    files: Sequence[Path],
    encoder_weights: str | Path | None = None,
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> KerasEngine:
    """Load captioners and their encoder; see :func:`inference.pipeline.load`."""
    generator = load_generator(files, mirror, reranker)
    encoder = matching_encoder(generator, files[0], encoder_weights)
    return KerasEngine(generator, encoder)


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
    settings["weights"] = str(weights)
    if settings.get("precision") == "bfloat16":
        settings["precision"] = "auto"  # slow on processors without bfloat16 units
    encoder = Encoder(EncoderSettings(**settings))
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

    A file is looked up beside the model. If it is absent, the packaged weights or the
    first name that the model accepts instead is returned.
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
