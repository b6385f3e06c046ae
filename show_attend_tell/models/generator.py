"""Generate captions with one captioner or several, and rank them.

The probability of a word is the mean over M members and V views of the photo::

    p(y_t | y_<t) = 1 / (M V) sum_m sum_v p_m(y_t | a_v, y_<t)

V is 1, or 2 with the mirrored photo. One search runs over the mean: every member reads
the words of each hypothesis. Attention weights and gates are means too; the generator
flips the weights of the mirrored photo back first. A reranker orders the hypotheses.
"""

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from keras import ops

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.encoder_identity import (
    accepts_packaged,
    identity_difference,
)
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.generation import (
    MANY_PHOTOS,
    build_search,
    make_region_bias,
    make_step,
    search_in_batches,
    static_settings,
    uniform_noise,
)
from show_attend_tell.reference.reranker import Reranker
from show_attend_tell.runtime.errors import ConfigError, ModelFileError


class Generator:
    """Generate captions from the annotations of photos.

    Its arguments are attributes; ``vocabulary``, ``grid`` and ``annotation_width`` are
    the same for all members.

    Args:
        members: captioners with one vocabulary and one encoder.
        mirror: whether to average over mirrored photos too.
        reranker: a Reranker fitted to the members' vocabulary and encoder; None keeps
            the order of the search.
        names: a name of each member, for messages; by default its number.
        must_rank: whether the reranker refuses a search of one hypothesis; otherwise
            the caption is returned as it is.

    Raises:
        ModelFileError: there is no member, or a member or the reranker has another
            vocabulary or encoder.
    """

    def __init__(
        self,
        members: Sequence[keras.Model],
        mirror: bool = False,
        reranker: Reranker | None = None,
        names: Sequence[object] | None = None,
        must_rank: bool = True,
    ):
        names = names or [f"member {number + 1}" for number in range(len(members))]
        if not members:
            raise ModelFileError("`members` must not be empty; pass a captioner")
        self.members, self.mirror = tuple(members), mirror
        self.reranker, self.must_rank = reranker, must_rank
        first = self.members[0]
        self.vocabulary, self.grid = first.vocabulary, first.grid
        self.annotation_width = first.annotation_width
        for name, member in zip(names, self.members, strict=True):
            if difference := self._difference(member):
                raise ModelFileError(
                    f"{name}: the models of an ensemble must have one vocabulary and "
                    f"one encoder. Received: {difference} than {names[0]}; train both "
                    "on the same prepared data"
                )
        if reranker is not None:
            self._require_fitted(reranker)
        self._searches = {}

    def _difference(self, member: keras.Model) -> str | None:
        if member.vocabulary.words != self.vocabulary.words:
            return "another vocabulary"
        first = self.members[0]
        if difference := identity_difference(
            first.encoder_identity, member.encoder_identity, either=True
        ):
            return f"another encoder, {difference},"
        shapes = (self.grid, self.annotation_width)
        if (member.grid, member.annotation_width) != shapes:
            return "other annotations"
        return None

    def _require_fitted(self, reranker: Reranker) -> None:
        """Raise a ModelFileError unless the reranker was fitted to these members."""
        difference = identity_difference(
            reranker.encoder_identity, self.encoder_identity, either=True
        )
        if reranker.vocabulary != tuple(self.vocabulary.words):
            difference = "another vocabulary"
        if difference or reranker.mean.shape != (self.annotation_width,):
            raise ModelFileError(
                f"{reranker.file or 'the reranker'}: must be fitted to the photos that "
                f"the model was trained on. Received: "
                f"{difference or 'other annotations'}; run `show-attend-tell "
                "fit-reranker` with the model's experiment, or pass --reranker none"
            )

    @property
    def encoder_identity(self) -> dict:
        """The encoder whose features all members accept.

        A member trained with the original of the packaged weights accepts both.
        """
        identities = [member.encoder_identity for member in self.members]
        strict = (each for each in identities if not accepts_packaged(each))
        return next(strict, identities[0])

    @property
    def decoding(self) -> DecodingSettings:
        """The decoding settings saved with the first member."""
        return self.members[0].decoding

    @property
    def captioner(self) -> keras.Model | None:
        """The captioner, if it alone reads the photo; None for several views."""
        return None if len(self._views()) > 1 else self.members[0]

    @property
    def selects_locations(self) -> bool:
        """Whether the context of a word can be a single location."""
        captioner = self.captioner
        return captioner is not None and captioner.settings.selects_locations

    @property
    def weights(self) -> list:
        """The variables of all members, each once."""
        unique = {id(member): member for member in self.members}
        return [weight for member in unique.values() for weight in member.weights]

    def ranks(self, decoding: DecodingSettings) -> bool:
        """Return whether the reranker orders the hypotheses of this decoding."""
        several = decoding.method == "beam" and decoding.beam > 1
        return self.reranker is not None and several

    def reranker_file(self, decoding: DecodingSettings) -> Path | None:
        """Return the file of the reranker that orders the hypotheses, if any."""
        return self.reranker.file if self.ranks(decoding) else None

    def generate(
        self,
        annotations: np.ndarray,
        decoding: DecodingSettings | None = None,
        seeds: Sequence | None = None,
        xla: bool | None = None,
        regions: np.ndarray | None = None,
    ) -> Hypotheses:
        """Generate captions of photos.

        Args:
            annotations: features as stored, (N, L, D), any float type; with `mirror`
                (N, 2, L, D), of the photo and its mirror image.
            decoding: DecodingSettings; by default the first member's.
            seeds: N seeds of sampled words and locations, one for each photo, whose
                random numbers then depend on no other photo; by default
                ``decoding.seed`` seeds all photos together. The hypotheses of a beam
                share the noise of their photo.
            xla: whether XLA compiles the search, which changes rounding alone; by
                default for ``generation.MANY_PHOTOS`` or more.
            regions: (N, L) in [0, 1], the part of each photo from which its caption is
                written, see :func:`models.lstm.attention.region_bias`, or None. The
                reranker reads the region alone.

        Returns:
            Hypotheses of NumPy arrays, N rows, best first. ``scores`` decide the order.

        Raises:
            ConfigError: several views select locations, or a reranker must rank one
                hypothesis.
            ValueError: the shape of annotations or regions, or the number of seeds, is
                wrong.
        """
        decoding = decoding or self.decoding
        self._require_shapes(annotations, seeds, regions)
        self._require_possible(decoding)
        N = len(annotations)
        key = static_settings(decoding), N >= MANY_PHOTOS if xla is None else xla
        region = None if regions is None else make_region_bias(regions, decoding)
        if key not in self._searches:
            self._searches[key] = build_search(self, *key)
        seeds = decoding.seed if seeds is None else seeds
        hypotheses = search_in_batches(
            self._searches[key],
            annotations,
            uniform_noise(seeds, N, decoding.max_words),  # (N, 2, T)
            decoding.temperature,
            decoding.batch_size,
            region,
        )
        if not self.ranks(decoding):
            return hypotheses
        photos = annotations[:, 0] if self.mirror else annotations
        return self.reranker.rank(hypotheses, photos, decoding.rerank_weight, regions)

    def _require_shapes(self, annotations, seeds, regions) -> None:
        L, shape = self.grid[0] * self.grid[1], np.shape(annotations)
        sizes = (*([2] if self.mirror else []), L, self.annotation_width)
        if shape[1:] != sizes or not shape or not shape[0]:
            raise ValueError(
                f"`annotations` must be (N, {', '.join(map(str, sizes))}) with N > 0. "
                f"Received: shape {shape}; pass the features of the model's encoder"
            )
        if seeds is not None and len(seeds) != shape[0]:
            raise ValueError(
                f"`seeds` must be one for each of the {shape[0]} photos. "
                f"Received: {len(seeds)} of them; pass one for each photo"
            )
        if regions is not None and np.shape(regions) != (shape[0], L):
            raise ValueError(
                f"`regions` must be ({shape[0]}, {L}), a share of each location. "
                f"Received: shape {np.shape(regions)}; use data.region.cell_shares"
            )

    def _require_possible(self, decoding: DecodingSettings) -> None:
        if self.captioner is None and decoding.locations != "expected":
            raise ConfigError(
                "`locations` must be 'expected' for several models or mirrored photos. "
                f"Received: {decoding.locations!r}; caption with one model"
            )
        if self.reranker is not None and self.must_rank and not self.ranks(decoding):
            raise ConfigError(
                "`reranker` needs a beam of several hypotheses. Received: method = "
                f"{decoding.method!r}, beam = {decoding.beam}; choose a wider beam, or "
                "no reranker"
            )

    def _views(self) -> list[tuple[keras.Model, int]]:
        """Return (member, whether the photo is mirrored) for each member and view."""
        return [
            (member, flipped)
            for member in self.members
            for flipped in range(1 + self.mirror)
        ]

    def prepare_search(self, features, words):
        """Return the tensors that :meth:`make_step` reads, for each member and view.

        Args:
            features: as stored, (B, L, D), or (B, 2, L, D) with `mirror`.
            words: see :meth:`models.decoder_interface.CaptionDecoder.search_memory`.
        """
        views = [features]
        if self.mirror:
            views = [features[:, 0], features[:, 1]]  # (B, 2, L, D) -> two (B, L, D)
        return [
            member.decoder.search_memory(member._prepare(views[flipped]), words)
            for member, flipped in self._views()
        ]

    def make_step(self, memories, max_words, locations, noise, region=None):
        """Return a decoding step over all members and its initial state.

        Args:
            memories: from :meth:`prepare_search`.
            max_words: T, the maximum number of steps.
            locations: see :func:`models.generation.make_step`.
            noise: see the same function.
            region: a RegionBias of the photo, flipped for its mirror image.
        """
        columns, regions = self.grid[1], [region, region]
        if region is not None and self.mirror:
            mirrored = flip_locations(region.scores, columns)  # (B, L)
            regions = [region, region._replace(scores=mirrored)]
        parts = [
            (
                *make_step(m, memory, max_words, locations, noise, regions[flipped]),
                flipped,
            )
            for (m, flipped), memory in zip(self._views(), memories, strict=True)
        ]
        if len(parts) == 1:
            return parts[0][:2]

        def step(tokens, state):
            log_probs, states, alphas, betas = [], {}, [], []
            for number, (member_step, _, flipped) in enumerate(parts):
                words, states[str(number)], extras = member_step(
                    tokens, state[str(number)]
                )
                alpha = extras["alpha"]  # (B, W, L)
                log_probs.append(words)
                alphas.append(flip_locations(alpha, columns) if flipped else alpha)
                betas.append(extras["beta"])  # (B, W)
            extras = {**extras, "alpha": _mean(alphas), "beta": _mean(betas)}
            return log_mean_probabilities(log_probs), states, extras

        return step, {str(number): part[1] for number, part in enumerate(parts)}


def log_mean_probabilities(log_probs: Sequence):
    """Return the logarithm of the mean of exp(log_probs); exact where all are equal."""
    log_probs = ops.stack(log_probs)  # (M V, B, W, K)
    top = ops.max(log_probs, axis=0, keepdims=True)
    mean = ops.mean(ops.exp(log_probs - top), axis=0)  # (B, W, K)
    return ops.squeeze(top, 0) + ops.log(mean)


def flip_locations(alpha, columns: int):
    """Return attention weights (..., L) of a mirrored photo as those of the photo."""
    grid = ops.reshape(alpha, (*ops.shape(alpha)[:-1], -1, columns))  # (..., rows, c)
    return ops.reshape(ops.flip(grid, axis=-1), ops.shape(alpha))


def _mean(values: Sequence):
    return sum(values[1:], values[0]) / len(values)
