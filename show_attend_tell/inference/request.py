"""Define a request for captions, which the command line and the server build once.

To add an option, add a field here and to :class:`CaptionOptions`, and read it where it
acts, in most cases :mod:`inference.pipeline`: the command line derives its options from
the fields, ``caption()`` in Python has those of CaptionOptions, and
:mod:`deployment.server.captions` has those of the web form. A field with the name of a
field of ``DecodingSettings`` overrides the setting saved with the model, unless it is
None. What changes captions belongs in :func:`inference.batch.made_by` too. Options of
the output alone, such as ``--json``, are in :mod:`cli.caption`.
"""

import dataclasses
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from show_attend_tell.config import MAX_BEAM
from show_attend_tell.runtime.errors import CaptionError, nearest, quote

# From here 76 % of the tags of 40 photos were right, see experiments/README.md.
MIN_TAG_CONFIDENCE = 0.5

if TYPE_CHECKING:  # pydantic is slow for --help
    from show_attend_tell.config.captioner import DecodingSettings


@dataclass(frozen=True)
class Option:
    """Describe a field of a request to the command line.

    Attributes:
        help: help text.
        flag: name on the command line; by default the field's name.
        metavar: name of the value in the help text.
        min: smallest value on the command line.
        max: largest value on the command line.
    """

    help: str
    flag: str | None = None
    metavar: str | None = None
    min: float | None = None
    max: float | None = None


def _option(help: str, default: Any = None, **details: Any) -> Any:
    """Return a field of a request with its :class:`Option`."""
    option = Option(help, **details)
    return dataclasses.field(default=default, metadata={"option": option})


