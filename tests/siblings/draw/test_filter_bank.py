"""DRAW's windows: equations, identity, symmetries, and windows far outside."""

import numpy as np
import pytest
import tiny_draw as tiny
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from show_attend_tell.config.draw import DrawSettings
from show_attend_tell.siblings.draw.filter_bank import (
    Window,
    filter_bank,
    filters,
    make_window,
    read_patch,
    write_patch,
)

SETTINGS = DrawSettings()
parameter = st.floats(-10, 10)


def tensor(values):
    return ops.convert_to_tensor(np.asarray(values, np.float32))


def window_of(*values):
    """Return one window of given fields."""
    return Window(*(tensor([value]) for value in values))


def seen(image, window, N):
    return ops.convert_to_numpy(read_patch(tensor(image)[None], window, N))[0]


def written(patch, window, H, W):
    return ops.convert_to_numpy(write_patch(tensor(patch)[None], window, H, W))[0]


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
    np.testing.assert_allclose(seen(image, window, N), expected, rtol=1e-4, atol=1e-4)
    patch = np.random.default_rng(N).random((N, N))
    expected = theirs[0].T @ patch @ theirs[1] / theirs[2]
    ours = written(patch, window, H, W)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_parameters_of_zero_are_a_window_on_the_whole_picture():
    window = make_window(tensor(np.zeros((1, 5))), 4, 10, 7, SETTINGS)
    found = [float(field[0]) for field in window]
    assert found == pytest.approx([4.0, 5.5, 3.0, 1.0, 1.0])


@given(parameter, parameter, st.floats(-30, 30), parameter, parameter)
def test_rows_sum_to_one_wherever_the_window_is(a, b, variance, stride, gamma):
    parameters = tensor([[a, b, variance, stride, gamma]])
    window = make_window(parameters, 5, 28, 20, SETTINGS)
    for F in filters(window, 5, 28, 20):
        sums = ops.convert_to_numpy(F).astype(np.float64).sum(-1)
        np.testing.assert_allclose(sums, 1, atol=1e-6)


@given(parameter, parameter, st.floats(-30, 30), parameter, parameter)
def test_gradients_are_finite_wherever_the_window_is(a, b, variance, stride, gamma):
    parameters = tensor([[a, b, variance, stride, gamma]])
    image = tensor(np.random.default_rng(0).random((1, 28, 20)))

    def value(parameters):
        window = make_window(parameters, 5, 28, 20, SETTINGS)
        patch = read_patch(image, window, 5)
        return ops.sum(ops.square(write_patch(patch, window, 28, 20)))

    assert np.isfinite(gradient(value, parameters)).all()


def gradient(function, x):
    """Return d function(x) / dx as an array."""
    if tiny.BACKEND == "jax":
        import jax

        return np.asarray(jax.grad(function)(x))
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return np.asarray(tape.gradient(value, x))


def test_a_window_of_single_pixels_reads_and_writes_the_picture_itself(rng):
    N, image = 8, rng.random((8, 8))
    window = window_of(4.5, 4.5, 1.0, 1e-4, 1.0)
    patch = seen(image, window, N)
    np.testing.assert_allclose(patch, image, atol=1e-6)
    np.testing.assert_allclose(written(patch, window, 8, 8), image, atol=1e-6)


def test_the_intensities_of_reading_and_writing_cancel(rng):
    image = rng.random((9, 7))
    plain, strong = (window_of(4.0, 4.0, 1.3, 0.8, k) for k in (1.0, 7.0))
    once = written(seen(image, plain, 4), plain, 9, 7)
    again = written(seen(image, strong, 4), strong, 9, 7)
    np.testing.assert_allclose(again, once, rtol=1e-5)
    np.testing.assert_allclose(
        seen(image, strong, 4), 7 * seen(image, plain, 4), rtol=1e-5
    )


def test_a_constant_picture_reads_as_gamma_times_the_constant():
    window = window_of(-30.0, 3.0, 2.0, 5.0, 1.5)
    found = seen(np.full((9, 7), 0.4), window, 4)
    np.testing.assert_allclose(found, np.full((4, 4), 0.6), rtol=1e-5)


def test_moving_the_window_is_moving_the_picture(rng):
    image = np.zeros((20, 20))
    image[8:12, 8:12] = rng.random((4, 4))
    still = seen(image, window_of(10.0, 11.0, 1.2, 0.5, 1.0), 4)
    right = seen(np.roll(image, 1, axis=1), window_of(11.0, 11.0, 1.2, 0.5, 1.0), 4)
    down = seen(np.roll(image, 2, axis=0), window_of(10.0, 13.0, 1.2, 0.5, 1.0), 4)
    np.testing.assert_allclose(right, still, atol=1e-6)
    np.testing.assert_allclose(down, still, atol=1e-6)


def test_rows_are_y_and_columns_are_x(rng):
    image = rng.random((9, 7))
    upright = seen(image, window_of(2.0, 7.0, 0.9, 0.6, 1.0), 3)
    transposed = seen(image.T, window_of(7.0, 2.0, 0.9, 0.6, 1.0), 3)
    np.testing.assert_allclose(transposed, upright.T, atol=1e-6)
    bright = np.zeros((9, 7))
    bright[7] = 1.0  # row y = 8
    assert seen(bright, window_of(4.0, 7.0, 1.0, 0.3, 1.0), 3)[2].min() > 0.4


def test_pixels_are_counted_from_one():
    F = ops.convert_to_numpy(
        filter_bank(tensor([1.5]), tensor([1.0]), tensor([1e-4]), 2, 5)
    )[0]
    np.testing.assert_allclose(F, np.eye(2, 5), atol=1e-6)
