"""Decode a JPEG to the square that the network sees, in one TensorFlow graph.

The pixels equal those of :mod:`data.preprocessing`. EXIF orientation is read from the
bytes, because phones store portrait photos rotated. Bicubic resizing repeats Pillow's
fixed-point arithmetic (libImaging/Resample.c); ``tf.image.resize`` rounds differently,
so that an export would not have the scores of its model. Landscape and square photos
are equal to the last bit; for some photos higher than wide Pillow 13 resizes the
columns before the rows, and rounding then differs by up to 2 of 255 levels.
"""

import tensorflow as tf

_PRECISION = 2.0**22  # PRECISION_BITS of Pillow's Resample.c for 8-bit channels
_SUPPORT = 2.0  # half width of the bicubic filter, in pixels
_A = -0.5  # Pillow's bicubic parameter
_ORIENTATION = 0x0112  # the EXIF tag
_MAX_ENTRIES = 512  # entries read of the first EXIF directory


def decode_to_square(jpeg: tf.Tensor, side: int, resize: str) -> tf.Tensor:
    """Decode a JPEG, turn it upright, and resize it.

    Args:
        jpeg: () string, the bytes of the file.
        side: side of the network's square, S, in pixels.
        resize: ``crop`` or ``squash``, see ``data.preprocessing.seen_region``.

    Returns:
        (S, S, 3) uint8, RGB.
    """
    image = tf.io.decode_jpeg(
        jpeg, channels=3, dct_method="INTEGER_ACCURATE", fancy_upscaling=True
    )
    image = upright(image, read_orientation(jpeg))  # (H, W, 3)
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float64))
    box = _seen_region(width, height, side, resize)
    # Pillow takes the box as 32-bit floats.
    x0, y0, x1, y1 = (tf.cast(edge, tf.float32) for edge in box)
    planes = tf.cast(tf.transpose(image, (2, 0, 1)), tf.float64)  # -> (3, H, W)
    across = _resampling_weights(width, x0, x1, side)  # (S, W)
    planes = _round_fixed_point(
        tf.matmul(planes, across, transpose_b=True)
    )  # (3, H, S)
    down = _resampling_weights(height, y0, y1, side)  # (S, H)
    planes = _round_fixed_point(tf.matmul(down[None], planes))  # (3, S, S)
    square = tf.cast(tf.transpose(planes, (1, 2, 0)), tf.uint8)  # (S, S, 3)
    return tf.ensure_shape(square, (side, side, 3))


def _seen_region(width, height, side: int, resize: str) -> tuple:
    """Return x0, y0, x1, y1 as ``data.preprocessing.seen_region`` does."""
    if resize == "squash":
        zero = tf.zeros((), tf.float64)
        return zero, zero, width, height
    shortest = tf.constant(round(side * 8 / 7), tf.float64)
    scale = shortest / tf.minimum(width, height)
    wide, high = tf.round(width * scale), tf.round(height * scale)
    left, top = tf.floor((wide - side) / 2), tf.floor((high - side) / 2)
    across, down = width / wide, height / high
    right = tf.minimum((left + side) * across, width)
    bottom = tf.minimum((top + side) * down, height)
    return left * across, top * down, right, bottom


def _resampling_weights(length, start, end, side: int) -> tf.Tensor:
    """Return Pillow's bicubic weights times 2**22, integers, (side, length).

    Args:
        length: pixels of the photo along this axis.
        start: first pixel of the region that is resized.
        end: last pixel of the region, exclusive.
        side: pixels of the square.
    """
    scale = tf.cast(end - start, tf.float64) / side
    stretch = tf.maximum(scale, 1.0)  # the filter widens where the photo shrinks
    out = tf.range(side, dtype=tf.float64)[:, None]  # (side, 1)
    centre = tf.cast(start, tf.float64) + (out + 0.5) * scale
    support = _SUPPORT * stretch
    first = tf.maximum(tf.floor(centre - support + 0.5), 0)
    last = tf.minimum(tf.floor(centre + support + 0.5), length)
    pixel = tf.range(length, dtype=tf.float64)[None]  # (1, length)
    weights = _bicubic((pixel - centre + 0.5) * (1.0 / stretch))  # (side, length)
    inside = tf.logical_and(pixel >= first, pixel < last)
    weights = tf.where(inside, weights, tf.zeros_like(weights))
    weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
    return tf.sign(weights) * tf.floor(tf.abs(weights) * _PRECISION + 0.5)


