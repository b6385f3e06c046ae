"""Captions from a captioner: the model's step function, compiled with its decoding."""

import dataclasses

import numpy as np
from keras import ops

from show_attend_tell.data.vocabulary import END, PAD, START, UNKNOWN
from show_attend_tell.decoding import Hypotheses, beam_search, greedy, sample
from show_attend_tell.models.attention import drawn_location, likeliest_location
from show_attend_tell.runtime.compilation import compiled

_SPECIAL = {"start_id": START, "end_id": END, "pad_id": PAD}


def check_annotations(annotations, expected):
    """Validate annotations (N, L, D), where `expected` is (L, D).

    Raises:
        ValueError: the shape does not fit or N is 0.
    """
    shape = np.shape(annotations)
    if len(shape) != 3 or shape[0] == 0 or shape[1:] != expected:
        raise ValueError(
            f"`annotations` must be (N, {expected[0]}, {expected[1]}) with N > 0. "
            f"Received: shape {tuple(shape)}"
        )


def compiled_settings(decoding):
    """Return the settings that a compiled search depends on; others are inputs.

    A beam of one is greedy, and only a beam ranks by length.
    """
    if decoding.method == "beam" and decoding.beam == 1:
        decoding = dataclasses.replace(decoding, method="greedy")
    if decoding.method != "beam":
        decoding = dataclasses.replace(decoding, beam=1, length_normalisation=0.0)
    return dataclasses.replace(
        decoding, temperature=1.0, seed=0, validation_beam=1, batch_size=1
    )


def draw_noise(seed, photos, max_words):
    """Return uniform numbers in [0, 1), for words and for locations: (N, 2, T).

    A photo's numbers do not depend on how many photos follow it.

    Args:
        seed: one of all photos, or one for each of them, whose numbers then depend on
            no other photo.
        photos: N.
        max_words: T.

    Raises:
        ValueError: there are several seeds, but not N.
    """
    if np.ndim(seed) == 0:
        return np.random.default_rng(seed).random((photos, 2, max_words), np.float32)
    if len(seed) != photos:
        raise ValueError(
            f"`seed` must be one number or one for each of the {photos} photos. "
            f"Received: {len(seed)} of them"
        )
    rngs = [np.random.default_rng(one) for one in seed]
    return np.stack([rng.random((2, max_words), np.float32) for rng in rngs])


def start_state(model, annotations, locations, noise):
    """Return a decoding step for these photos and the state it begins with.

    Args:
        model: a Captioner.
        annotations: prepared (cast and scaled), (B, L, D).
        locations: ``expected``, ``likeliest`` or ``sampled``.
        noise: uniform numbers in [0, 1), (B, T), one for each location ``sampled``.

    Returns:
        ``step`` as :mod:`show_attend_tell.decoding` wants it, and ``{"h", "c"}`` of
        (B, n); where locations are sampled also ``"noise"`` (B, T), the next number
        first. The photos are projected once, here.
    """
    decoder = model.decoder
    projected = model._project_features(annotations)
    c, h = model._get_initial_lstm(annotations)
    kernel = decoder.state_kernel()

    def step(tokens, state):
        embedded = decoder.embed(tokens)
        gates = decoder.word_gates(embedded)
        look = _choice(locations, state.get("noise"))
        out = decoder.step(
            gates, state["h"], state["c"], annotations, projected, kernel, look
        )
        logits = decoder.readout(embedded, out.h, out.z_hat, lambda value: value)
        place = ops.cast(ops.argmax(out.looked, axis=-1), "int32")
        if look is None:
            place = ops.full_like(place, -1)
        extras = {"alpha": out.alpha, "beta": out.beta, "locations": place}
        after = {"h": out.h, "c": out.c}
        if locations == "sampled":
            after["noise"] = ops.roll(state["noise"], -1, axis=-1)
        return ops.log_softmax(logits), after, extras

    state = {"h": h, "c": c}
    return step, {**state, "noise": noise} if locations == "sampled" else state


def _choice(locations, noise):
    """Return the step's choice, alpha -> one-hot location, None for the average."""
    if locations == "sampled":
        return lambda alpha: drawn_location(alpha, noise[..., :1])
    return likeliest_location if locations == "likeliest" else None


def make_writer(model, decoding):
    """Compile the function (features, noise, temperature) -> Hypotheses.

    Args:
        model: a Captioner.
        decoding: DecodingSettings from :func:`compiled_settings`.

    The function takes features (B, L, D), noise (B, 2, T), for words and for
    locations, and the temperature, a scalar tensor.
    """
    unknown = () if decoding.allow_unknown else (UNKNOWN,)
    rules = {**_SPECIAL, "forbidden": (PAD, START, *unknown)}

    def write(features, noise, temperature):
        annotations = model._prepare(features)
        step, state = start_state(model, annotations, decoding.locations, noise[:, 1])
        rows = ops.shape(features)[0]
        if decoding.method == "beam":
            return beam_search(
                step,
                state,
                rows,
                **rules,
                beam=decoding.beam,
                length_normalisation=decoding.length_normalisation,
                max_words=decoding.max_words,
            )
        if decoding.method == "greedy":
            return greedy(step, state, rows, **rules, max_words=decoding.max_words)
        return sample(step, state, noise[:, 0], **rules, temperature=temperature)

    return compiled(write, model)


def write_all(writer, features, noise, temperature, batch_size):
    """Run a writer over N photos in equal batches; NumPy Hypotheses of N rows.

    The last batch is filled up with zeros, so that one graph serves every batch and a
    photo's caption does not depend on how many came with it.
    """
    count, parts = len(features), []
    for start in range(0, count, batch_size):
        block = np.asarray(features[start : start + batch_size])
        draws = noise[start : start + batch_size]
        missing = batch_size - len(block)
        if missing:
            block, draws = (
                np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
                for array in (block, draws)
            )
        result = writer(
            ops.convert_to_tensor(block),
            ops.convert_to_tensor(draws),
            ops.convert_to_tensor(np.float32(temperature)),
        )
        kept = batch_size - missing
        parts.append([ops.convert_to_numpy(field)[:kept] for field in result])
    fields = [np.concatenate(field) for field in zip(*parts, strict=True)]
    return Hypotheses(*fields)
