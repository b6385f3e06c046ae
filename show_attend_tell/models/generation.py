"""Search the captions of photos: the step of one captioner, and batches of photos.

:class:`models.generator.Generator` composes the steps of its members.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from show_attend_tell.data.vocabulary import END, PAD, START, UNKNOWN
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.decoding.beam import beam_search
from show_attend_tell.decoding.sampling import greedy, sample
from show_attend_tell.models.lstm.attention import (
    argmax_location,
    region_bias,
    sampled_location,
)
from show_attend_tell.runtime.backend import compiled

# XLA compiles a beam of 5 in 4.6 s of processor time, TensorFlow traces it in 1.1 s; a
# photo then takes 16 ms or 22 ms (batches of 16, AVX-512), so XLA pays from 600 photos.
MANY_PHOTOS = 500

_SPECIAL = {"start_id": START, "end_id": END, "pad_id": PAD}


def make_region_bias(shares, decoding):
    """Return the RegionBias of photos; shares (N, L), see :func:`region_bias`."""
    scores = ops.convert_to_numpy(region_bias(shares, decoding.region_strength))
    return RegionBias(scores, decoding.region_words or decoding.max_words)


class RegionBias(NamedTuple):
    """The direction of attention to regions of photos."""

    scores: object  # (B, L), see models.lstm.attention.region_bias
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
        ``step`` as :mod:`show_attend_tell.decoding` requires it, and the decoder's
        state, leaves (B, ...); where locations are sampled also ``"noise"`` (B, T), the
        next number first; with a region also ``"word"`` (B,), the number of words
        written.
    """
    decoder = model.decoder

    def step(tokens, state):
        select_weights = _selection(locations, state.get("noise"))
        bias = None if region is None else _bias_of_word(region, state["word"])
        # logits (B, W, K), alpha (B, W, L), beta (B, W)
        out = decoder.next_word(tokens, state, memory, select_weights, bias)
        index = ops.argmax(out.context_weights, axis=-1)  # (B, W, L) -> (B, W)
        index = ops.cast(index, "int32")
        if select_weights is None:
            index = ops.full_like(index, -1)
        extras = {"alpha": out.alpha, "beta": out.beta, "locations": index}
        new_state = dict(out.state)
        if locations == "sampled":
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


def _bias_of_word(region, word):
    """Return the bias of the scores of word number `word`, (B, W) -> (B, W, L)."""
    held = ops.expand_dims(word < region.words, -1)  # (B, W, 1)
    return ops.where(held, ops.expand_dims(region.scores, 1), 0.0)


def _selection(locations, noise):
    """Return alpha -> context weights of one step; None averages by alpha."""
    if locations == "sampled":
        # alpha (B, W, L), noise (B, W, T) -> (B, W, 1)
        return lambda alpha: sampled_location(alpha, noise[..., :1])
    return argmax_location if locations == "likeliest" else None


def build_search(generator, decoding, xla=None):
    """Return the function (features, noise, temperature, region) -> Hypotheses.

    The function takes features (B, L, D), noise (B, 2, T), for words and for
    locations, the temperature, a scalar tensor, and optionally a RegionBias.

    Args:
        generator: a :class:`models.generator.Generator`.
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
            words = photos * decoding.beam * decoding.max_words
        return generator.prepare_search(features, words)

    def search(memory, noise, temperature, region):
        B, max_words = ops.shape(noise)[0], decoding.max_words
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


def search_in_batches(search, features, noise, temperature, batch_size, region=None):
    """Run a compiled search over N photos; return NumPy Hypotheses of N rows.

    The last batch is padded with zeros, so that one graph serves every batch and a
    photo's caption does not depend on the number of photos.

    Args:
        search: from :func:`build_search`, compiled.
        features: (N, L, D).
        noise: (N, 2, T).
        temperature: number above 0, used by ``sample`` only.
        batch_size: B.
        region: a RegionBias of NumPy arrays, scores (N, L); None for no regions.
    """
    N, parts = len(features), []
    for start in range(0, N, batch_size):
        rows = slice(start, start + batch_size)
        block = _padded(features[rows], batch_size)
        block_noise = _padded(noise[rows], batch_size)
        inputs = block, block_noise, ops.convert_to_tensor(np.float32(temperature))
        if region is not None:
            words = ops.convert_to_tensor(np.int32(region.words))
            scores = _padded(region.scores[rows], batch_size)
            inputs = *inputs, RegionBias(scores, words)
        result = search(*inputs)
        kept = min(batch_size, N - start)
        # (B, W, ...) -> (kept, W, ...)
        parts.append([ops.convert_to_numpy(field)[:kept] for field in result])
    # batches of (B, W, ...) -> (N, W, ...)
    fields = [np.concatenate(field) for field in zip(*parts, strict=True)]
    return Hypotheses(*fields)


def _padded(rows, batch_size):
    """Return a tensor of `batch_size` rows, the missing ones zero."""
    rows = np.asarray(rows)
    missing = batch_size - len(rows)
    if missing:  # (B - missing, ...) -> (B, ...)
        rows = np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
    return ops.convert_to_tensor(rows)
