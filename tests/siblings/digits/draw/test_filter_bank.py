"""DRAW's windows: equations, identity, and windows far outside."""

import numpy as np
import tiny_draw as tiny
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from tiny_captioner import gradient

from show_attend_tell.siblings.digits.draw.filter_bank import (
    Window,
    filters,
    make_window,
    read_patch,
    write_patch,
)
from show_attend_tell.siblings.digits.settings import DrawSettings

SETTINGS = DrawSettings()
parameter = st.floats(-10, 10)


def tensor(values):
    return ops.convert_to_tensor(np.asarray(values, np.float32))


@given(
    st.floats(-0.9, 0.9),
    st.floats(-0.9, 0.9),
    st.floats(-1, 3),
    st.floats(-2, 0.5),
    st.floats(-2, 2),
    st.integers(2, 7),
    st.integers(3, 9),
    st.integers(3, 9),
)
def test_windows_equal_the_equations(a, b, variance, stride, gamma, N, H, W):
    parameters = np.array([a, b, variance, stride, gamma])
    window = make_window(tensor([parameters]), N, H, W, SETTINGS)
    F_y, F_x = (ops.convert_to_numpy(F)[0] for F in filters(window, N, H, W))
    theirs = tiny.window(parameters, N, H, W)
    assert (F_y.shape, F_x.shape) == ((N, H), (N, W))
    np.testing.assert_allclose(F_y, theirs[0], atol=2e-5)
    np.testing.assert_allclose(F_x, theirs[1], atol=2e-5)
    np.testing.assert_allclose(window.intensity[0], theirs[2], rtol=1e-5)
    image = np.random.default_rng(N).random((H, W))
    expected = theirs[2] * theirs[0] @ image @ theirs[1].T
    found = ops.convert_to_numpy(read_patch(tensor(image)[None], window, N))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    patch = np.random.default_rng(N).random((N, N))
    expected = theirs[0].T @ patch @ theirs[1] / theirs[2]
    found = ops.convert_to_numpy(write_patch(tensor(patch)[None], window, H, W))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@given(parameter, parameter, st.floats(-30, 30), parameter, parameter)
def test_rows_sum_to_one_and_gradients_are_finite_wherever_the_window_is(
    a, b, variance, stride, gamma
):
    parameters = tensor([[a, b, variance, stride, gamma]])
    image = tensor(np.random.default_rng(0).random((1, 28, 20)))

    def value(parameters):
        window = make_window(parameters, 5, 28, 20, SETTINGS)
        patch = read_patch(image, window, 5)
        return ops.sum(ops.square(write_patch(patch, window, 28, 20)))

    assert np.isfinite(gradient(value, parameters)).all()
    for F in filters(make_window(parameters, 5, 28, 20, SETTINGS), 5, 28, 20):
        sums = ops.convert_to_numpy(F).astype(np.float64).sum(-1)
        np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_a_window_of_single_pixels_reads_and_writes_the_picture_itself(rng):
    image = tensor(rng.random((1, 8, 8)))
    window = Window(*(tensor([value]) for value in (4.5, 4.5, 1.0, 1e-4, 1.0)))
    patch = read_patch(image, window, 8)
    np.testing.assert_allclose(patch, image, atol=1e-6)
    np.testing.assert_allclose(write_patch(patch, window, 8, 8), image, atol=1e-6)
