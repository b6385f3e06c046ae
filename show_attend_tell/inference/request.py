"""Define a request for captions, which the command line and the server build once.

To add an option, add a field here, and read it where it acts; then add it to the verb
``caption`` or to the web form. A field with the name of a field of ``DecodingSettings``
overrides the setting saved with the model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from show_attend_tell.runtime.errors import CaptionError


@dataclass(frozen=True)
class CaptionRequest:
    """Everything that a user chooses about captions, apart from the photos.

    Attributes:
        models: files or names of models, whose word probabilities are averaged; by
            default the packaged model.
        mirror: whether to average over the photo and its mirror image too.
        reranker: see :func:`inference.pipeline.load`.
        encoder_weights: see the same function.
        engine: see :func:`inference.engine.load_engine`.
        method: beam search, or sampled words.
        beam: beam width, 1 is greedy; without a `method` it selects beam search.
        temperature: divisor of log-probabilities of sampled words.
        locations: context of each word: the expected one, or one location.
        seed: seed of sampled words or locations. The noise of a photo depends on the
            seed and the photo alone.
        region: (x0, y0, x1, y1) or the text ``x0,y0,x1,y1``, see :mod:`data.region`.
        min_confidence: captions of a lower confidence, 0 to 1, are left out.
        samples: captions sampled for one photo, with ``method="sample"``. The first
            becomes the caption, and the others that differ become its alternatives.

    Raises:
        CaptionError: `min_confidence` is out of range, or `region` is malformed.
    """

    models: tuple[Path, ...] = ()
    mirror: bool = False
    reranker: Path | None = None
    encoder_weights: Path | None = None
    engine: Literal["auto", "reference", "keras"] = "auto"
    method: Literal["beam", "sample"] | None = None
    beam: int | None = None
    temperature: float | None = None
    locations: Literal["expected", "likeliest", "sampled"] | None = None
    seed: int | None = None
    region: str | tuple[float, ...] | None = None
    min_confidence: float | None = None
    samples: int = 1

    @property
    def least_in_metadata(self) -> float:
        """The lowest confidence of captions that are written into metadata."""
        from show_attend_tell.inference.result import DOUBTFUL  # slow for --help

        return DOUBTFUL if self.min_confidence is None else self.min_confidence

    def __post_init__(self):
        lowest = self.min_confidence
        if lowest is not None and not 0 <= lowest <= 1:
            raise CaptionError(
                f"`min_confidence` must be from 0 to 1. Received: {lowest}; choose a "
                "probability"
            )
        if self.region is not None:
            from show_attend_tell.data.region import parse_region  # slow for --help

            parse_region(self.region)


def is_sampled(decoding) -> bool:
    """Return whether captions with these DecodingSettings depend on the seed."""
    return decoding.method == "sample" or decoding.locations == "sampled"
