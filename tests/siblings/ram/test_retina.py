"""The retina: patches of several scales as products of matrices, against loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from tiny_ram import retina, settings

from show_attend_tell.siblings.ram.retina import see

# Places that float32 holds exactly, so that no border of a pixel depends on rounding.
steps = st.integers(-96, 96).map(lambda k: k / 64)


@given(
    H=st.integers(5, 40),
    W=st.integers(5, 40),
    cells=st.integers(1, 6),
    scales=st.integers(1, 3),
    x=steps,
    y=steps,
    seed=st.integers(0, 99),
)
def test_patches_equal_means_over_pixels(H, W, cells, scales, x, y, seed):
    images = np.random.default_rng(seed).random((2, H, W), np.float32)
    places = np.array([[x, y], [y, x]], np.float32)
    tensors = map(ops.convert_to_tensor, (images, places))
    found = np.asarray(see(*tensors, cells, scales, H / 2))
    chosen = settings(patch=cells, scales=scales)
    expected = [
        retina(*pair, chosen, H / 2) for pair in zip(images, places, strict=True)
    ]
    np.testing.assert_allclose(found.reshape(2, -1), expected, atol=1e-5)
