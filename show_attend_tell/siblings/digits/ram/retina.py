"""Cut patches of several scales out of pictures, with products of matrices.

The retina rho(x, l) returns k square patches centred on the place l, with sides
w_i = 2^i g, i = 0..k-1, each averaged to g x g cells (Sec. 3.1 of arXiv:1406.6247).
The centre is c = H/2 + l reach in pixels, so that with a reach of H/2 the place
(-1, -1) is the top left corner; the patch begins at pixel floor(c - w/2 + 1/2), and
pixels outside the picture are 0.

Cell j of scale i is the mean of 2^i x 2^i pixels. With S (g, H), which is 2^-i where a
pixel's row belongs to the cell's row and 0 elsewhere, a patch is S_y x S_x^T. The
product is exact on every backend and reads no pixel by its index.

A zoom z makes all patches z times as wide: a cell has p = 2^i z pixels along each axis,
not always a whole number, and S is the overlap of pixel and cell divided by p.
"""

from keras import ops


def selection_matrix(place, cells, scale, side, reach, zoom=None):
    """Return S, the share of each pixel in each cell along one axis.

    Args:
        place: coordinate l of the centre, (B,).
        cells: g.
        scale: i; a cell has 2^i pixels.
        side: H, pixels of the picture along the axis.
        reach: pixels between the centre of the picture and the place 1.
        zoom: factor of the cells' sides, (B,); 1 by default.

    Returns:
        (B, g, H); a row sums to 1 if its cell is inside the picture.
    """
    sides = ops.ones_like(place) if zoom is None else zoom
    pixels = 2**scale * sides  # (B,), of a cell
    start = ops.floor(side / 2 + place * reach - cells * pixels / 2 + 0.5)  # (B,)
    offset = ops.arange(side, dtype="float32") - ops.expand_dims(start, -1)  # (B, H)
    pixels = ops.expand_dims(pixels, -1)  # (B, 1)
    first = pixels * ops.arange(cells, dtype="float32")  # (B, g), where a cell begins
    offset = ops.expand_dims(offset, 1) - ops.expand_dims(first, -1)  # (B, g, H)
    pixels = ops.expand_dims(pixels, -1)  # (B, 1, 1)
    # Exactly 1 inside and 0 outside if a cell has whole pixels.
    overlap = ops.minimum(offset + 1, pixels) - ops.maximum(offset, 0.0)
    return ops.relu(overlap) / pixels


def see(images, places, cells, scales, reach, zooms=None):
    """Return rho(x, l), the patches of all scales.

    Args:
        images: x, (B, H, W).
        places: l = (x, y), (B, 2).
        cells: g.
        scales: k.
        reach: pixels between the centre of the picture and the place 1.
        zooms: factor of the patches' sides, (B,); 1 by default.

    Returns:
        (B, k, g, g), the smallest patch first.
    """
    _, H, W = images.shape
    x = places[:, 0]
    y = places[:, 1]
    patches = []
    for scale in range(scales):
        across = selection_matrix(x, cells, scale, W, reach, zooms)  # (B, g, W)
        down = selection_matrix(y, cells, scale, H, reach, zooms)  # (B, g, H)
        rows = ops.matmul(down, images)  # (B, g, H) x (B, H, W) -> (B, g, W)
        patches.append(ops.matmul(rows, ops.transpose(across, (0, 2, 1))))
    return ops.stack(patches, axis=1)  # k of (B, g, g) -> (B, k, g, g)
