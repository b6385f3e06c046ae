"""A loaded model that tells of one photo at a time, in ways a visitor may choose."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.captioning import decoding_of, load, read_hypotheses
from show_attend_tell.inference.result import Caption

MOST_BEAMS = 10
DRAWS = 5  # captions drawn at once


@dataclass(frozen=True)
class Wish:
    """How a caption is to be written.

    Attributes:
        method: ``beam`` (1 is greedy), or ``sample``: words are drawn.
        beam: hypotheses kept, 1 to 10; None is the model's own.
        temperature: of the draws, above 0; low is careful.
        seed: of the draws.
        locations: what a word is written from, see ``DecodingSettings``; None is the
            model's own.
    """

    method: Literal["beam", "sample"] = "beam"
    beam: int | None = None
    temperature: float = 1.0
    seed: int = 0
    locations: Literal["expected", "likeliest", "sampled"] | None = None


class Teller:
    """A captioner with its encoder.

    Attributes:
        name: of the model, as visitors see it.
        captioner: the model.
        encoder: its encoder.
        beam: the model's own.
        locations: the model's own.

    Raises:
        CaptionError, ModelFileError, EncoderError: see
            :func:`~show_attend_tell.inference.captioning.load`.
    """

    def __init__(self, model: str | Path, name: str, encoder_weights=None):
        self.name = name
        self.captioner, self.encoder = load(model, encoder_weights)
        self._decoding = decoding_of(self.captioner)
        self.beam = min(self._decoding.beam, MOST_BEAMS)
        self.locations = self._decoding.locations

    @property
    def attention(self) -> str:
        """``soft`` or ``hard``."""
        return self.captioner.settings.attention

    def warm_up(self) -> None:
        """Compile what the first visitor will use."""
        side = self.encoder.settings.image_size
        self.tell(Image.new("RGB", (side, side)), Wish())

    def tell(self, image: Image.Image, wish: Wish) -> tuple[Caption, tuple]:
        """Write the caption of a photo.

        Args:
            image: RGB, turned upright.
            wish: how.

        Returns:
            The caption, best first of its alternatives, and the part of the photo
            that the network saw, (x0, y0, x1, y1) in fractions of width and height.
        """
        square = self.encoder.preprocess(image)
        features = self.encoder.encode(square[None])  # (1, L, D)
        hypotheses = self._write(features, wish)
        caption = read_hypotheses(self.captioner, hypotheses, Path("photo"), square)
        side = self.encoder.settings.image_size
        box = self.encoder.box_to_photo((0, 0, side, side), image.size)
        sizes = (*image.size, *image.size)
        return caption, tuple(
            round(edge / whole, 6) for edge, whole in zip(box, sizes, strict=True)
        )

    def _write(self, features: np.ndarray, wish: Wish) -> Hypotheses:
        """Return W hypotheses of the photo, best first; every field is (W, ...)."""
        decoding = dataclasses.replace(
            self._decoding,
            method=wish.method,
            beam=wish.beam or self.beam,
            temperature=wish.temperature,
            locations=wish.locations or self.locations,
            seed=wish.seed,
            batch_size=1 if wish.method == "beam" else DRAWS,
        )
        if wish.method == "beam":
            found = self.captioner.generate(features, decoding)
            return Hypotheses(*(field[0] for field in found))
        found = self.captioner.generate(np.repeat(features, DRAWS, axis=0), decoding)
        return _distinct(Hypotheses(*(field[:, 0] for field in found)))


def _distinct(drawn: Hypotheses) -> Hypotheses:
    """Sort drawn captions by their score and leave out those drawn twice."""
    kept: dict[bytes, int] = {}
    for row in np.argsort(-drawn.scores, kind="stable"):
        kept.setdefault(drawn.tokens[row].tobytes(), int(row))
    rows = list(kept.values())
    return Hypotheses(*(field[rows] for field in drawn))
