"""Load one of two engines, which encode photos and generate their captions.

An engine is an encoder and a generator: NumPy's in :mod:`reference`, which start in
half a second, or Keras' in :mod:`models`. Of 200 photos in a folder the first captions
all in 32 s and the second in 34 s; Keras then saves 0.03 s a photo (2 cores, AVX-512).
"""

import dataclasses
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.encoder_identity import (
    BUILT_IN_WEIGHTS,
    Identity,
    accepts_packaged,
    identity_difference,
    is_accepted,
)
from show_attend_tell.data.region import cell_shares
from show_attend_tell.data.vocabulary import START
from show_attend_tell.inference.result import Caption
from show_attend_tell.reference.encoder import Encoder
from show_attend_tell.reference.encoder_file import source_md5
from show_attend_tell.reference.generator import Generator, load_generator
from show_attend_tell.reference.lstm import region_bias
from show_attend_tell.reference.parallel import CORES, one_blas_thread
from show_attend_tell.runtime.errors import CaptionError, ModelFileError, quote
from show_attend_tell.runtime.keras_startup import (
    is_keras_installed,
    require_keras_settings,
    start_keras,
)

if TYPE_CHECKING:  # it imports Keras
    from show_attend_tell.models.captioner import Captioner as KerasCaptioner

_LOGGER = logging.getLogger(__name__)
_REQUIRED = {"network", "layer", "weights", "image_size", "resize"}


class PreprocessingSettings(Protocol):
    """The settings of an encoder that say which square it reads of a photo."""

    @property
    def image_size(self) -> int:
        """The side of the square in pixels, S."""

    @property
    def resize(self) -> str:
        """``crop`` or ``squash``, see :func:`data.preprocessing.seen_region`."""


class PhotoEncoder(Protocol):
    """What computes the annotations of photos: an Encoder of this package, or yours."""

    @property
    def settings(self) -> PreprocessingSettings:
        """The settings of the preprocessing."""

    def expect(self, photos: int) -> None:
        """Prepare for a number of photos."""

    def encode(self, squares: np.ndarray, mirror: bool = False) -> np.ndarray:
        """Return annotations, (B, S, S, 3) -> (B, L, D) or, mirrored, (B, 2, L, D)."""

    def identity(self) -> Identity:
        """Return everything that determines the annotations, as JSON values."""


AnyEncoder = TypeVar("AnyEncoder", bound=PhotoEncoder)


class HeadAttention(NamedTuple):
    """The attention of all layers and heads of a Transformer at each word."""

    weights: np.ndarray  # (layers, heads, T, rows, columns), each map of sum 1
    layer: int  # number, from 1, of the layer of alpha
    head: int  # number, from 1, of the head of alpha; 0 if alpha is the heads' mean


class Engine:
    """An encoder, and the generator of captions from its annotations.

    Attributes:
        generator: annotations -> hypotheses, a Generator of NumPy or of Keras.
        encoder: squares -> annotations.
        vocabulary: the words.
        grid: (rows, columns) of the annotations; L is their product.
        side: side of the encoder's square input in pixels, S.
        resize: ``crop`` or ``squash``, see :func:`data.preprocessing.seen_region`.
        is_keras: whether Keras computes, and not NumPy.
        batch: photos of a run that are in memory and captioned together.
    """

    def __init__(self, generator: "Generator | KerasCaptioner", encoder: PhotoEncoder):
        # A captioner of Keras has the generator of its own captions.
        self.generator: Generator = getattr(generator, "generator", generator)
        self.encoder = encoder
        self.vocabulary = self.generator.vocabulary
        self.grid = self.generator.grid
        self.side = encoder.settings.image_size
        self.resize = encoder.settings.resize
        self.is_keras = not isinstance(encoder, Encoder)
        # NumPy needs two photos for each core; captions come as they are written.
        self.batch = 16 if self.is_keras else 2 * CORES
        # A person who changes beam or region asks for the same photo again. Squares and
        # annotations are replaced together: threads may share the engine.
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def encode(self, squares: np.ndarray, photos: int = 1) -> np.ndarray:
        """Compute annotations, (B, S, S, 3) -> (B, L, D) or, mirrored, (B, 2, L, D).

        Args:
            squares: uint8, RGB.
            photos: number of photos of the whole run.
        """
        # Read once: another thread may replace it between the comparison and the
        # return.
        last = self._last
        if last is not None and np.array_equal(last[0], squares):
            return last[1]
        mirror = self.generator.mirror
        # A mirrored photo is encoded twice, so that the encoder sees as many photos
        # more.
        self.encoder.expect(photos * (1 + mirror))
        annotations = self.encoder.encode(squares, mirror)
        self._last = squares, annotations
        return annotations

    @one_blas_thread
    def head_attention(self, caption: Caption) -> HeadAttention | None:
        """Compute the attention of all layers and heads at each word of a caption.

        The photo is encoded again, and the T words are read together.

        Returns:
            None for an ensemble, a decoder without heads, and a caption without words.
        """
        captioner = self.generator.captioner
        T = len(caption.words)
        if captioner is None or not T:
            return None
        # The input at each word is the word before it.
        ids = captioner.vocabulary.encode(caption.words[:-1])
        inputs = np.array([[START, *ids]], np.int32)  # (1, T)
        features = self.encoder.encode(caption.square[None])  # (1, L, D)
        bias = None
        if caption.region is not None:
            shares = cell_shares(caption.region, self.grid)  # (L,)
            decoding = captioner.decoding
            # As in the search, only the first words are biased towards the region.
            from_region = np.arange(T) < decoding.words_from_region  # (T,)
            scores = region_bias(shares, decoding.region_strength)  # (L,)
            bias = np.where(from_region[:, None], scores, 0).astype(np.float32)[None]
        weights = captioner.attention_heads(features, inputs, bias)
        if weights is None:
            return None
        settings = captioner.transformer
        # (1, N, H, T, L) -> (N, H, T, rows, columns)
        weights = weights[0].reshape(*weights.shape[1:4], *self.grid)
        return HeadAttention(
            weights, settings.alpha_layer or settings.layers, settings.alpha_head
        )


