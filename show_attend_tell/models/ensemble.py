"""Generate captions by several captioners together, over a photo and its mirror image.

The probability of a word is the mean over M members and V views of the photo::

    p(y_t | y_<t) = 1 / (M V) sum_m sum_v p_m(y_t | a_v, y_<t)

V is 1, or 2 with the mirrored photo. One search runs over the mean: every member reads
the words of each hypothesis. Attention weights and gates are means too; those of the
mirrored photo are flipped back first.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from keras import ops

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.encoder_identity import (
    accepts_packaged,
    identity_difference,
)
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generation import (
    MANY_PHOTOS,
    compile_generator,
    generate_in_batches,
    make_region_bias,
    make_step,
    prepare_search,
    static_settings,
    uniform_noise,
)
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ConfigError, ModelFileError


class Ensemble:
    """Average the word probabilities of captioners; generate as a captioner does.

    Attributes:
        members: the captioners.
        mirror: whether photos are given with their mirror images.
        vocabulary, grid, annotation_width, encoder_identity: those of all members.
        decoding: the decoding settings of the first member.
        weights: the variables of all members.

    Args:
        members: captioners of one vocabulary and one encoder.
        mirror: whether to average over mirrored photos too.
        names: a name of each member, for messages; by default its number.

    Raises:
        ModelFileError: there is no member, or two differ in vocabulary or encoder.
    """

    def __init__(
        self,
        members: Sequence[Captioner],
        mirror: bool = False,
        names: Sequence[object] | None = None,
    ):
        names = names or [f"member {number + 1}" for number in range(len(members))]
        if not members:
            raise ModelFileError("`members` must not be empty; pass a captioner")
        self.members, self.mirror = tuple(members), mirror
        first = self.members[0]
        self.vocabulary, self.grid = first.vocabulary, first.grid
        self.annotation_width = first.annotation_width
        self.encoder_identity = _common_identity(self.members)
        self.decoding = first.decoding
        for name, member in zip(names, self.members, strict=True):
            if difference := self._difference(member):
                raise ModelFileError(
                    f"{name}: the models of an ensemble must have one vocabulary and "
                    f"one encoder. Received: {difference} than {names[0]}; train both "
                    "on the same prepared data"
                )
        self._generators = {}

    def _difference(self, member: Captioner) -> str | None:
        if member.vocabulary.words != self.vocabulary.words:
            return "another vocabulary"
        given = self.members[0].encoder_identity, member.encoder_identity
        if difference := identity_difference(*given, either=True):
            return f"another encoder, {difference},"
        shapes = (self.grid, self.annotation_width)
        if (member.grid, member.annotation_width) != shapes:
            return "other annotations"
        return None

    @property
    def weights(self) -> list:
        """The variables of all members, each once."""
        unique = {id(member): member for member in self.members}
        return [weight for member in unique.values() for weight in member.weights]

    def _views(self) -> list[tuple[Captioner, int]]:
        """Return (member, whether the photo is mirrored) for each member and view."""
        return [
            (member, flipped)
            for member in self.members
            for flipped in range(1 + self.mirror)
        ]

    def prepare_search(self, features, words):
        """Return what :meth:`make_step` reads, for each member and view.

        Args:
            features: as stored, (B, L, D), or (B, 2, L, D) with `mirror`.
            words: number of words that a member reads.
        """
        views = [features]
        if self.mirror:
            views = [features[:, 0], features[:, 1]]  # (B, 2, L, D) -> two (B, L, D)
        return [prepare_search(m, views[k], words) for m, k in self._views()]

    def make_step(self, memories, max_words, locations, noise, region=None):
        """Return a decoding step over all members and its initial state.

        Args:
            memories: from :meth:`prepare_search`.
            max_words: T, the maximum number of steps.
            locations: ``expected``.
            noise: not used.
            region: a RegionBias of the photo, flipped for its mirror image.

        Returns:
            ``step`` as :mod:`show_attend_tell.decoding` requires it, and the dict of
            the members' states by their position.
        """
        columns, regions = self.grid[1], [region, region]
        if region is not None:
            mirrored = flip_locations(region.scores, columns)  # (B, L)
            regions = [region, region._replace(scores=mirrored)]
        given = max_words, locations, noise
        parts = [
            (*make_step(member, memory, *given, regions[flipped]), flipped)
            for (member, flipped), memory in zip(self._views(), memories, strict=True)
        ]

        def step(tokens, state):
            log_probs, states, alphas, betas = [], {}, [], []
            for number, (member_step, _, flipped) in enumerate(parts):
                own, states[str(number)], extras = member_step(
                    tokens, state[str(number)]
                )
                alpha = extras["alpha"]  # (B, W, L)
                log_probs.append(own)
                alphas.append(flip_locations(alpha, columns) if flipped else alpha)
                betas.append(extras["beta"])  # (B, W)
            extras = {**extras, "alpha": _mean(alphas), "beta": _mean(betas)}
            return log_mean_probabilities(log_probs), states, extras

        return step, {str(number): part[1] for number, part in enumerate(parts)}

    def generate(
        self,
        annotations: np.ndarray,
        decoding: DecodingSettings | None = None,
        seeds: Sequence | None = None,
        xla: bool | None = None,
        regions: np.ndarray | None = None,
    ) -> Hypotheses:
        """Generate captions of photos, see :meth:`Captioner.generate`.

        Args:
            annotations: features as stored, (N, L, D); with `mirror` (N, 2, L, D), the
                photo's and its mirror image's.
            decoding: DecodingSettings; by default those of the first member.
            seeds: N seeds, one for each photo.
            xla: whether XLA compiles the search; by default for many photos.
            regions: (N, L) in [0, 1], in the photo's own orientation.

        Raises:
            ConfigError: ``decoding.locations`` is not ``expected``: each member would
                select a location of its own.
            ValueError: the shape of the annotations or the number of seeds is wrong.
        """
        self._require_annotations(np.shape(annotations))
        decoding = decoding or self.decoding
        if decoding.locations != "expected":
            raise ConfigError(
                "`locations` must be 'expected' for several models or mirrored photos. "
                f"Received: {decoding.locations!r}; caption with one model"
            )
        photos, L = len(annotations), self.grid[0] * self.grid[1]
        region = make_region_bias(regions, photos, L, decoding)
        key = static_settings(decoding), photos >= MANY_PHOTOS if xla is None else xla
        if key not in self._generators:
            self._generators[key] = compile_generator(
                self, *key, (Ensemble.prepare_search, Ensemble.make_step)
            )
        seeds = decoding.seed if seeds is None else seeds
        noise = uniform_noise(seeds, photos, decoding.max_words)  # (N, 2, T)
        return generate_in_batches(
            self._generators[key],
            annotations,
            noise,
            decoding.temperature,
            decoding.batch_size,
            region,
        )

    def _require_annotations(self, shape: tuple[int, ...]) -> None:
        L, D = self.grid[0] * self.grid[1], self.annotation_width
        wanted = (2, L, D) if self.mirror else (L, D)
        if shape[1:] != wanted or not shape[0]:
            sizes = ", ".join(map(str, wanted))
            raise ValueError(
                f"`annotations` must be (N, {sizes}) with N > 0. Received: shape "
                f"{tuple(shape)}; pass the features of the models' encoder"
            )


class MirroringEncoder:
    """Encode photos together with their mirror images, (B, 2, L, D).

    Every other attribute is that of the encoder.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = encoder

    def __getattr__(self, name: str):
        return getattr(self._encoder, name)

    def expect(self, photos: int) -> None:
        """Prepare for encoding a number of photos and their mirror images."""
        self._encoder.expect(2 * photos)

    def encode(self, squares: np.ndarray) -> np.ndarray:
        """Compute the annotation vectors of photos and their mirror images.

        Args:
            squares: (B, S, S, 3) uint8, RGB.

        Returns:
            (B, 2, L, D) float16.
        """
        squares = np.asarray(squares)
        views = (squares, squares[:, :, ::-1])
        return np.stack([self._encoder.encode(view) for view in views], axis=1)


