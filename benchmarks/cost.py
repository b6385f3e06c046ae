"""Count the necessary operations and bytes of a work, and their time.

An operation is one addition or multiplication: a product of (p, q) by (q, r) takes
2pqr. Of the elementwise work only that on (B, L, A), the hidden layer of attention, is
counted. Bytes are those of arrays larger than the caches: each pass that needs such an
array reads it once. Notation: :mod:`show_attend_tell.models.lstm.attention`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.sizes import Sizes

# bytes
FLOAT = 4
HALF = 2
_HIDDEN = 5  # tanh of a sum by an exponential, times a weight, summed: per element
_HIDDEN_BACK = 10  # the same again, its slope, and the gradients of P, w and h


@dataclass(frozen=True)
class Cost:
    """Operations by the dtype that they may be done in, and bytes moved."""

    operations: dict[str, float]
    bytes: float

    def calculating(self, rates: dict[str, float]) -> float:
        """Return the time of the operations at the measured rates."""
        return sum(n / rates[kind] for kind, n in self.operations.items())

    def moving(self, rates: dict[str, float]) -> float:
        """Return the time of the bytes at the measured bandwidth."""
        return self.bytes / rates["bandwidth"]

    def seconds(self, rates: dict[str, float]) -> float:
        """Return the time that measured rates allow, the longer of the two."""
        return max(self.calculating(rates), self.moving(rates))

    @property
    def count(self) -> float:
        """Operations of all dtypes."""
        return sum(self.operations.values())


def parameters(sizes: Sizes) -> int:
    """Return the number of weights, one layer in f_att and f_init.

    K m + D A + A + n A + A + n + 1 + 4n(m + D + n + 1) + 2(D + 1) n
    + (n + 1) m + D m + (m + 1) K.
    """
    _, _, D, A, n, m, K, _ = sizes.letters
    attention = D * A + A + n * A + A + n + 1
    lstm = 4 * n * (m + D + n + 1) + 2 * (D + 1) * n
    return K * m + attention + lstm + (n + 1) * m + D * m + (m + 1) * K


def training_step(
    sizes: Sizes, precision: str = "float32", recurrence: str = "float32"
) -> Cost:
    """Return the cost of one update.

    Products over all words together or over none, in `precision`: the projection
    2BLDA; per word the gates 2B m 4n, the readout 2B(nm + Dm + mK). In `recurrence`,
    word by word: 2B(n(A + 4n + 1) + D 4n) of h and z_hat. All of these three times:
    forward, for the weights and for the input; but for the projection, whose input
    needs no gradient, twice. In float32: scores and context, 2BL(A + D) forward, 4BLD
    back (alpha's and the context's share), and the hidden layer of attention,
    elementwise.

    Bytes: the stored features once; P and a at each word forward and back, for h
    between them changes, in two bytes a number if `recurrence` is bfloat16; AdamW reads
    weights, gradients, two moments and an average, and writes all but the gradients.
    """
    B, L, D, A, n, m, K, T = sizes.letters
    large = 2 * 2 * B * L * D * A + 3 * 2 * B * T * (m * 4 * n + m * (n + D + K))
    step = 3 * 2 * B * (n * (A + 4 * n + 1) + D * 4 * n)
    attention = 2 * B * L * (A + D) + 2 * B * L * D
    attention += B * L * A * (_HIDDEN + _HIDDEN_BACK)
    operations = {"float32": float(T * attention + 3 * 2 * B * D * 2 * n)}
    operations[recurrence] = operations.get(recurrence, 0.0) + T * step
    operations[precision] = operations.get(precision, 0.0) + large
    stored = HALF if recurrence == "bfloat16" else FLOAT
    moved = HALF * B * L * D + stored * 2 * T * B * L * (A + D)
    return Cost(operations, moved + FLOAT * 9 * parameters(sizes))


def writing(
    sizes: Sizes, photos: int, beam: int, words: int, precision: str = "float32"
) -> Cost:
    """Return the cost of a beam search over photos, each written to the last word.

    Per photo the projection 2LDA and 2D 2n for h_0 and c_0; per word and hypothesis
    2(n(A + 4n + 1) + (m + D) 4n + m(n + D + K)) + 2L(A + D) and the hidden layer of
    attention; the first word is written for one hypothesis. Bytes: the stored features
    once, P and a at each word.
    """
    _, L, D, A, n, m, K, _ = sizes.letters
    word = 2 * (n * (A + 4 * n + 1) + (m + D) * 4 * n + m * (n + D + K))
    word += 2 * L * (A + D) + _HIDDEN * L * A
    hypotheses = 1 + beam * (words - 1)
    photo = 2 * L * D * A + 2 * D * 2 * n + hypotheses * word
    moved = HALF * L * D + FLOAT * words * L * (A + D)
    return Cost({precision: float(photos * photo)}, photos * moved)


# Convolutions of VGG19, arXiv:1409.1556, Table 1, E: channels and number at a size.
_VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19(photos: int, side: int, precision: str) -> Cost:
    """Return the cost of VGG19 up to block5_conv4, 2 * 9 * p * q a pixel of each map.

    Bytes: the photos' pixels in and float16 out; maps stay in the caches at best.
    """
    operations = 0
    channels = 3
    edge = side
    for width, layers in _VGG19:
        for _ in range(layers):
            operations += 2 * 9 * channels * width * edge * edge
            channels = width
        edge //= 2
    last = side // 16
    moved = 3 * side * side + HALF * last * last * channels
    return Cost({precision: float(photos * operations)}, float(photos * moved))


def total(costs: Sequence[Cost]) -> Cost:
    """Return the sum of costs."""
    operations: dict[str, float] = {}
    for cost in costs:
        for kind, count in cost.operations.items():
            operations[kind] = operations.get(kind, 0.0) + count
    return Cost(operations, sum(cost.bytes for cost in costs))