@dataclass(frozen=True)
class CaptionRequest:
    """Everything that a user chooses about captions, apart from the photos.

    The help texts describe the other fields.

    Attributes:
        beam: beam width, 1 is greedy; without a `method` it selects beam search.
        seed: seed of sampled words or locations. The noise of a photo depends on the
            seed and the photo alone.
        region: (x0, y0, x1, y1) or the text ``x0,y0,x1,y1``, see :mod:`data.region`.
        method: beam search, or sampled words.
        temperature: divisor of log-probabilities of sampled words.
        samples: captions sampled for one photo, with ``method="sample"``. The first
            becomes the caption, and the others that differ become its alternatives.

    Raises:
        CaptionError: `min_confidence`, `min_tag_confidence` or `samples` is out of
            range, `region` is malformed or combined with `tags` or `min_confidence`, or
            `min_tag_confidence` lacks `tags`.
    """

    models: tuple[Path, ...] = _option(
        "A .safetensors file, a run, or `shipped`, `shipped-lstm` or, in a checkout, "
        "`flickr8k` or `flickr8k-lstm`, in place of the default "
        "model; repeatable, to average the word probabilities of several models.",
        default=(),
        flag="--model",
        metavar="FILE",
    )
    mirror: bool = _option(
        "Average the word probabilities over the photo and its mirror image.",
        default=False,
    )
    reranker: Path | None = _option(
        "A file of fit-reranker: also rank the hypotheses of the beam by their "
        "predicted CIDEr. By default the reranker in the file of a single model; "
        "`shipped` is that of the default model, `none` disables it.",
        metavar="FILE",
    )
    encoder_weights: Path | None = _option(
        "Weights file of the encoder, in place of the weights in its settings.",
        metavar="FILE",
    )
    engine: Literal["numpy", "keras"] | None = _option(
        "Caption with NumPy, the default, which starts immediately, or with Keras, "
        "which is faster for thousands of photos and on a GPU. A model or an encoder "
        "that only Keras has selects it.",
    )
    method: Literal["beam", "sample"] | None = None
    beam: int | None = _option(
        "Beam width; overrides the model's.", min=1, max=MAX_BEAM
    )
    temperature: float | None = None
    locations: Literal["expected", "likeliest", "sampled"] | None = _option(
        "Context of each word; overrides the model's: all locations weighted by "
        "attention (soft), the one of highest attention, or one sampled (hard).",
    )
    seed: int | None = _option(
        "Seed of sampled locations; overrides the model's.", min=0
    )
    region: str | tuple[float, ...] | None = _option(
        "Write the caption from this part of the photo, in pixels of the photo as "
        "displayed, or in % of its sides; with one photo only.",
        metavar="X0,Y0,X1,Y1",
    )
    min_confidence: float | None = _option(
        "Leave out captions whose confidence is below P, 0 to 1; 0 lets captions of "
        "any confidence into metadata.",
        metavar="P",
        min=0,
        max=1,
    )
    tags: bool = _option(
        "Also list tags: nouns of the candidates of the beam, with their confidence.",
        default=False,
    )
    min_tag_confidence: float | None = _option(
        f"Lowest confidence of a tag, 0 to 1; {MIN_TAG_CONFIDENCE} by default, from "
        "which about three of four tags are right.",
        metavar="P",
        min=0,
        max=1,
    )
    samples: int = 1

    @property
    def tag_threshold(self) -> float:
        """The lowest confidence of a tag."""
        if self.min_tag_confidence is None:
            return MIN_TAG_CONFIDENCE
        return self.min_tag_confidence

    @property
    def min_confidence_in_metadata(self) -> float:
        """The lowest confidence of captions that are written into metadata."""
        from show_attend_tell.inference.result import DOUBTFUL  # slow for --help

        return DOUBTFUL if self.min_confidence is None else self.min_confidence

    def __post_init__(self) -> None:
        for name in ("min_confidence", "min_tag_confidence"):
            p = getattr(self, name)
            # NaN is refused too, as it is not between the bounds.
            if p is not None and not (isinstance(p, Real) and 0 <= float(p) <= 1):
                raise CaptionError(
                    f"`{name}` must be from 0 to 1. Received: {quote(p)}; choose a "
                    "probability"
                )
        # Integral, unlike int, includes the integers of NumPy.
        if not isinstance(self.samples, Integral) or self.samples < 1:
            raise CaptionError(
                "`samples` must be a whole number from 1. Received: "
                f"{quote(self.samples)}; correct it"
            )
        if self.min_tag_confidence is not None and not self.tags:
            raise CaptionError("`min_tag_confidence` needs `tags`; add it")
        if self.tags and self.region is not None:
            raise CaptionError(
                "`tags` are of the whole photo. Received: a region; leave out one of "
                "the two"
            )
        if self.min_confidence is not None and self.region is not None:
            raise CaptionError(
                "`min_confidence` needs captions of the whole photo. Received: a "
                "region, whose caption has no confidence; leave out one of the two"
            )
        if self.region is not None:
            from show_attend_tell.data.region import parse_region  # slow for --help

            parse_region(self.region)


class CaptionOptions(TypedDict, total=False):
    """The options of ``caption``: the fields of a request that do not choose models."""

    method: Literal["beam", "sample"] | None
    beam: int | None
    temperature: float | None
    locations: Literal["expected", "likeliest", "sampled"] | None
    seed: int | None
    region: str | tuple[float, ...] | None
    min_confidence: float | None
    tags: bool
    min_tag_confidence: float | None
    samples: int


def request_of(options: CaptionOptions) -> CaptionRequest:
    """Return the request with the options of ``caption``.

    Raises:
        TypeError: an option is unknown.
        CaptionError: a value is out of range, see :class:`CaptionRequest`.
    """
    # Python checks no keys of a TypedDict.
    known = CaptionOptions.__annotations__
    for name in options:
        if name not in known:
            close = nearest(name, known) or f"; the options are {', '.join(known)}"
            raise TypeError(f"caption() has no option {name!r}{close}")
    return CaptionRequest(**options)


def is_sampled(decoding: "DecodingSettings") -> bool:
    """Return whether captions with these DecodingSettings depend on the seed."""
    return decoding.method == "sample" or decoding.locations == "sampled"
