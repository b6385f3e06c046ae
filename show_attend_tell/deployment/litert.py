"""A trained model as one LiteRT (TensorFlow Lite) file, for phones and small boards.

Decoding JPEGs is no business of LiteRT: the file takes the square that the network
sees, and what else an app must know lies beside it as JSON.
"""

import dataclasses
import json
import os
from pathlib import Path

import tensorflow as tf

from show_attend_tell.deployment.captioning_graph import graph_of, held_by
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder import Encoder


def export_litert(
    model: str | Path,
    file: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> Path:
    """Write a ``.tflite`` file and its ``.json``.

    The file's signature ``serving_default`` takes ``square``, (1, S, S, 3) uint8 RGB,
    and returns ``tokens`` (T,) int32, ``length`` (), how many of them are words,
    ``alpha`` (T, rows, columns) and ``log_prob`` (). Every operation is LiteRT's own.

    Args:
        model: a ``.keras`` file.
        file: to be written.
        encoder_weights: as in :func:`~show_attend_tell.inference.pipeline.load`.
        beam: hypotheses, fixed in the export; by default the model's.

    Returns:
        The JSON file: ``words`` by token, ``side`` S and ``resize``.

    Raises:
        CaptionError, ModelFileError, EncoderError: see ``pipeline.load``.
        ExportError: see :func:`~show_attend_tell.deployment.captioning_graph.graph_of`.
    """
    pipeline = load(model, encoder_weights)
    captioner, encoder = pipeline.captioner, pipeline.encoder
    if encoder.settings.precision != "float32":  # LiteRT has no bfloat16 convolution
        weights = encoder_weights or encoder.settings.weights
        encoder = Encoder(
            dataclasses.replace(
                encoder.settings, precision="float32", weights=str(weights)
            )
        )
    side = encoder.settings.image_size
    write = graph_of(captioner, encoder, pipeline.decoding(beam=beam))

    def tell(square: tf.Tensor) -> dict[str, tf.Tensor]:
        found = write(square)
        return {
            "tokens": found.tokens[0, 0],
            "length": found.lengths[0, 0] - tf.cast(found.finished[0, 0], tf.int32),
            "alpha": tf.reshape(found.alpha[0, 0], (-1, *captioner.grid)),
            "log_prob": found.log_probs[0, 0],
        }

    module = tf.Module()
    module.held = held_by(captioner, encoder)
    square = tf.TensorSpec((1, side, side, 3), tf.uint8, "square")
    module.tell = tf.function(tell, autograph=False, input_signature=[square])
    graph = module.tell.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], module)
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "words": captioner.vocabulary.words,
        "side": side,
        "resize": encoder.settings.resize,
    }
    beside = file.with_suffix(".json")
    _write(beside, json.dumps(facts, ensure_ascii=False).encode())
    _write(file, converter.convert())
    return beside


def _write(path: Path, content: bytes) -> None:
    """Write a file all or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
