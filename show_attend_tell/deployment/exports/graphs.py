"""Export a captioner as one TensorFlow graph: a SavedModel, or a LiteRT file.

Both run without this package. A SavedModel takes a decoded photo of any size; a LiteRT
file, for phones and boards, takes the square that the network sees, as LiteRT does not
resize as Pillow does.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from show_attend_tell.config.captioner import static_settings
from show_attend_tell.deployment.exports.new_folder import require_new_folder
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generator import build_search
from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.files import atomic_path, atomic_write


def export_saved_model(
    model: str | Path,
    folder: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> None:
    """Write a SavedModel atomically.

    Its signature ``serving_default`` takes ``photo``, (H, W, 3) uint8 RGB, upright, and
    returns

    * ``caption``, () string;
    * ``words``, (T,) strings;
    * ``alpha``, (T, rows, columns), the attention of each word over the square that
      the network sees;
    * ``log_prob``, (), log p of the caption in nats.

    Args:
        model: a ``.safetensors`` file.
        folder: path of the SavedModel.
        encoder_weights: see :func:`~show_attend_tell.inference.pipeline.load`.
        beam: number of hypotheses, fixed in the export; by default the model's.

    Raises:
        ModelFileError: the folder exists and is not empty, or is the current one, or
            the model samples its locations or its words.
        CaptionError, ModelFileError: see ``pipeline.load``.
    """
    folder = Path(folder)
    require_new_folder(folder)
    pipeline = load(model, encoder_weights)
    encoder = _encoder_of(pipeline)
    # In the graph, so that it returns words and not their numbers.
    words = tf.constant(pipeline.engine.vocabulary.words)
    generate = _captioning_graph(pipeline, encoder, beam)
    side = pipeline.engine.side
    resize = pipeline.engine.resize

    def caption(photo: tf.Tensor) -> dict[str, tf.Tensor]:
        square = resize_to_square(photo, side, resize)
        best = generate(square[None])  # (S, S, 3) -> (1, S, S, 3)
        strings = tf.gather(words, best["tokens"][: best["length"]])  # (T,)
        return {
            "caption": tf.strings.reduce_join(strings, separator=" "),
            "words": strings,
            "alpha": best["alpha"][: best["length"]],
            "log_prob": best["log_prob"],
        }

    photo = tf.TensorSpec((None, None, 3), tf.uint8, "photo")
    module = _module(caption, photo, pipeline.captioner, encoder)
    with atomic_path(folder) as temporary:
        signatures = {"serving_default": module.caption}
        tf.saved_model.save(module, str(temporary), signatures=signatures)


def export_litert(
    model: str | Path,
    file: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> Path:
    """Write a ``.tflite`` file and its ``.json``.

    The file's signature ``serving_default`` takes ``square``, (1, S, S, 3) uint8 RGB,
    and returns ``tokens`` (T,) int32, ``length`` (), the number of them that are words,
    ``alpha`` (T, rows, columns) and ``log_prob`` (). LiteRT runs every operation.

    Arguments and errors are those of :func:`export_saved_model`; an existing file is
    replaced, and one that ends with ``.json`` is refused.

    Returns:
        Path of the JSON file: ``words`` by token, ``side`` S and ``resize``.
    """
    file = Path(file)
    # The JSON file would have the same name, and one of the two would be lost.
    if file.name == "" or file.suffix.lower() == ".json":
        raise ModelFileError(
            f"`out` must end with .tflite. Received: {file}; correct the name"
        )
    pipeline = load(model, encoder_weights)
    encoder = _encoder_of(pipeline)
    side = pipeline.engine.side
    square = tf.TensorSpec((1, side, side, 3), tf.uint8, "square")
    generate = _captioning_graph(pipeline, encoder, beam)
    module = _module(generate, square, pipeline.captioner, encoder)
    graph = module.caption.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], module)
    metadata = {
        "words": pipeline.engine.vocabulary.words,
        "side": side,
        "resize": pipeline.engine.resize,
    }
    content = converter.convert()  # before the files of an earlier export are replaced
    metadata_file = file.with_suffix(".json")
    atomic_write(metadata_file, json.dumps(metadata, ensure_ascii=False))
    atomic_write(file, content)
    return metadata_file


def _encoder_of(pipeline: CaptioningPipeline) -> Encoder:
    """Return the encoder of a pipeline of `load`, whose network can be traced."""
    encoder = pipeline.encoder
    assert isinstance(encoder, Encoder)  # `load` makes no other
    return encoder


def _captioning_graph(
    pipeline: CaptioningPipeline, encoder: Encoder, beam: int | None
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return a function to be traced: one square (1, S, S, 3) -> its best caption.

    The caption has ``tokens`` (T,), ``length`` (), the number of them that are words,
    ``alpha`` (T, rows, columns) and ``log_prob`` (). The function is not compiled by
    XLA, which some runtimes of exported graphs lack.
    """
    decoding = pipeline.decoding(CaptionRequest(beam=beam))
    # An exported graph has no source of noise.
    if decoding.locations == "sampled":
        raise ModelFileError(
            "the model's decoding.locations must be 'expected' or 'likeliest' for an "
            "export. Received: 'sampled'; train or save it with another"
        )
    if decoding.method == "sample":
        raise ModelFileError(
            "the model's decoding.method must be 'beam' or 'greedy' for an export. "
            "Received: 'sample'; export it with --beam"
        )
    search = build_search(pipeline.captioner.generator, static_settings(decoding))
    rows, columns = pipeline.engine.grid
    D = pipeline.captioner.annotation_width

    def best_caption(square: tf.Tensor) -> dict[str, tf.Tensor]:
        features = encoder.annotations(square)  # (1, S, S, 3) -> (1, L, D)
        features = tf.ensure_shape(features, (1, rows * columns, D))
        # The search takes the number of photos from the noise.
        noise = tf.zeros((1, 2, decoding.max_words))
        hypotheses = search(features, noise, tf.constant(1.0))
        # The end word counts in `lengths`, and is not part of the caption.
        ended = tf.cast(hypotheses.finished[0, 0], tf.int32)
        return {
            "tokens": hypotheses.tokens[0, 0],
            "length": hypotheses.lengths[0, 0] - ended,
            # (T, L) -> (T, rows, columns)
            "alpha": tf.reshape(hypotheses.alpha[0, 0], (-1, rows, columns)),
            "log_prob": hypotheses.log_probs[0, 0],
        }

    return best_caption


