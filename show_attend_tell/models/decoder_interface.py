"""Define the methods that a captioner requires of its decoder, and what they exchange.

The captioner, generators and exports call these methods and read no weight of a
decoder. A further decoder is a layer with the methods of :class:`CaptionDecoder` in a
folder beside ``lstm/`` and ``transformer/``, registered in
``config.captioner.DECODERS`` and ``models.captioner.LAYERS``. It trains then, and Keras
captions with it; the recipe "Add a decoder" in ``CONTRIBUTING.md`` has the other steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import keras
from keras import ops


def product(x, w, precision="float32"):
    """Multiply (..., p) by (p, q) in `precision`; return (..., q) in the dtype of x."""
    p, q = w.shape
    rows = ops.reshape(x, (-1, p))  # (..., p) -> (rows, p)
    rows = ops.matmul(ops.cast(rows, precision), ops.cast(w, precision))  # (rows, q)
    return ops.cast(ops.reshape(rows, (*ops.shape(x)[:-1], q)), x.dtype)


class MatrixLayer(keras.layers.Layer):
    """A layer of matrices and biases."""

    def matrix(self, name, rows, columns, seeds, kind="glorot"):
        """Add a matrix of Glorot's initial values or, if `normal`, of 0.01 N(0, 1).

        `seeds` is an iterator.
        """
        # Each matrix takes the next seed: two of one shape and seed would start equal.
        if kind == "normal":
            initializer = keras.initializers.RandomNormal(stddev=0.01, seed=next(seeds))
        else:
            initializer = keras.initializers.GlorotUniform(seed=next(seeds))
        return self.add_weight(
            shape=(rows, columns), initializer=initializer, name=name
        )

    def bias(self, name, width):
        """Add a bias, initially zero."""
        return self.add_weight(shape=(width,), initializer="zeros", name=name)


class CompiledParts(NamedTuple):
    """How ``Captioner.compile_parts`` lets parts of a training step be compiled."""

    compile_fn: Callable | None = None  # compiles a function, equal ones once
    precision: str = "float32"  # dtype of the large matrix products
    # dtype of the recurrence's products, and of what it reads of the photos
    recurrence: str = "float32"

    def compiled(self, function: Callable) -> Callable:
        """Return a function compiled, or itself if the whole step is compiled."""
        return function if self.compile_fn is None else self.compile_fn(function)


def keep(value):
    """Return a value without dropout."""
    return value


class Dropouts(NamedTuple):
    """The dropout of a training step, functions of a tensor."""

    hidden: Callable = keep  # of hidden layers
    words: Callable = keep  # of embedded words
    initial: Callable = keep  # of the mean annotation


# The defaults outside of training: no part is compiled alone, nothing is dropped.
WHOLE = CompiledParts()
NO_DROPOUT = Dropouts()


class Selection(NamedTuple):
    """The choice of the context weights l at each of T words."""

    # (alpha (B, L), *inputs of the step (B, ...)) -> l (B, L), and q (B, 1), the share
    # of the gradient of l that flows on to alpha; a function of a module, as its
    # identity decides whether a step is compiled again
    function: Callable
    inputs: tuple = ()  # tensors (B, T, ...)


def alpha_itself(alpha):
    """Return the context weights of soft attention, alpha, and q = 1."""
    return alpha, ops.ones_like(alpha[:, :1])


SOFT = Selection(alpha_itself)


class NextWord(NamedTuple):
    """The result of one decoding step; every field leads with (B, W)."""

    logits: Any  # (B, W, K)
    state: dict  # leaves (B, W, ...)
    alpha: Any  # (B, W, L)
    context_weights: Any  # (B, W, L), alpha, or one-hot s
    beta: Any  # (B, W)


class CaptionDecoder(Protocol):
    """A layer that models p(y_t | a, y_<t).

    It is created from its settings, K, D, the grid (rows, columns) of the annotations
    and the seed of its initial weights.

    Attributes:
        settings: the dataclass of its widths and switches.
        shares_photos: whether the captions of a photo may share one row of its
            annotations in training, to compute its part of the work once.
        dropout: rate of the dropout of its hidden layers.
        embedding: E, (K, m).
    """

    settings: Any
    shares_photos: bool
    dropout: float
    embedding: Any

    def memory(self, annotations, parts=WHOLE, dropouts=NO_DROPOUT) -> Any:
        """Return the tensors that are computed once per photo, from (P, L, D)."""

    def read(self, tokens, memory, dropouts, parts, selection=SOFT, samples=1) -> dict:
        """Read given words (B, T), y_0 .. y_{T-1}, with :meth:`memory` of their photos.

        Returns:
            ``logits`` (B, T, K), ``alpha`` (B, T, L) and ``beta`` (B, T), ones without
            a gate. A `selection` other than SOFT and more than one of `samples` reach
            only decoders with ``selects_locations``, see ``Captioner.call``.
        """

    def head_weights(self, tokens, memory, bias=None) -> Any:
        """Return attention by layer and head, (B, N, H, T, L); None without heads."""

    def search_memory(self, annotations, words: int | None) -> Any:
        """Return the tensors that a search reads, from (B, L, D).

        `words` is the number of words that the hypotheses of all photos read together,
        None if the number of photos is unknown.
        """

    def start(self, memory, max_words: int) -> dict:
        """Return the state before the first word, leaves (B, ...).

        `memory` is from :meth:`search_memory`.
        """

    def next_word(
        self, tokens, state, memory, select_weights=None, bias=None
    ) -> NextWord:
        """Advance W hypotheses of each photo by one word, tokens (B, W)."""
