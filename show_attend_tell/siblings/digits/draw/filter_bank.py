"""Compute the windows of DRAW: N x N Gaussian filters on a picture, Sec. 3.2.

Sizes: B batch, N filters on each axis, H and W height and width of a picture (B and A
in arXiv:1502.04623), in pixels counted from 1.
"""

from typing import Any, NamedTuple

from keras import ops

PARAMETERS = 5  # of a window


class Window(NamedTuple):
    """Windows of a batch; every field is (B,)."""

    x: Any  # g_X, column of the centre
    y: Any  # g_Y, row of the centre
    stride: Any  # delta, pixels between the centres of two filters
    variance: Any  # sigma^2 of the filters
    intensity: Any  # gamma


def make_window(parameters, N, height, width, settings) -> Window:
    """Return windows, Eq. (21)-(24).

    Zeros give a window on the whole picture::

        g_X = (W + 1) / 2 (g~_X + 1)
        g_Y = (H + 1) / 2 (g~_Y + 1)
        delta = (max(H, W) - 1) / (N - 1) delta~

    Args:
        parameters: g~_X, g~_Y, log sigma^2, log delta~ and log gamma, (B, 5).
        N: number of filters on each axis.
        height: H.
        width: W.
        settings: the limits of the logarithms, a :class:`digits.settings.DrawSettings`.
    """
    across, down, log_variance, log_stride, log_intensity = (
        parameters[:, k] for k in range(PARAMETERS)
    )
    # Without limits one wild step of the optimiser makes exp(.) infinite or 0.
    variance_limit = settings.log_variance_limit
    scale_limit = settings.log_scale_limit
    log_variance = ops.clip(log_variance, -variance_limit, variance_limit)
    log_stride = ops.clip(log_stride, -scale_limit, scale_limit)
    log_intensity = ops.clip(log_intensity, -scale_limit, scale_limit)
    widest_stride = (max(height, width) - 1) / (N - 1)  # spans the whole picture
    return Window(
        x=(width + 1) / 2 * (across + 1),
        y=(height + 1) / 2 * (down + 1),
        stride=widest_stride * ops.exp(log_stride),
        variance=ops.exp(log_variance),
        intensity=ops.exp(log_intensity),
    )


def filter_bank(centre, stride, variance, N, size):
    """Return the filters of one axis, Eq. (19), (20), (25) and (26).

    Filter i, counted from 1, has its mean at g + (i - N/2 - 1/2) delta. A softmax over
    pixels computes the normalised Gaussian without a division by zero: a row sums to 1
    wherever the window is.

    Args:
        centre: g, (B,).
        stride: delta, (B,).
        variance: sigma^2, (B,).
        N: number of filters.
        size: pixels of the axis.

    Returns:
        F, (B, N, size).
    """
    # Eq. (19) and (20). Filters and pixels count from 1, as in the paper: the same
    # formulas counted from 0 would shift the grid by 1 - delta pixels.
    offsets = ops.arange(1, N + 1, dtype="float32") - N / 2 - 0.5
    means = centre[:, None] + offsets * stride[:, None]  # (B, N)
    pixels = ops.arange(1, size + 1, dtype="float32")
    squares = ops.square(pixels - means[:, :, None])  # (B, N, size)
    # Eq. (25) and (26); Z is the sum in the softmax.
    return ops.softmax(-squares / (2 * variance[:, None, None]), axis=-1)


def filters(window: Window, N, height, width):
    """Return F_Y (B, N, H) and F_X (B, N, W)."""
    F_y = filter_bank(window.y, window.stride, window.variance, N, height)
    F_x = filter_bank(window.x, window.stride, window.variance, N, width)
    return F_y, F_x


def read_patch(image, window: Window, N):
    """Return gamma F_Y x F_X^T of pictures, Eq. (27); (B, H, W) -> (B, N, N)."""
    F_y, F_x = filters(window, N, *image.shape[1:])
    # (B, N, H) x (B, H, W) x (B, W, N) -> (B, N, N)
    patch = ops.matmul(ops.matmul(F_y, image), ops.swapaxes(F_x, 1, 2))
    return window.intensity[:, None, None] * patch


def write_patch(patch, window: Window, height, width):
    """Return 1/gamma F_Y^T w F_X of patches, Eq. (29); (B, N, N) -> (B, H, W)."""
    F_y, F_x = filters(window, patch.shape[1], height, width)
    # (B, H, N) x (B, N, N) x (B, N, W) -> (B, H, W)
    image = ops.matmul(ops.matmul(ops.swapaxes(F_y, 1, 2), patch), F_x)
    return image / window.intensity[:, None, None]