def log_mean_probabilities(log_probs: Sequence):
    """Return the logarithm of the mean of probabilities given as logarithms.

    It is exact where all are equal.

    Args:
        log_probs: tensors of one shape.
    """
    log_probs = ops.stack(log_probs)  # (M V, B, W, K)
    top = ops.max(log_probs, axis=0, keepdims=True)
    mean = ops.mean(ops.exp(log_probs - top), axis=0)  # (B, W, K)
    return ops.squeeze(top, 0) + ops.log(mean)


def flip_locations(alpha, columns: int):
    """Return attention weights (..., L) of a mirrored photo as those of the photo."""
    grid = ops.reshape(alpha, (*ops.shape(alpha)[:-1], -1, columns))  # (..., rows, c)
    return ops.reshape(ops.flip(grid, axis=-1), ops.shape(alpha))


def _common_identity(members: Sequence[Captioner]) -> dict:
    """Return the encoder whose features all members may accept.

    Models of the weights that the packaged ones round also read features of those.
    """
    identities = [member.encoder_identity for member in members]
    strict = (identity for identity in identities if not accepts_packaged(identity))
    return next(strict, identities[0])


def _mean(values: Sequence):
    return sum(values[1:], values[0]) / len(values)


def load_ensemble(files: Sequence[Path], mirror: bool = False) -> Ensemble:
    """Load the captioners of an ensemble from their model files.

    Raises:
        ModelFileError: a file is absent, damaged or not a captioner's, or the models
            differ in vocabulary or encoder.
    """
    return Ensemble([load_captioner(file) for file in files], mirror, names=files)
