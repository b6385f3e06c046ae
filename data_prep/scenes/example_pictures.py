"""Pictures that the demo page offers: scenes of shapes, or drawn outdoor views.

All are drawn here, so that nobody's photo has to be shipped. A model trained on photos
sees paintings in the views; they are as photographic as a few polygons can be.
"""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from data_prep.scenes.scenes import make_scene

SIDE = 448  # pixels of a view
_SCENES = (4, 11, 23, 42)  # of the test scenes

Point = tuple[float, float]


def example_pictures(scenes: bool) -> list[tuple[str, bytes]]:
    """Draw the examples.

    Args:
        scenes: for a model of drawn scenes; otherwise for a model of photos.

    Returns:
        What each shows, and its JPEG bytes.
    """
    if scenes:
        drawn = [make_scene(0, "test", number)[:2] for number in _SCENES]
        return [(caption, _jpeg(image)) for image, caption in drawn]
    views = {
        "a drawn dog on grass": _dog(),
        "drawn mountains in snow": _mountains(),
        "a drawn surfer on a wave": _surfer(),
        "a drawn child on a beach": _beach(),
    }
    return [(name, _jpeg(image)) for name, image in views.items()]


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


class _View:
    """A picture being painted; lengths are fractions of its side."""

    def __init__(self, top: str, bottom: str, seed: int):
        self._rng = np.random.default_rng(seed)
        self.image = Image.new("RGB", (SIDE, SIDE), bottom)
        self.fade(top, bottom, 0.0, 1.0)

    def fade(self, top: str, bottom: str, start: float, end: float) -> None:
        """Paint a band whose colour changes from top to bottom."""
        first, last = round(start * SIDE), round(end * SIDE)
        shades = Image.linear_gradient("L").resize((SIDE, last - first))
        band = Image.composite(
            Image.new("RGB", shades.size, bottom),
            Image.new("RGB", shades.size, top),
            shades,
        )
        self.image.paste(band, (0, first))

    def grain(self, start: float, end: float, strength: float, tall: int = 1) -> None:
        """Roughen a band as grass, sand or water are rough."""
        first, last = round(start * SIDE), round(end * SIDE)
        pixels = np.asarray(self.image, np.float32).copy()
        shape = (-(-(last - first) // tall), SIDE)
        noise = np.repeat(self._rng.standard_normal(shape), tall, axis=0)
        pixels[first:last] += strength * noise[: last - first, :, None]
        self.image = Image.fromarray(np.uint8(np.clip(pixels, 0, 255)))

    def blobs(self, colour: str, *boxes: tuple[float, float, float, float]) -> None:
        """Paint ellipses (x, y of the centre, width, height)."""
        brush = ImageDraw.Draw(self.image)
        for x, y, width, height in boxes:
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            brush.ellipse([SIDE * edge for edge in box], fill=colour)

    def area(self, colour: str, *corners: Point) -> None:
        """Paint a polygon."""
        ImageDraw.Draw(self.image).polygon(_pixels(corners), fill=colour)

    def line(self, colour: str, width: float, *points: Point) -> None:
        """Paint a thick line with round joints."""
        thick = round(width * SIDE)
        ImageDraw.Draw(self.image).line(_pixels(points), colour, thick, "curve")
        self.blobs(colour, *((x, y, width, width) for x, y in points))

    def done(self) -> Image.Image:
        """Soften the edges and add the noise of a camera."""
        self.image = self.image.filter(ImageFilter.GaussianBlur(1.2))
        self.grain(0.0, 1.0, 5.0)
        return self.image


def _pixels(points: Sequence[Point]) -> list[Point]:
    return [(SIDE * x, SIDE * y) for x, y in points]


def _dog() -> Image.Image:
    view = _View("#9fc4e8", "#dbe8ee", 1)
    view.fade("#3f6b2c", "#5f8f3a", 0.22, 0.34)
    view.fade("#6fa03f", "#4a7a2b", 0.34, 1.0)
    view.grain(0.22, 1.0, 22.0, tall=5)
    brown, dark = "#8a5a2e", "#5e3a1c"
    view.line(brown, 0.03, (0.28, 0.50), (0.20, 0.40), (0.15, 0.37))
    for x, lean in ((0.33, -0.06), (0.40, 0.03), (0.60, -0.03), (0.67, 0.07)):
        view.line(dark, 0.045, (x, 0.60), (x + lean, 0.70), (x + lean, 0.80))
    view.blobs(brown, (0.38, 0.55, 0.24, 0.19), (0.50, 0.55, 0.34, 0.17))
    view.blobs(brown, (0.63, 0.54, 0.20, 0.22))
    view.line(brown, 0.12, (0.66, 0.50), (0.72, 0.42))
    view.blobs(brown, (0.74, 0.39, 0.15, 0.14), (0.82, 0.42, 0.12, 0.07))
    view.blobs(dark, (0.69, 0.41, 0.06, 0.15))
    view.blobs("#17110c", (0.77, 0.37, 0.02, 0.02), (0.87, 0.41, 0.03, 0.03))
    view.line("#b8342b", 0.02, (0.65, 0.44), (0.71, 0.50))
    return view.done()


def _mountains() -> Image.Image:
    view = _View("#3f7fc4", "#cfe2f2", 2)
    view.area("#8fa3b8", (0, 0.55), (0.2, 0.3), (0.42, 0.6), (0.7, 0.28), (1, 0.6))
    view.area("#5b6b7d", (0.1, 0.75), (0.5, 0.14), (0.9, 0.75))
    view.area("#f4f7fb", (0.32, 0.42), (0.5, 0.14), (0.68, 0.42), (0.58, 0.36))
    view.area("#f4f7fb", (0.32, 0.42), (0.5, 0.3), (0.66, 0.41), (0.45, 0.5))
    view.grain(0.3, 0.66, 9.0, tall=2)
    view.fade("#e3ebf3", "#ffffff", 0.66, 1.0)
    view.grain(0.66, 1.0, 6.0, tall=2)
    for x in (0.08, 0.16, 0.88, 0.95):
        view.area("#2d4436", (x - 0.05, 0.72), (x, 0.5), (x + 0.05, 0.72))
    view.line("#1c2a52", 0.03, (0.5, 0.78), (0.49, 0.86), (0.46, 0.92))
    view.line("#1c2a52", 0.03, (0.5, 0.86), (0.54, 0.92))
    view.line("#c2332c", 0.055, (0.5, 0.74), (0.5, 0.82))
    view.blobs("#e0b48f", (0.5, 0.69, 0.045, 0.05))
    view.line("#222222", 0.01, (0.4, 0.935), (0.6, 0.925))
    return view.done()


def _surfer() -> Image.Image:
    view = _View("#a9cfe6", "#d6e9f2", 3)
    view.fade("#2f7fa3", "#14506f", 0.3, 1.0)
    view.area("#1f6f93", (0, 0.62), (0.2, 0.3), (0.6, 0.22), (1, 0.4), (1, 0.9), (0, 1))
    view.grain(0.25, 1.0, 13.0, tall=2)
    view.line("#f3f9fb", 0.07, (0, 0.46), (0.2, 0.29), (0.45, 0.22), (0.62, 0.24))
    view.blobs("#eef7fa", (0.14, 0.7, 0.45, 0.2), (0.05, 0.6, 0.3, 0.3))
    view.blobs("#ffffff", (0.3, 0.78, 0.3, 0.07), (0.52, 0.76, 0.28, 0.05))
    view.area("#f2d64b", (0.42, 0.73), (0.5, 0.69), (0.78, 0.7), (0.7, 0.75))
    black = "#15181c"
    view.line(black, 0.04, (0.52, 0.7), (0.55, 0.6), (0.6, 0.54))
    view.line(black, 0.04, (0.68, 0.7), (0.66, 0.61), (0.6, 0.54))
    view.line(black, 0.06, (0.6, 0.53), (0.64, 0.41))
    view.line(black, 0.025, (0.63, 0.42), (0.5, 0.45))
    view.line(black, 0.025, (0.64, 0.42), (0.76, 0.45))
    view.blobs("#c99973", (0.66, 0.36, 0.06, 0.065))
    return view.done()


def _beach() -> Image.Image:
    view = _View("#6fb1e6", "#cfe6f5", 4)
    view.fade("#2c86b5", "#5bb0c9", 0.36, 0.58)
    view.grain(0.36, 0.58, 10.0, tall=2)
    view.line("#eef7f9", 0.02, (0, 0.58), (0.3, 0.6), (0.6, 0.58), (1, 0.61))
    view.fade("#d9bd8c", "#c9a770", 0.6, 1.0)
    view.grain(0.6, 1.0, 9.0)
    skin = "#d9a47c"
    view.line(skin, 0.05, (0.46, 0.7), (0.44, 0.86))
    view.line(skin, 0.05, (0.55, 0.7), (0.57, 0.86))
    view.line("#2853a6", 0.085, (0.47, 0.66), (0.54, 0.66))
    view.line("#cf3a34", 0.15, (0.505, 0.49), (0.505, 0.58))
    view.line(skin, 0.04, (0.43, 0.47), (0.34, 0.58))
    view.line(skin, 0.04, (0.58, 0.47), (0.68, 0.4))
    view.blobs(skin, (0.505, 0.34, 0.12, 0.14))
    view.area("#5a3a1e", (0.44, 0.33), (0.46, 0.26), (0.55, 0.26), (0.57, 0.33))
    view.blobs("#f2b632", (0.76, 0.86, 0.12, 0.12))
    return view.done()
