"""Define how often, and how strongly, rendered words differ from plain text."""

from dataclasses import dataclass

Range = tuple[float, float]


@dataclass(frozen=True)
class Effects:
    """Probabilities and ranges of the effects on a word.

    Lengths are fractions of the font size unless stated otherwise.

    Attributes:
        slanted: probability of an italic font, where a family has one.
        spaced: probability of extra or negative letter spacing.
        spacing: range of that spacing.
        small_caps: probability that capitals after the first are smaller.
        strokes: probability of a stroke of 0, 1 and 2 pixels around letters.
        heavy: probability of a much bolder stroke instead.
        shadow: probability of a shadow.
        outline: probability of an outline in another colour.
        hollow: probability that an outlined word has the ground's colour.
        ruled: probability of a frame, or a line under the word.
        board: probability that the ground ends near the word.
        neighbours: probability of parts of words above, below or beside the word.
        rotation: standard deviation, in degrees.
        turned: probability of any rotation up to ``most_turned`` degrees.
        most_turned: see above.
        shear: standard deviation, as a tangent.
        leaning: probability of a shear in the range ``lean``, to the right.
        lean: see above.
        perspective: largest relative change of width and height from end to end.
        arc: probability that the word is on an arc.
        bend: angle of the arc, in degrees.
        margin_x, margin_y: margins beside and above the word, as fractions of its
            height; negative margins cut letters.
        contrast: least difference of grey levels between text and ground.
        field: largest variation of light, in grey levels.
        shaded: probability that letters fade into the ground, upwards or downwards.
        relief: probability that letters have a bright and a dark edge.
        texture: probability of a texture, or of a photo, on the ground.
        reduced: probability of a lower resolution.
        heights: height of the crop at that resolution, in pixels.
        blur: radius of the largest Gaussian blur, in pixels of the crop.
        motion: probability of motion blur.
        sharpened: probability of the halos that cameras add.
        noise: standard deviation of the strongest noise, in grey levels.
        compressed: probability of JPEG compression.
        quality: quality of JPEG.
        gamma: exponent of grey levels.
        inverted: probability of a negative.
    """

    slanted: float = 0.20
    spaced: float = 0.45
    spacing: Range = (-0.05, 0.30)
    small_caps: float = 0.03
    strokes: tuple[float, float, float] = (0.60, 0.28, 0.12)
    heavy: float = 0.05
    shadow: float = 0.20
    outline: float = 0.15
    hollow: float = 0.25
    ruled: float = 0.15
    board: float = 0.10
    neighbours: float = 0.30
    rotation: float = 3.0
    turned: float = 0.05
    most_turned: float = 25.0
    shear: float = 0.08
    leaning: float = 0.06
    lean: Range = (0.15, 0.35)
    perspective: tuple[float, float] = (0.08, 0.15)
    arc: float = 0.10
    bend: Range = (15.0, 60.0)
    margin_x: Range = (-0.03, 0.35)
    margin_y: Range = (-0.03, 0.30)
    contrast: float = 30.0
    field: float = 25.0
    shaded: float = 0.08
    relief: float = 0.06
    texture: float = 0.30
    reduced: float = 0.55
    heights: tuple[int, int] = (13, 40)
    blur: float = 1.5
    motion: float = 0.10
    sharpened: float = 0.15
    noise: float = 12.0
    compressed: float = 0.70
    quality: tuple[int, int] = (35, 95)
    gamma: Range = (0.7, 1.4)
    inverted: float = 0.10
