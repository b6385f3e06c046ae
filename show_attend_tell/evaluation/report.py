"""What an evaluation found and how: for ``scores.json`` and for the eye."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation import metrics
from show_attend_tell.evaluation.pointing_game import is_exact
from show_attend_tell.runtime.provenance import collect_provenance

_BLEU = tuple(f"BLEU-{n}" for n in range(1, 5))
METRICS = (*_BLEU, *(f"{name}-no-bp" for name in _BLEU), "METEOR", "ROUGE-L", "CIDEr")
_SHARES = ("exact_match", "pointing")


@dataclass(frozen=True)
class EvaluationReport:
    """The scores of one set of captions.

    Attributes:
        label: of the column in a table, such as ``beam 5``.
        scores: :data:`METRICS` and, on request, ``SPICE`` in percent, 0 to 100 (CIDEr
            may exceed it); for scenes ``exact_match`` and ``pointing``, 0 to 1. None
            where a score could not be computed; a note says why.
        split: of the photos.
        photos: their number.
        mean_length: words of a caption.
        distinct: different captions, as a share of all, 0 to 1.
        notes: one line for everything that was left out.
        made: how the scores came about: tokenizer, beam, revision, versions ...
        captions: photo id -> the caption that was scored.
        per_caption: metric -> photo id -> percent.
    """

    label: str
    scores: Mapping[str, float | None]
    split: str
    photos: int
    mean_length: float
    distinct: float
    notes: tuple[str, ...] = ()
    made: Mapping[str, object] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    per_caption: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict:
        """Return the content of ``scores.json``."""
        return {
            **self.scores,
            "split": self.split,
            "photos": self.photos,
            "mean_length": self.mean_length,
            "distinct": self.distinct,
            **self.made,
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return the table of this report alone."""
        return table([self])


def make_report(
    label: str,
    captions: Mapping[str, str],
    photos: Sequence[Photo],
    tokenizer: str,
    spice: bool,
    made: Mapping[str, object],
) -> EvaluationReport:
    """Score captions against all that is said of their photos.

    Args:
        label: of the report.
        captions: photo id -> caption.
        photos: the same photos, all of one split, with their raw captions; of those
            with objects the share of exact captions is scored as well.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE too.
        made: what is known of the captions' origin.

    Raises:
        MetricsError: the captions cannot be scored.
    """
    references = {photo.id: list(photo.captions) for photo in photos}
    result = metrics.score(captions, references, tokenizer, spice)
    names = (*METRICS, "SPICE") if spice else METRICS
    scores = {name: result.scores.get(name) for name in names}
    if any(photo.objects for photo in photos):
        scores["exact_match"] = _exact_match(captions, photos)
    origin = collect_provenance()
    versions = {**origin.pop("versions"), **result.versions}
    lengths = [len(caption.split()) for caption in captions.values()]
    return EvaluationReport(
        label=label,
        scores=scores,
        split=photos[0].split,
        photos=len(photos),
        mean_length=float(np.mean(lengths)),
        distinct=len(set(captions.values())) / len(captions),
        notes=result.notes,
        made={"tokenizer": result.tokenizer, **made, **origin, "versions": versions},
        captions=captions,
        per_caption=result.per_caption,
    )


def how_written(decoding: DecodingSettings) -> dict[str, object]:
    """Return what ``scores.json`` tells of how captions were written."""
    ranked = decoding.method == "beam" and decoding.beam > 1
    drawn = {"seed": decoding.seed} if decoding.locations == "sampled" else {}
    return {
        "beam": decoding.beam,
        "length_normalisation": decoding.length_normalisation if ranked else 0.0,
        "max_words": decoding.max_words,
        "allow_unknown": decoding.allow_unknown,
        "locations": decoding.locations,
        **drawn,
    }


def label_of(decoding: DecodingSettings) -> str:
    """Name a column of a table: ``beam 5``, ``beam 5, likeliest``."""
    parts = [part.replace("-", " ") for part in looked_from(decoding)]
    return ", ".join([f"beam {decoding.beam}", *parts])


def looked_from(decoding: DecodingSettings) -> tuple[str, ...]:
    """Say from which locations words are written, unless it is the expected context."""
    if decoding.locations == "expected":
        return ()
    seed = (f"seed-{decoding.seed}",) if decoding.locations == "sampled" else ()
    return decoding.locations, *seed


def _exact_match(captions: Mapping[str, str], photos: Sequence[Photo]) -> float:
    """Return the share of exact captions among the photos whose objects are known."""
    exact = [
        is_exact(tokenize(captions[photo.id]), map(tokenize, photo.captions))
        for photo in photos
        if photo.objects
    ]
    return sum(exact) / len(exact)


def table(reports: Sequence[EvaluationReport]) -> list[str]:
    """Return lines of text: a score a line, a report a column, then the notes.

    Args:
        reports: of one split, at least one.
    """
    first = reports[0]
    width = max(8, *(len(report.label) for report in reports))
    columns = [f"{report.label:>{width}}" for report in reports]
    lines = [
        f"{first.photos} photos of {first.split}, tokenizer {first.made['tokenizer']}",
        "  ".join([f"{'':14}", *columns]),
    ]
    for name in dict.fromkeys(name for report in reports for name in report.scores):
        values = [_text(name, report.scores.get(name)) for report in reports]
        lines.append("  ".join([f"{name:14}", *(f"{v:>{width}}" for v in values)]))
    for name in ("mean_length", "distinct"):
        values = [f"{getattr(report, name):{width}.3f}" for report in reports]
        lines.append("  ".join([f"{name:14}", *values]))
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    return lines + [f"note: {note}" for note in notes]


def _text(name: str, value: float | None) -> str:
    """Write percent with 2 decimals and shares with 3."""
    if value is None:
        return "-"
    return f"{value:.3f}" if name in _SHARES else f"{value:.2f}"
