"""Build one TensorFlow graph from the encoder's input to the caption."""

from collections.abc import Callable

import tensorflow as tf

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generation import build_search, static_settings
from show_attend_tell.runtime.errors import ExportError


def build_captioning_graph(
    captioner: Captioner, encoder: Encoder, decoding: DecodingSettings
) -> Callable[[tf.Tensor], Hypotheses]:
    """Return a function to be traced: one square (1, S, S, 3) uint8 -> Hypotheses.

    It is not compiled by XLA, which some runtimes of exported graphs lack; a beam of
    one is greedy.

    Raises:
        ExportError: the model samples its locations, and an exported graph has no
            source of noise.
    """
    if decoding.locations == "sampled":
        raise ExportError(
            "the model's decoding.locations must be 'expected' or 'likeliest' for an "
            "export. Received: 'sampled'; train or save it with another"
        )
    T = decoding.max_words
    generate = build_search(captioner.generator, static_settings(decoding))
    L, D = captioner.grid[0] * captioner.grid[1], captioner.annotation_width

    def graph(squares: tf.Tensor) -> Hypotheses:
        features = encoder.annotations(squares)  # (1, S, S, 3) -> (1, L, D)
        features = tf.ensure_shape(features, (1, L, D))
        return generate(features, tf.zeros((1, 2, T)), tf.constant(1.0))

    return graph


def graph_variables(captioner: Captioner, encoder: Encoder) -> list[tf.Variable]:
    """Return the variables that the graph reads, to be saved with it."""
    return [weight.value for weight in (*captioner.weights, *encoder.weights)]