def load_engine(
    files: Sequence[Path],
    encoder_weights: str | Path | None = None,
    mirror: bool = False,
    reranker: str | Path | None = None,
    engine: str | None = None,
) -> Engine:
    """Load captioners and their encoder.

    Args:
        files: model files.
        encoder_weights: see :func:`inference.pipeline.load`.
        mirror: see the same function.
        reranker: see the same function.
        engine: ``numpy`` or ``keras``; by default NumPy, unless only Keras has the
            encoder or the decoder, which a warning says.
    """
    if engine not in (None, "numpy", "keras"):
        raise CaptionError(
            f"`engine` must be numpy or keras. Received: {quote(engine)}; correct it"
        )
    if engine == "keras":
        return _load_keras(files, encoder_weights, mirror, reranker)
    try:
        return load_numpy_engine(files, encoder_weights, mirror, reranker)
    except NotImplementedError as error:  # only Keras has the decoder or the encoder
        if engine == "numpy" or not is_keras_installed():
            raise ModelFileError(
                f"{error}; pip install 'show-attend-tell[train]' and choose the engine "
                "keras"
            ) from None
        _LOGGER.warning("%s", error)
    return _load_keras(files, encoder_weights, mirror, reranker)


def load_numpy_engine(
    files: Sequence[Path],
    encoder_weights: str | Path | None,
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> Engine:
    """Load captioners and their encoder into NumPy, see :func:`load_engine`.

    Raises:
        NotImplementedError: only Keras has the encoder or the decoder.
    """
    generator = load_generator(files, mirror, reranker)
    encoder = matching_encoder(generator, files[0], encoder_weights, Encoder)
    return Engine(generator, encoder)


def _load_keras(
    files: Sequence[Path],
    encoder_weights: str | Path | None,
    mirror: bool,
    reranker: str | Path | None,
) -> Engine:
    # A program that has imported Keras has chosen its backend already.
    if sys.modules.get("keras") is None:
        start_keras()
    else:
        require_keras_settings()
    from show_attend_tell.models.encoder.network import Encoder as KerasEncoder
    from show_attend_tell.models.saving import load_generator as load_keras_generator

    generator = load_keras_generator(files, mirror, reranker)
    encoder = matching_encoder(generator, files[0], encoder_weights, KerasEncoder)
    return Engine(generator, encoder)


def matching_encoder(
    generator: Generator,
    file: Path,
    weights: str | Path | None,
    encoder_class: Callable[[EncoderSettings], AnyEncoder],
) -> AnyEncoder:
    """Build the encoder whose annotations a generator reads.

    Args:
        generator: a generator of loaded captioners.
        file: the first model file, beside which a file of weights is looked up.
        weights: a file, or a name of ``EncoderSettings.weights``; by default the
            weights that the captioner was trained with, or the packaged ones if they
            are rounded from those. Either is accepted in place of the other.
        encoder_class: the class of the encoder, or what builds one.

    Raises:
        CaptionError: the weights are absent, or are not those the captioner was
            trained with.
        ModelFileError: the weights cannot be loaded.
    """
    # The identity holds more than settings, such as digests; the settings are its known
    # keys.
    wanted = generator.encoder_identity
    known = {field.name for field in dataclasses.fields(EncoderSettings)}
    settings: dict[str, Any] = {
        name: value for name, value in wanted.items() if name in known
    }
    if not settings.keys() >= _REQUIRED:
        raise CaptionError(
            f"{file}: must name the encoder that it reads. Received: the keys "
            f"{sorted(wanted)}; save the model with encoder_identity=Encoder.identity()"
        )
    weights = weights or _trained_weights(file, wanted)
    settings["weights"] = str(weights)
    # In bfloat16 38 of 1,000 captions differ from NumPy's, in float32 one.
    settings["precision"] = "float32"
    encoder = encoder_class(EncoderSettings(**settings))
    identity = encoder.identity()
    md5 = source_md5(weights) if Path(weights).is_file() else None
    # Weights that the model accepts in place of its own have another digest; everything
    # else must be equal.
    if is_accepted(wanted, weights, md5):
        identity["weights_digest"] = wanted["weights_digest"]
    difference = identity_difference(wanted, identity, either=True)
    if difference:
        raise CaptionError(
            f"{file}: trained with the {wanted['network']} weights "
            f"{wanted['weights']!r}. Received: {str(weights)!r}, another encoder "
            f"({difference}); name the right file with --encoder-weights"
        )
    return encoder


def _trained_weights(file: Path, wanted: Identity) -> str | Path:
    """Return the name or the path of the weights that a model was trained with.

    A file is looked up beside the model. If it is absent, the packaged weights or the
    first name that the model accepts instead is returned.
    """
    name: str = wanted["weights"]
    if name in BUILT_IN_WEIGHTS:
        return name
    beside = file.with_name(name)
    if beside.is_file():
        return beside
    if accepts_packaged(wanted):
        return "imagenet_8bit"
    accepted: list[str] = list(wanted.get("accepts", {}))
    if accepted:
        return accepted[0]
    raise CaptionError(
        f"{file}: needs the encoder's weights {name!r}, a file that is not beside it; "
        "name the file with --encoder-weights"
    )
