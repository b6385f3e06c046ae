"""Search for captions of a batch of photos with one Keras captioner or several.

The base class composes members, mirror images and a reranker; here one compiled search
runs over the mean of its probabilities, in batches of photos.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.config.captioner import static_settings
from show_attend_tell.data.vocabulary import END, PAD, START, UNKNOWN
from show_attend_tell.models.decoding.beam import beam_search
from show_attend_tell.models.decoding.sampling import greedy, sample
from show_attend_tell.models.lstm.attention import argmax_location, sampled_location
from show_attend_tell.reference import generator as reference
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.reference.lstm import region_bias
from show_attend_tell.runtime.backend import compiled, is_out_of_memory
from show_attend_tell.runtime.errors import SetupError

# XLA compiles a beam of 5 in 4.6 s of processor time, TensorFlow traces it in 1.1 s; a
# photo then takes 16 ms or 22 ms (batches of 16, AVX-512), so XLA pays from 600 photos.
PHOTOS_FOR_XLA = 500

_SPECIAL = {"start_id": START, "end_id": END, "pad_id": PAD}


class RegionBias(NamedTuple):
    """The direction of attention to regions of photos."""

    scores: object  # (B, L), see reference.lstm.region_bias
    words: object  # () int32, the number of words whose scores get it


def make_step(model, memory, max_words, locations, noise, region=None):
    """Return a decoding step for a batch of photos and its initial state.

    Args:
        model: a Captioner.
        memory: from :meth:`models.decoder_interface.CaptionDecoder.search_memory`.
        max_words: T, the maximum number of steps.
        locations: ``expected``, ``likeliest`` or ``sampled``.
        noise: uniform numbers in [0, 1), (B, T), one for each ``sampled`` location.
        region: a RegionBias; None leaves attention to the model.

    Returns:
        ``step`` as :mod:`models.decoding` requires it, and the decoder's
        state, leaves (B, ...); where locations are sampled also ``"noise"`` (B, T), the
        next number first; with a region also ``"word"`` (B,), the number of words
        written.
    """
    decoder = model.decoder

    def step(tokens, state):
        # alpha -> context weights; None averages by alpha.
        select_weights = argmax_location if locations == "likeliest" else None
        if locations == "sampled":  # alpha (B, W, L), noise (B, W, T) -> (B, W, 1)
            u = state["noise"][..., :1]
            select_weights = functools.partial(sampled_location, u=u)
        bias = None
        if region is not None:  # (B, W, 1), (B, 1, L) -> (B, W, L)
            is_directed = ops.expand_dims(state["word"] < region.words, -1)
            bias = ops.where(is_directed, ops.expand_dims(region.scores, 1), 0.0)
        # logits (B, W, K), alpha (B, W, L), beta (B, W)
        out = decoder.next_word(tokens, state, memory, select_weights, bias)
        index = ops.argmax(out.context_weights, axis=-1)  # (B, W, L) -> (B, W)
        index = ops.cast(index, "int32")
        if select_weights is None:
            index = ops.full_like(index, -1)
        alpha = model.alpha_of_locations(out.alpha)
        extras = {"alpha": alpha, "beta": out.beta, "locations": index}
        new_state = dict(out.state)
        if locations == "sampled":
            # Rolled, not cut: the state of a loop keeps its shape from step to step.
            new_state["noise"] = ops.roll(state["noise"], -1, axis=-1)  # (B, W, T)
        if region is not None:
            new_state["word"] = state["word"] + 1  # (B, W)
        return ops.log_softmax(out.logits), new_state, extras

    # The search adds the axis of hypotheses.
    state = dict(decoder.start(memory, max_words))
    if locations == "sampled":
        state["noise"] = noise
    if region is not None:
        state["word"] = ops.zeros_like(region.scores[:, 0], dtype="int32")  # (B,)
    return step, state


def build_search(generator, decoding, xla=None):
    """Return the function (features, noise, temperature, region) -> Hypotheses.

    The function takes features (B, L, D), noise (B, 2, T), for words and for
    locations, the temperature, a scalar tensor, and optionally a RegionBias.

    Args:
        generator: a :class:`Generator`.
        decoding: DecodingSettings from :func:`config.captioner.static_settings`.
        xla: whether XLA compiles the search, see :func:`runtime.backend.compiled`;
            None compiles nothing, for a caller that traces the function.
    """
    unknown = () if decoding.allow_unknown else (UNKNOWN,)
    rules = {**_SPECIAL, "forbidden": (PAD, START, *unknown)}

    def prepare(features):
        photos = features.shape[0]
        words = None  # the number of photos is unknown
        if photos is not None:
            # An upper bound: a search may end before `max_words`.
            words = photos * decoding.beam * decoding.max_words
        return generator.prepare_search(features, words)

    def search(memory, noise, temperature, region):
        B = ops.shape(noise)[0]
        max_words = decoding.max_words
        # Words and locations have noise of their own, and so are independent.
        step, state = generator.make_step(
            memory, max_words, decoding.locations, noise[:, 1], region
        )
        if decoding.method == "beam":
            return beam_search(
                step,
                state,
                B,
                **rules,
                beam=decoding.beam,
                length_normalisation=decoding.length_normalisation,
                max_words=max_words,
            )
        if decoding.method == "greedy":
            return greedy(step, state, B, **rules, max_words=max_words)
        # noise (B, 2, T) -> (B, T)
        return sample(step, state, noise[:, 0], **rules, temperature=temperature)

    if xla is not None:
        # TensorFlow computes the large products of photos in half the time of XLA.
        prepare = compiled(prepare, generator, False)
        search = compiled(search, generator, xla)

    def generate(features, noise, temperature, region=None):
        return search(prepare(features), noise, temperature, region)

    return generate


def _padded(rows, batch_size):
    """Return a tensor of `batch_size` rows, the missing ones zero."""
    missing = batch_size - len(rows)
    if missing:  # (B - missing, ...) -> (B, ...)
        rows = np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
    return ops.convert_to_tensor(rows)


class Generator(reference.Generator):
    """Generate captions from the annotations of photos, in batches.

    See :class:`reference.generator.Generator`, whose members are Keras captioners here.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._searches = {}

    def forget_searches(self):
        """Trace all searches again, after a setting of a member has changed."""
        self._searches.clear()

    def search(
        self, annotations, decoding, noise, regions=None, photos=None
    ) -> Hypotheses:
        """Search for captions of photos, in batches of ``decoding.batch_size``.

        The last batch is padded with zeros, so that one graph serves every batch and a
        photo's caption does not depend on the number of photos. From
        :data:`PHOTOS_FOR_XLA` photos of the whole run on (`photos`, by default N) XLA
        compiles the search, which changes only rounding.

        Raises:
            SetupError: the device has too little memory for a batch.
        """
        N = len(annotations)
        size = decoding.batch_size
        static = static_settings(decoding)
        xla = (photos or N) >= PHOTOS_FOR_XLA
        if (static, xla) not in self._searches:
            self._searches[static, xla] = build_search(self, static, xla)
        search = self._searches[static, xla]
        # An input and no constant of the graph, which serves all temperatures.
        temperature = ops.convert_to_tensor(np.float32(decoding.temperature))
        if regions is not None:
            scores = region_bias(regions, decoding.region_strength)  # (N, L)
            words = np.int32(decoding.words_from_region)
        found = []
        for start in range(0, N, size):
            rows = slice(start, start + size)
            features = _padded(annotations[rows], size)
            numbers = _padded(noise[rows], size)
            region = None
            if regions is not None:
                biases = _padded(scores[rows], size)
                region = RegionBias(biases, ops.convert_to_tensor(words))
            try:
                # JAX computes asynchronously: a full memory may show only where results
                # are read, so that the conversion is inside `try` too.
                result = search(features, numbers, temperature, region)
                # (B, W, ...), of the last batch without the padding
                fields = [ops.convert_to_numpy(field)[: N - start] for field in result]
            # The class of the error depends on the backend, which `is_out_of_memory`
            # imports.
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise SetupError(
                    f"the device must have the memory to caption {size} photos with a "
                    f"beam of {decoding.beam}. Received: a full memory; set "
                    f"decoding.batch_size = {max(1, size // 2)}, or free the device"
                ) from None
            found.append(fields)
        # batches of (B, W, ...) -> (N, W, ...)
        return Hypotheses(*map(np.concatenate, zip(*found, strict=True)))

    @property
    def captioner(self):
        """The Keras captioner, if it alone reads the photo; None for several views."""
        # Without a type: the base class has the captioner of NumPy.
        return super().captioner

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
            member.decoder.search_memory(
                member.scaled_annotations(views[flipped]), words
            )
            for member, flipped in self.views()
        ]

    def make_step(self, memories, max_words, locations, noise, region=None):
        """Return a decoding step over all members and its initial state.

        ``memories`` are from :meth:`prepare_search`; :func:`make_step` explains the
        other arguments. The region is flipped for a mirror image.
        """
        columns = self.grid[1]
        readers = []
        start = {}
        views = zip(self.views(), memories, strict=True)
        for number, ((member, flipped), memory) in enumerate(views):
            own_region = region
            if region is not None and flipped:
                scores = flip_locations(region.scores, columns)  # (B, L)
                own_region = region._replace(scores=scores)
            member_step, start[str(number)] = make_step(
                member, memory, max_words, locations, noise, own_region
            )
            readers.append(_Reader(member_step, bool(flipped)))
        # The common case: no mean, and a state without the level of members.
        if len(readers) == 1:
            return readers[0].step, start["0"]

        def step(tokens, state):
            log_probs = []
            states = {}
            alphas = []
            betas = []
            for number, reader in enumerate(readers):
                own_state = state[str(number)]
                own_log_probs, own_state, extras = reader.step(tokens, own_state)
                alpha = extras["alpha"]  # (B, W, L)
                if reader.is_mirrored:
                    alpha = flip_locations(alpha, columns)
                log_probs.append(own_log_probs)  # (B, W, K)
                states[str(number)] = own_state
                alphas.append(alpha)
                betas.append(extras["beta"])  # (B, W)
            extras = {
                "alpha": _mean(alphas),
                "beta": _mean(betas),
                # Of any reader: several select no locations.
                "locations": extras["locations"],
            }
            return log_mean_probabilities(log_probs), states, extras

        return step, start


class _Reader(NamedTuple):
    """A member that reads a photo, or its mirror image."""

    step: Callable  # from the function make_step
    is_mirrored: bool


def log_mean_probabilities(log_probs: Sequence):
    """Return the logarithm of the mean of exp(log_probs); exact where all are equal."""
    log_probs = ops.stack(log_probs)  # (M V, B, W, K)
    # exp(log p) of unlikely words would underflow to 0. No log p is -inf here, where
    # -inf - -inf would be NaN: the search masks forbidden words after this step.
    top = ops.max(log_probs, axis=0, keepdims=True)
    mean = ops.mean(ops.exp(log_probs - top), axis=0)  # (B, W, K)
    return ops.squeeze(top, 0) + ops.log(mean)


def flip_locations(alpha, columns: int):
    """Return attention weights (..., L) of a mirrored photo as those of the photo."""
    grid = ops.reshape(alpha, (*ops.shape(alpha)[:-1], -1, columns))  # (..., rows, c)
    return ops.reshape(ops.flip(grid, axis=-1), ops.shape(alpha))


def _mean(values: Sequence):
    return sum(values[1:], values[0]) / len(values)