def _module(
    caption: Callable, spec: tf.TensorSpec, captioner: Captioner, encoder: Encoder
) -> tf.Module:
    """Return a module of the function ``caption`` and the variables that it reads."""
    module = tf.Module()
    # TensorFlow saves the variables that attributes of a module hold, and refuses to
    # export a function that reads others.
    module.held = [weight.value for weight in (*captioner.weights, *encoder.weights)]
    module.caption = tf.function(caption, autograph=False, input_signature=[spec])
    return module


def resize_to_square(photo: tf.Tensor, side: int, resize: str) -> tf.Tensor:
    """Crop and resize a photo as :func:`data.preprocessing.to_square` does.

    The filter is Pillow's, bicubic with antialiasing, and pixels are rounded between
    the two axes; a few differ by a level, because Pillow's weights are integers. For
    some photos higher than wide, Pillow 13 resizes the columns before the rows; a third
    of the pixels then differ, by a few levels.

    Args:
        photo: (H, W, 3) uint8, RGB.
        side: side of the network's square, S, in pixels.
        resize: ``crop`` or ``squash``, see ``data.preprocessing.seen_region``.

    Returns:
        (S, S, 3) uint8, RGB.
    """
    size = tf.cast(tf.shape(photo)[:2], tf.float32)  # height, width
    # Equal to seen_region: the whole photo, or a crop at whole pixels of the scaled
    # one.
    start = tf.zeros_like(size)
    extent = size
    if resize == "crop":
        shortest = float(round(side * 8 / 7))
        scaled = tf.round(size * shortest / tf.reduce_min(size))
        pixel = size / scaled  # of the scaled photo, in pixels of the photo
        start = tf.floor((scaled - side) / 2) * pixel
        extent = side * pixel
    scale = side / extent  # of rows and columns
    # Columns before rows, as Pillow does for most photos.
    square = _resample(photo, side, scale, start, np.array([0, 1]))
    square = _resample(square, side, scale, start, np.array([1, 0]))
    return tf.ensure_shape(square, (side, side, 3))


def _resample(photo, side: int, scale, start, axis) -> tf.Tensor:
    """Resize one axis of a photo (H, W, 3) uint8 by the bicubic filter.

    Args:
        photo: the photo.
        side: length of the axis in the result.
        scale: (2,), factors of the height and the width.
        start: (2,), first row and column of the region, in pixels of the photo.
        axis: (2,), 1 for the axis that is resized, 0 for the other one.
    """
    chosen = axis.astype(np.float32)
    # place in the result = scale * place in the photo + translation. keyscubic has
    # Pillow's parameter -0.5.
    resized = tf.raw_ops.ScaleAndTranslate(
        images=tf.cast(photo, tf.float32)[None],
        size=tf.where(axis == 1, side, tf.shape(photo)[:2]),
        scale=chosen * scale + 1 - chosen,
        translation=-chosen * start * scale,
        kernel_type="keyscubic",
        antialias=True,
    )[0]
    # Half levels are rounded up, as in Pillow.
    return tf.cast(tf.clip_by_value(tf.floor(resized + 0.5), 0, 255), tf.uint8)
