"""Export a captioner as two ONNX graphs: a photo's encoder, and one word's decoder.

The decoder's graph is a record of the NumPy code in :mod:`show_attend_tell.reference`,
for each of its decoders. The encoder's convolutions are nodes of ONNX.

Where the reference takes arrays of NumPy, a :class:`Recorded` is typed ``Any``: it has
their operations without being one of them.
"""

import copy
import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from show_attend_tell.data.noun_phrases import kinds_of
from show_attend_tell.deployment.exports.new_folder import require_new_folder
from show_attend_tell.deployment.exports.recording import Graph, Recorded
from show_attend_tell.inference.engine import load_numpy_engine
from show_attend_tell.reference.beam import log_softmax
from show_attend_tell.reference.captioner import Captioner
from show_attend_tell.reference.encoder import BLOCKS, MEAN, Encoder
from show_attend_tell.reference.reranker import Reranker, kernel
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path

ENCODER = "encoder.onnx"
DECODER = "decoder.onnx"
RERANKER = "reranker.onnx"
SETTINGS = "captioner.json"
_LEAST = 101  # lengths of the example are not smaller


def export_onnx(
    model: str | Path,
    folder: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> None:
    """Write a folder of ONNX files atomically.

    ``encoder.onnx`` takes ``square``, (S, S, 3) uint8 RGB, and returns ``features``
    (L, D), the annotations as they are stored; ``photo/...``, what every step reads of
    the photo; and ``state/...``, the state of the empty caption, one hypothesis.

    ``decoder.onnx`` takes ``words`` y_{t-1} (W,) int64, ``photo/...`` and ``state/...``
    of W hypotheses, and returns ``log_probs`` (W, K), ``alpha`` (W, L), ``beta`` (W,)
    unless the decoder has no gate, and ``next/...``, the new state.

    ``reranker.onnx``, of a model with a reranker, takes ``features`` and returns
    ``values`` (G,), which each n-gram adds to the expected CIDEr of a caption, see
    :meth:`reference.reranker.Reranker.expected_cider`.

    ``captioner.json`` has the words by their ids, ``kinds``, a digit for the kind of
    each, see :mod:`data.noun_phrases`, ``grid``, ``side`` S, ``resize``, the settings
    of the search, and the reranker's ``ngrams`` with their ``idf``.

    Arguments and errors are those of :func:`exports.graphs.export_saved_model`, but a
    model that samples its words is exported, as the search is the caller's. An encoder
    that is neither VGG16 nor VGG19, and a decoder without equations in NumPy, are a
    ModelFileError too.
    """
    folder = Path(folder)
    require_new_folder(folder)
    # The reference: its NumPy code is what is recorded.
    try:
        engine = load_numpy_engine([Path(model)], encoder_weights)
    except NotImplementedError as error:  # only Keras has the encoder or the decoder
        raise ModelFileError(
            f"{error}; ONNX files record NumPy: export the model in another format"
        ) from None
    (captioner,) = engine.generator.members
    decoding = engine.generator.decoding
    if beam is not None:
        decoding = dataclasses.replace(decoding, method="beam", beam=beam)
    if decoding.locations == "sampled":  # a graph has no source of noise
        raise ModelFileError(
            "the model's decoding.locations must be 'expected' or 'likeliest' for an "
            "export. Received: 'sampled'; train or save it with another"
        )
    encoder = engine.encoder
    assert isinstance(encoder, Encoder)  # the engine is NumPy's
    if encoder.settings.network not in BLOCKS:
        raise ModelFileError(
            f"the model's encoder must be {' or '.join(BLOCKS)} for ONNX. Received: "
            f"{encoder.settings.network}; export the model in another format"
        )
    graph, photo = encoder_graph(encoder, captioner)
    decoder, state = decoder_graph(captioner, photo)
    # After both, since the decoder decides which values of the photo are outputs.
    add_outputs(graph, decoder, photo, state)
    models = {ENCODER: graph.model(), DECODER: decoder}
    ranking = {}
    reranker = engine.generator.reranker
    if reranker is not None and engine.generator.ranks(decoding):
        # An example of the right shape; its values do not matter.
        features = np.zeros((math.prod(engine.grid), encoder.width), np.float32)
        models[RERANKER] = reranker_graph(reranker, features).model()
        vectors = reranker.vectors
        ranking = {"ngrams": vectors.ngrams, "idf": vectors.idf.astype(float).tolist()}
    settings = ranking | {
        "words": engine.vocabulary.words,
        "kinds": "".join(map(str, kinds_of(engine.vocabulary.words))),
        "grid": engine.grid,
        "side": engine.side,
        "resize": engine.resize,
        "decoding": dataclasses.asdict(decoding),
    }
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        for name, model in models.items():
            onnx.save(model, temporary / name)
        text = json.dumps(settings, ensure_ascii=False)
        (temporary / SETTINGS).write_text(text, encoding="utf-8")


def encoder_graph(encoder: Encoder, captioner: Captioner) -> tuple[Graph, tuple]:
    """Return the graph up to ``features``, and what the decoder reads of the photo."""
    graph = Graph()
    side = encoder.settings.image_size
    square = np.zeros((side, side, 3), np.uint8)
    # The pixels stay R, G, B. Mean and first kernel, which are in B, G, R, are
    # reversed.
    x = graph.input("square", square).astype(np.float32) - MEAN[::-1]
    x = x.transpose([2, 0, 1])[None]  # (S, S, 3) -> (1, 3, S, S)
    for name in encoder.layers:
        if name.endswith("pool"):
            # An example of the right shape: an odd last row or column is dropped.
            pooled = x.value[:, :, 1::2, 1::2]
            x = graph.add("MaxPool", [x], pooled, kernel_shape=[2, 2], strides=[2, 2])
        else:
            x = _convolution(graph, x, name, *encoder.weights[name])
    features: Any = x.reshape(encoder.width, -1).T  # (1, D, h, w) -> (L, D)
    graph.output("features", features)
    return graph, recorded(captioner, graph).read_photo(features)


def _convolution(graph: Graph, x: Recorded, name: str, kernel, bias) -> Recorded:
    """Return relu(kernel * x + bias) with zero padding, (1, C, H, W), (3, 3, C, K)."""
    kernel = kernel.transpose(3, 2, 0, 1)  # -> (K, C, 3, 3)
    if x.shape[1] == 3:
        kernel = kernel[:, ::-1]  # the network reads B, G, R
    weights = graph.weight(f"{name}/kernel", kernel, 0), graph.constant(bias)
    value = np.zeros((1, len(bias), *x.shape[2:]), np.float32)
    x = graph.add("Conv", [x, *weights], value, pads=[1, 1, 1, 1])
    return graph.add("Relu", [x], value)


def decoder_graph(captioner: Captioner, photo: tuple) -> tuple[onnx.ModelProto, dict]:
    """Return the model of one step, and the state of the empty caption.

    Args:
        captioner: the captioner.
        photo: from :func:`encoder_graph`.
    """
    first = captioner.start(photo)
    W, T = _example_lengths(captioner, photo, first)
    graph = Graph({W: "W", T: "t", T + 1: "t + 1"})

    def input_of(name, values):
        # A value of the encoder's graph becomes an input of this one.
        return graph.input(name, getattr(values, "value", values))

    def state_of(name, values):
        # Hypotheses in place of one; an axis of length 0, of the words so far, becomes
        # t.
        shape = (W, *(size or T for size in values.shape[1:]))
        return graph.input(name, np.zeros(shape, np.float32))

    words: Any = graph.input("words", np.zeros(W, np.int64))
    photo = _map(input_of, "photo", photo)
    state = _map(state_of, "state", first)
    choose: Any = None
    if captioner.decoding.locations == "likeliest":
        one_hot = graph.constant(np.eye(math.prod(captioner.grid)))
        # The row of an identity matrix, as the recorded operations have no one-hot.
        choose = lambda alpha: one_hot[alpha.argmax(axis=-1)]  # noqa: E731
    out = recorded(captioner, graph).step(photo, words, state, choose)
    graph.output("log_probs", log_softmax(out.logits))
    graph.output("alpha", out.alpha)
    if isinstance(out.beta, Recorded):
        graph.output("beta", out.beta)
    for name, values in _leaves("next", out.state):
        graph.output(name, values)
    return graph.model(), first


def _example_lengths(captioner: Captioner, photo: tuple, first: dict) -> list[int]:
    """Return the number of hypotheses and of words of the example.

    Neither they nor one word more are a size of the captioner, or divide one, as the
    width of a Transformer's head does.
    """
    leaves: list[tuple[str, Any]] = [
        *_leaves("photo", photo),
        *_leaves("state", first),
        *captioner.arrays.items(),
    ]
    shapes = [np.shape(getattr(values, "value", values)) for _, values in leaves]
    sizes = {size for shape in shapes for size in shape if size}
    free = (n for n in itertools.count(_LEAST) if all(size % n for size in sizes))
    W = next(free)
    T = next(free)
    while (after := next(free)) != T + 1:
        T = after
    return [W, T]


def reranker_graph(reranker: Reranker, features: np.ndarray) -> Graph:
    """Return the graph from the features of a photo to Q y, the values of n-grams.

    Args:
        reranker: the reranker.
        features: an example, (L, D) float32.
    """
    graph = Graph()
    mean: Any = graph.input("features", features).mean(axis=0)  # (L, D) -> (D,)
    x = (np.sqrt(np.maximum(mean, 0)) - reranker.mean) / reranker.deviation
    length = np.sqrt((x * x).sum(axis=0))
    landmarks: Any = graph.weight("landmarks", reranker.landmarks)  # (M, D)
    similar = kernel(x / np.maximum(length, 1e-6), landmarks, reranker.gamma)
    predicted = similar @ graph.weight("coefficients", reranker.coefficients)  # (r,)
    graph.output("values", graph.weight("basis", reranker.basis, 0) @ predicted)
    return graph


def add_outputs(graph: Graph, decoder: onnx.ModelProto, photo: tuple, state: dict):
    """Name the outputs that the decoder reads, of the photo and of the first state."""
    read = {value.name for value in decoder.graph.input}
    for name, values in (*_leaves("photo", photo), *_leaves("state", state)):
        if name in read:
            graph.output(name, values)


def recorded(captioner: Captioner, graph: Graph) -> Captioner:
    """Return the captioner with weights that are arrays of a graph."""
    # Shallow: the caller's captioner keeps its own arrays.
    captioner = copy.copy(captioner)
    arrays: dict[str, Any] = {
        name: graph.weight(name, values) for name, values in captioner.arrays.items()
    }
    captioner.arrays = arrays
    return captioner


def _map(function: Callable, name: str, tree):
    """Return a tree of tuples, lists and dicts with function(path, array) at arrays."""
    if isinstance(tree, dict):
        return {k: _map(function, f"{name}/{k}", x) for k, x in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [_map(function, f"{name}/{k}", x) for k, x in enumerate(tree)]
        # A NamedTuple takes its fields one by one.
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(name, tree)


def _leaves(name: str, tree) -> list[tuple[str, object]]:
    """Return (path, array) of each array of a tree."""
    leaves = []
    _map(lambda *leaf: leaves.append(leaf), name, tree)
    return leaves
