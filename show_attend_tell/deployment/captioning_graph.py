"""From the square that the network sees to its caption, as one TensorFlow graph."""

from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.models.generation import compiled_settings, make_writer
from show_attend_tell.runtime.errors import ExportError


def graph_of(
    captioner: Captioner, encoder: Encoder, decoding: DecodingSettings
) -> Callable[[tf.Tensor], Hypotheses]:
    """Return a function for graphs: one square (1, S, S, 3) uint8 -> Hypotheses.

    It is not compiled by XLA, which not every place has where graphs are used; a beam
    of one is greedy.

    Raises:
        ExportError: the model draws its locations, and a graph has no chances to draw
            them by.
    """
    if decoding.locations == "sampled":
        raise ExportError(
            "the model's decoding.locations must be 'expected' or 'likeliest' for an "
            "export. Received: 'sampled'; train or save it with another"
        )
    T = decoding.max_words
    write = make_writer(captioner, compiled_settings(decoding)).python_function
    L = captioner.grid[0] * captioner.grid[1]

    def graph(squares: tf.Tensor) -> Hypotheses:
        features = tf.ensure_shape(
            encoder.annotations(squares), (1, L, captioner.annotation_width)
        )
        return write(features, tf.zeros((1, 2, T)), tf.constant(1.0))

    return graph


def held_by(captioner: Captioner, encoder: Encoder) -> list[tf.Variable]:
    """Return the variables that the graph reads, to be saved with it."""
    return [weight.value for weight in (*captioner.weights, *encoder.weights)]