def _bicubic(x: tf.Tensor) -> tf.Tensor:
    """Return the bicubic filter at a distance of x pixels."""
    x = tf.abs(x)
    near = ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * _A
    return tf.where(x < 1.0, near, tf.where(x < 2.0, far, tf.zeros_like(x)))


def _round_fixed_point(sums: tf.Tensor) -> tf.Tensor:
    """Divide by 2**22, round to integers and clip to 0..255."""
    return tf.clip_by_value(tf.floor((sums + _PRECISION / 2) / _PRECISION), 0, 255)


def upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Undo an EXIF orientation, 1 to 8, of an image (H, W, 3)."""

    def among(*values: int) -> tf.Tensor:
        return tf.reduce_any(tf.equal(orientation, values))

    image = tf.cond(
        among(5, 6, 7, 8), lambda: tf.transpose(image, (1, 0, 2)), lambda: image
    )
    image = tf.cond(among(2, 3, 6, 7), lambda: tf.reverse(image, [1]), lambda: image)
    return tf.cond(among(3, 4, 7, 8), lambda: tf.reverse(image, [0]), lambda: image)


def read_orientation(jpeg: tf.Tensor) -> tf.Tensor:
    """Return the EXIF orientation in a JPEG's bytes, () int32; 1 if there is none."""
    # A 0 is appended, the value of every byte outside of the file.
    data = tf.concat([tf.cast(tf.io.decode_raw(jpeg, tf.uint8), tf.int32), [0]], 0)

    def byte(at):
        last = tf.size(data) - 1
        inside = tf.logical_and(at >= 0, at < last)
        return tf.gather(data, tf.where(inside, at, last))

    start = _exif_start(byte, tf.size(data))
    is_little_endian = tf.equal(byte(start), ord("I"))

    def number(at, count):
        """Return the integer of `count` bytes."""
        value = tf.zeros_like(at)
        for k in range(count):
            offset = tf.where(is_little_endian, count - 1 - k, k)
            value = value * 256 + byte(at + offset)
        return value

    directory = start + number(start + 4, 4)
    count = tf.clip_by_value(number(directory, 2), 0, _MAX_ENTRIES)
    entries = directory + 2 + 12 * tf.range(count)  # positions, (count,)
    is_orientation = tf.equal(number(entries, 2), _ORIENTATION)
    values = tf.where(is_orientation, number(entries + 8, 2), tf.zeros_like(entries))
    found = tf.reduce_max(tf.concat([values, [0]], 0))
    is_valid = tf.logical_and(start >= 0, tf.logical_and(found >= 1, found <= 8))
    return tf.where(is_valid, found, 1)


def _exif_start(byte, size: tf.Tensor) -> tf.Tensor:
    """Return the position of a JPEG's EXIF data, () int32; -1 if it has none."""

    def unfinished(at, found):
        is_segment = tf.logical_and(
            tf.equal(byte(at), 0xFF), tf.not_equal(byte(at + 1), 0xDA)
        )
        return tf.logical_and(tf.logical_and(found < 0, at + 10 < size), is_segment)

    def step(at, found):
        name = byte(at + 4 + tf.range(6))
        is_exif = tf.reduce_all(tf.equal(name, list(b"Exif\0\0")))
        is_exif = tf.logical_and(is_exif, tf.equal(byte(at + 1), 0xE1))
        length = tf.maximum(256 * byte(at + 2) + byte(at + 3), 2)
        return at + 2 + length, tf.where(is_exif, at + 10, -1)

    return tf.while_loop(unfinished, step, (tf.constant(2), tf.constant(-1)))[1]
