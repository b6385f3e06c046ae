"""A trained model as a TensorFlow SavedModel: a JPEG's bytes in, its caption out.

Loading it needs TensorFlow and nothing of this package.
"""

import os
import shutil
from pathlib import Path

import tensorflow as tf

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.deployment.captioning_graph import graph_of, held_by
from show_attend_tell.deployment.jpeg_graph import square_of
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import ExportError


def export_saved_model(
    model: str | Path,
    folder: str | Path,
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
) -> None:
    """Write a SavedModel, all or nothing.

    Its signature ``serving_default`` takes ``jpeg``, () string, and returns

    * ``caption``, () string;
    * ``words``, (T,) strings;
    * ``alpha``, (T, rows, columns), the attention of each word over what the network
      saw;
    * ``log_prob``, (), log p of the caption in nats.

    Args:
        model: a ``.keras`` file.
        folder: to be made.
        encoder_weights: as in :func:`~show_attend_tell.inference.pipeline.load`.
        beam: hypotheses, fixed in the export; by default the model's.

    Raises:
        ExportError: the folder exists and is not empty, or see
            :func:`~show_attend_tell.deployment.captioning_graph.graph_of`.
        CaptionError, ModelFileError, EncoderError: see ``pipeline.load``.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(
            f"`out` must be absent or an empty folder. Received: {folder}; name another"
        )
    pipeline = load(model, encoder_weights)
    captioner, encoder = pipeline.captioner, pipeline.encoder
    module = _service(captioner, encoder, pipeline.decoding(beam=beam))
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        signatures = {"serving_default": module.tell}
        tf.saved_model.save(module, str(temporary), signatures=signatures)
        if folder.exists():
            folder.rmdir()
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _service(
    captioner: Captioner, encoder: Encoder, decoding: DecodingSettings
) -> tf.Module:
    """Return a module with the function ``tell`` and the variables that it reads."""
    settings = encoder.settings
    words = tf.constant(captioner.vocabulary.words)
    write = graph_of(captioner, encoder, decoding)

    def tell(jpeg: tf.Tensor) -> dict[str, tf.Tensor]:
        square = square_of(jpeg, settings.image_size, settings.resize)
        found = write(square[None])
        # The end word is no word of the caption.
        length = found.lengths[0, 0] - tf.cast(found.finished[0, 0], tf.int32)
        named = tf.gather(words, found.tokens[0, 0, :length])
        return {
            "caption": tf.strings.reduce_join(named, separator=" "),
            "words": named,
            "alpha": tf.reshape(found.alpha[0, 0, :length], (-1, *captioner.grid)),
            "log_prob": found.log_probs[0, 0],
        }

    module = tf.Module()
    module.held = held_by(captioner, encoder)
    module.tell = tf.function(
        tell, autograph=False, input_signature=[tf.TensorSpec((), tf.string, "jpeg")]
    )
    return module
