"""Export a trained model as one LiteRT (TensorFlow Lite) file, for phones and boards.

LiteRT cannot decode JPEGs: the file takes the square that the network sees. Words, side
and resizing are in a JSON file of the same name.
"""

import dataclasses
import json
from pathlib import Path

import tensorflow as tf

from show_attend_tell.deployment.exports.captioning_graph import (
    build_captioning_graph,
    graph_variables,
)
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.files import atomic_write


def export_litert(
    model: str | Path,
    file: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> Path:
    """Write a ``.tflite`` file and its ``.json``.

    The file's signature ``serving_default`` takes ``square``, (1, S, S, 3) uint8 RGB,
    and returns ``tokens`` (T,) int32, ``length`` (), the number of them that are words,
    ``alpha`` (T, rows, columns) and ``log_prob`` (). Every operation is LiteRT's own.

    Args:
        model: a ``.keras`` file.
        file: path of the ``.tflite`` file.
        encoder_weights: see :func:`~show_attend_tell.inference.pipeline.load`.
        beam: number of hypotheses, fixed in the export; by default the model's.

    Returns:
        Path of the JSON file: ``words`` by token, ``side`` S and ``resize``.

    Raises:
        CaptionError, ModelFileError, EncoderError: see ``pipeline.load``.
        ExportError: see
            :func:`~show_attend_tell.deployment.exports.captioning_graph.build_captioning_graph`.
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
    decoding = pipeline.decoding(CaptionRequest(beam=beam))
    generate = build_captioning_graph(captioner, encoder, decoding)

    def caption(square: tf.Tensor) -> dict[str, tf.Tensor]:
        found = generate(square)
        return {
            "tokens": found.tokens[0, 0],
            "length": found.lengths[0, 0] - tf.cast(found.finished[0, 0], tf.int32),
            # (T, L) -> (T, rows, columns)
            "alpha": tf.reshape(found.alpha[0, 0], (-1, *captioner.grid)),
            "log_prob": found.log_probs[0, 0],
        }

    module = tf.Module()
    module.held = graph_variables(captioner, encoder)
    square = tf.TensorSpec((1, side, side, 3), tf.uint8, "square")
    module.caption = tf.function(caption, autograph=False, input_signature=[square])
    graph = module.caption.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], module)
    metadata = {
        "words": captioner.vocabulary.words,
        "side": side,
        "resize": encoder.settings.resize,
    }
    metadata_file = Path(file).with_suffix(".json")
    atomic_write(metadata_file, json.dumps(metadata, ensure_ascii=False))
    atomic_write(file, converter.convert())
    return metadata_file
