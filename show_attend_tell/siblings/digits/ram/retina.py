"""Cut patches of several scales out of pictures, with products of matrices.

The retina rho(x, l) returns k square patches centred on the place l, with sides
w_i = 2^i g, i = 0..k-1, each averaged to g x g cells (Sec. 3.1 of arXiv:1406.6247).
The centre is c = H/2 + l reach in pixels, so that with a reach of H/2 the place
(-1, -1) is the top left corner; the patch begins at pixel floor(c - w/2 + 1/2), and
pixels outside the picture are 0.

Cell j of scale i is the mean of 2^i x 2^i pixels. With S (g, H), which is 2^-i where a
pixel's row belongs to the cell's row and 0 elsewhere, a patch is S_y x S_x^T. The
product is exact on every backend and reads no pixel by its index.
"""

from keras import ops


def selection_matrix(place, cells, scale, side, reach):
    """Return S, the share of each pixel in each cell along one axis.

    Args:
        place: coordinate l of the centre, (B,).
        cells: g.
        scale: i; a cell has 2^i pixels.
        side: H, pixels of the picture along the axis.
        reach: pixels between the centre of the picture and the place 1.

    Returns:
        (B, g, H); a row sums to 1 if its cell is inside the picture.
    """
    pixels = 2**scale
    start = ops.floor(side / 2 + place * reach - cells * pixels / 2 + 0.5)  # (B,)
    offset = ops.arange(side, dtype="float32") - ops.expand_dims(start, -1)  # (B, H)
    first = pixels * ops.arange(cells, dtype="float32")  # (g,), first pixel of a cell
    offset = ops.expand_dims(offset, 1) - ops.expand_dims(first, -1)  # (B, g, H)
    inside = ops.logical_and(offset >= 0, offset < pixels)
    return ops.cast(inside, "float32") / pixels


def see(images, places, cells, scales, reach):
    """Return rho(x, l), the patches of all scales.

    Args:
        images: x, (B, H, W).
        places: l = (x, y), (B, 2).
        cells: g.
        scales: k.
        reach: pixels between the centre of the picture and the place 1.

    Returns:
        (B, k, g, g), the smallest patch first.
    """
    _, H, W = images.shape
    patches = []
    for scale in range(scales):
        across = selection_matrix(places[:, 0], cells, scale, W, reach)  # (B, g, W)
        down = selection_matrix(places[:, 1], cells, scale, H, reach)  # (B, g, H)
        rows = ops.matmul(down, images)  # (B, g, H) x (B, H, W) -> (B, g, W)
        patches.append(ops.matmul(rows, ops.transpose(across, (0, 2, 1))))
    return ops.stack(patches, axis=1)  # k of (B, g, g) -> (B, k, g, g)
