"""Export a trained model as a TensorFlow SavedModel: JPEG bytes in, caption out.

Loading it needs TensorFlow and nothing of this package.
"""

from pathlib import Path

import tensorflow as tf

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.deployment.exports.captioning_graph import (
    build_captioning_graph,
    graph_variables,
)
from show_attend_tell.deployment.exports.jpeg_graph import decode_to_square
from show_attend_tell.inference.pipeline import load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import ExportError
from show_attend_tell.runtime.files import atomic_path


def export_saved_model(
    model: str | Path,
    folder: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> None:
    """Write a SavedModel atomically.

    Its signature ``serving_default`` takes ``jpeg``, () string, and returns

    * ``caption``, () string;
    * ``words``, (T,) strings;
    * ``alpha``, (T, rows, columns), the attention of each word over the square that
      the network sees;
    * ``log_prob``, (), log p of the caption in nats.

    Args:
        model: a ``.keras`` file.
        folder: path of the SavedModel.
        encoder_weights: see :func:`~show_attend_tell.inference.pipeline.load`.
        beam: number of hypotheses, fixed in the export; by default the model's.

    Raises:
        ExportError: the folder exists and is not empty, or see
            :func:`~show_attend_tell.deployment.exports.captioning_graph.build_captioning_graph`.
        CaptionError, ModelFileError, EncoderError: see ``pipeline.load``.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(
            f"`out` must be absent or an empty folder. Received: {folder}; name another"
        )
    pipeline = load(model, encoder_weights)
    captioner, encoder = pipeline.captioner, pipeline.encoder
    module = _serving_module(
        captioner, encoder, pipeline.decoding(CaptionRequest(beam=beam))
    )
    with atomic_path(folder) as temporary:
        signatures = {"serving_default": module.caption}
        tf.saved_model.save(module, str(temporary), signatures=signatures)


def _serving_module(
    captioner: Captioner, encoder: Encoder, decoding: DecodingSettings
) -> tf.Module:
    """Return a module of the function ``caption`` and the variables that it reads."""
    settings = encoder.settings
    words = tf.constant(captioner.vocabulary.words)
    generate = build_captioning_graph(captioner, encoder, decoding)

    def caption(jpeg: tf.Tensor) -> dict[str, tf.Tensor]:
        square = decode_to_square(jpeg, settings.image_size, settings.resize)
        found = generate(square[None])  # (S, S, 3) -> (1, S, S, 3)
        # The end word is not part of the caption.
        length = found.lengths[0, 0] - tf.cast(found.finished[0, 0], tf.int32)
        strings = tf.gather(words, found.tokens[0, 0, :length])  # (T,)
        return {
            "caption": tf.strings.reduce_join(strings, separator=" "),
            "words": strings,
            # (T, L) -> (T, rows, columns)
            "alpha": tf.reshape(found.alpha[0, 0, :length], (-1, *captioner.grid)),
            "log_prob": found.log_probs[0, 0],
        }

    module = tf.Module()
    module.held = graph_variables(captioner, encoder)
    jpeg = tf.TensorSpec((), tf.string, "jpeg")
    module.caption = tf.function(caption, autograph=False, input_signature=[jpeg])
    return module
