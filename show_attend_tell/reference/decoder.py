"""Define the functions that the module of a decoder has, and what they exchange.

:mod:`reference.lstm` and :mod:`reference.transformer` are such modules;
``EQUATIONS`` of :mod:`reference.captioner` lists them. Sizes: L locations, D
annotation width, K words, W hypotheses of a beam.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

Weights: TypeAlias = Mapping[str, np.ndarray]  # by the names of the equations
State: TypeAlias = dict[str, np.ndarray]  # of W hypotheses, (W, ...)
Choose: TypeAlias = Callable[[np.ndarray], np.ndarray]  # alpha (W, L) -> one-hot (W, L)
WeightLayout: TypeAlias = tuple[str, tuple[int, ...]]  # name and shape of a weight

Settings = TypeVar("Settings", contravariant=True)  # the table of the decoder
Photo = TypeVar("Photo")  # what every step reads of a photo, computed once


class NextWord(NamedTuple):
    """What a decoder returns at one step of W hypotheses."""

    logits: np.ndarray  # (W, K)
    state: State
    alpha: np.ndarray  # (W, L)
    context_weights: np.ndarray  # (W, L): alpha, or one-hot s_t
    beta: np.ndarray  # (W,)


class Equations(Protocol[Settings, Photo]):
    """The module of a decoder. `p` are its weights; `a` is (L, D), one photo."""

    def read_photo(
        self, p: Weights, settings: Settings, a: np.ndarray, grid: tuple[int, int]
    ) -> Photo:
        """Compute what every step reads of a photo."""

    def start(self, p: Weights, settings: Settings, photo: Photo) -> State:
        """Return the state of one hypothesis before the first word."""

    def step(
        self,
        p: Weights,
        settings: Settings,
        photo: Photo,
        words: np.ndarray,
        state: State,
        choose: Choose | None = None,
        bias: np.ndarray | float = 0,
    ) -> NextWord:
        """Advance hypotheses by one word, y_{t-1} (W,)."""

    def read(
        self,
        p: Weights,
        settings: Settings,
        a: np.ndarray,
        words: Sequence[int] | np.ndarray,
        grid: tuple[int, int],
        locations: np.ndarray | None = None,
        bias: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Read the words y_0 .. y_{T-1} of a caption.

        Returns:
            ``logits`` (T, K), ``alpha`` (T, L), ``beta`` (T,) and the decoder's own.
        """

    def layout(self, settings: Settings, words: int, width: int) -> list[WeightLayout]:
        """Return the layout of each weight, K words, width D."""


AnyEquations: TypeAlias = Equations[Any, Any]  # of a decoder that a model file names
