"""Define the sizes of a measurement."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes B, L, D, A, n, m, K and T; by default those of the bars.

    Notation: :mod:`show_attend_tell.models.lstm.attention`.
    """

    batch: int = 64
    locations: int = 196
    annotation_width: int = 512
    attention_width: int = 512
    lstm_width: int = 512
    embedding_width: int = 512
    vocabulary: int = 2600
    words: int = 12

    @property
    def letters(self) -> tuple[int, ...]:
        """Return B, L, D, A, n, m, K and T."""
        return (
            *(self.batch, self.locations, self.annotation_width),
            *(self.attention_width, self.lstm_width, self.embedding_width),
            *(self.vocabulary, self.words),
        )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the photo's locations, as square as possible."""
        rows = math.isqrt(self.locations)
        while self.locations % rows:
            rows -= 1
        return rows, self.locations // rows


FULL = Sizes()
# To check quickly that everything runs; the measurements mean nothing.
TINY = Sizes(
    batch=4,
    locations=4,
    annotation_width=8,
    attention_width=8,
    lstm_width=8,
    embedding_width=8,
    vocabulary=20,
    words=4,
)


def chosen(quick: bool) -> Sizes:
    """Return the tiny sizes or those of the bars."""
    return TINY if quick else FULL
