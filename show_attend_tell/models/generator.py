"""Search the captions of a batch of photos with one Keras captioner or several.

The base class composes members, mirror images and a reranker; here one compiled search
runs over the mean of its probabilities.
"""

from collections.abc import Sequence

from keras import ops

from show_attend_tell.config.captioner import static_settings
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.generation import (
    MANY_PHOTOS,
    build_search,
    make_region_bias,
    make_step,
    search_in_batches,
)
from show_attend_tell.reference import captioner as reference


class Generator(reference.Generator):
    """Generate captions from the annotations of photos, in batches.

    See :class:`reference.captioner.Generator`, whose members are Keras captioners here.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._searches = {}

    def search(
        self, annotations, decoding, noise, regions=None, photos=None, xla=None
    ) -> Hypotheses:
        """Search the captions of photos, in batches of ``decoding.batch_size``.

        Args:
            annotations: see :meth:`generate`.
            decoding: DecodingSettings.
            noise: uniform numbers in [0, 1) for words and for locations, (N, 2, T).
            regions: see :meth:`generate`.
            photos: number of photos of the whole run; by default N.
            xla: whether XLA compiles the search, which changes rounding alone; by
                default for ``generation.MANY_PHOTOS`` or more photos.
        """
        many = (photos or len(annotations)) >= MANY_PHOTOS
        key = static_settings(decoding), many if xla is None else xla
        region = None if regions is None else make_region_bias(regions, decoding)
        if key not in self._searches:
            self._searches[key] = build_search(self, *key)
        return search_in_batches(
            self._searches[key],
            annotations,
            noise,
            decoding.temperature,
            decoding.batch_size,
            region,
        )

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
            for member, flipped in self.views()
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
            for (m, flipped), memory in zip(self.views(), memories, strict=True)
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
