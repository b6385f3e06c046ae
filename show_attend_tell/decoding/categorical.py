"""Drawing from a categorical distribution by inverting its cumulative sums."""

from keras import ops


def draw(p, u):
    """Return the first entry whose cumulative probability exceeds ``u``.

    A draw depends on its own uniform number alone. An entry of probability 0 never
    comes: its sum equals that of the entry before. Sums are taken in float32, for
    those of many small numbers would be wrong in half precision.

    Args:
        p: probabilities, (..., K), of any float type.
        u: uniform numbers in [0, 1), (..., 1).

    Returns:
        (...) int32 in [0, K).
    """
    K, p, u = p.shape[-1], ops.cast(p, "float32"), ops.cast(u, "float32")
    sums = ops.cumsum(p, axis=-1)
    index = ops.sum(ops.cast(sums <= u * sums[..., -1:], "int32"), axis=-1)
    # Rounding may lift u * sum to the sum itself; then the likeliest entry is taken.
    return ops.where(index < K, index, ops.cast(ops.argmax(p, axis=-1), "int32"))
