"""Sample from a categorical distribution by inverting its cumulative sums."""

from keras import ops


def sample_index(p, u):
    """Return the first entry whose cumulative probability exceeds ``u``.

    A sample depends on its own uniform number alone. An entry of probability 0 is never
    returned: its sum equals that of the entry before. Sums are taken in float32; in
    half precision the sums of many small numbers would be wrong.

    Args:
        p: probabilities, (..., K), of any float type.
        u: uniform numbers in [0, 1), (..., 1).

    Returns:
        (...) int32 in [0, K).
    """
    K, p, u = p.shape[-1], ops.cast(p, "float32"), ops.cast(u, "float32")
    sums = ops.cumsum(p, axis=-1)  # (..., K)
    # (..., K) -> (...): how many sums do not exceed u
    index = ops.sum(ops.cast(sums <= u * sums[..., -1:], "int32"), axis=-1)
    # Rounding may lift u * sum to the sum itself; the argmax is returned then.
    return ops.where(index < K, index, ops.cast(ops.argmax(p, axis=-1), "int32"))
