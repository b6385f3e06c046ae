"""Build the report of an evaluation, for ``scores.json`` and as a table of text."""

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
_SHARES = ("exact_match", "pointing", "region_control", "region_other")


@dataclass(frozen=True)
class EvaluationReport:
    """The scores of one set of captions.

    Attributes:
        label: column title in a table, such as ``beam 5``.
        scores: :data:`METRICS` and, on request, ``SPICE`` in percent, 0 to 100 (CIDEr
            may exceed it); for scenes, 0 to 1, ``exact_match``, ``pointing`` and the
            shares of :class:`RegionControl`, ``region_control``, ``region_other``. None
            where a score cannot be computed; a note gives the reason.
        split: name of the split.
        photos: number of photos.
        mean_length: mean number of words of a caption.
        distinct: number of distinct captions as a share of all, 0 to 1.
        notes: one line for each photo group or score that is missing.
        made: origin of the scores: tokenizer, beam, revision, versions and so on.
        captions: photo id -> caption that was scored.
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
    """Score captions against all captions of their photos in the manifest.

    Args:
        label: column title of the report.
        captions: photo id -> caption.
        photos: the same photos, of one split, with their raw captions; the share of
            exact captions is computed on the photos with objects.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE.
        made: origin of the captions.

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


def decoding_record(decoding: DecodingSettings) -> dict[str, object]:
    """Return the decoding settings that ``scores.json`` records."""
    ranked = decoding.method == "beam" and decoding.beam > 1
    seed = {"seed": decoding.seed} if decoding.locations == "sampled" else {}
    return {
        "beam": decoding.beam,
        "length_normalisation": decoding.length_normalisation if ranked else 0.0,
        "max_words": decoding.max_words,
        "allow_unknown": decoding.allow_unknown,
        "locations": decoding.locations,
        **seed,
    }


def decoding_label(decoding: DecodingSettings) -> str:
    """Return the column title of decoding settings: ``beam 5, likeliest``."""
    parts = [part.replace("-", " ") for part in location_parts(decoding)]
    return ", ".join([f"beam {decoding.beam}", *parts])


def location_parts(decoding: DecodingSettings) -> tuple[str, ...]:
    """Return ``decoding.locations`` and its seed as parts of file names and labels.

    The default, ``expected``, has no parts.
    """
    if decoding.locations == "expected":
        return ()
    seed = (f"seed-{decoding.seed}",) if decoding.locations == "sampled" else ()
    return decoding.locations, *seed


def _exact_match(captions: Mapping[str, str], photos: Sequence[Photo]) -> float:
    """Return the share of exact captions among the photos with objects."""
    exact = [
        is_exact(tokenize(captions[photo.id]), map(tokenize, photo.captions))
        for photo in photos
        if photo.objects
    ]
    return sum(exact) / len(exact)


def table(reports: Sequence[EvaluationReport]) -> list[str]:
    """Return a table as lines of text: a row per score, a column per report, notes.

    Args:
        reports: reports of one split, at least one.
    """
    first = reports[0]
    width = max(8, *(len(report.label) for report in reports))
    columns = [f"{report.label:>{width}}" for report in reports]
    lines = [
        f"{first.photos} photos of {first.split}, tokenizer {first.made['tokenizer']}",
        "  ".join([f"{'':14}", *columns]),
    ]
    for name in dict.fromkeys(name for report in reports for name in report.scores):
        values = [_cell(name, report.scores.get(name)) for report in reports]
        lines.append("  ".join([f"{name:14}", *(f"{v:>{width}}" for v in values)]))
    for name in ("mean_length", "distinct"):
        values = [f"{getattr(report, name):{width}.3f}" for report in reports]
        lines.append("  ".join([f"{name:14}", *values]))
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    return lines + [f"note: {note}" for note in notes]


def _cell(name: str, value: float | None) -> str:
    """Return percent with 2 decimals and shares with 3."""
    if value is None:
        return "-"
    return f"{value:.3f}" if name in _SHARES else f"{value:.2f}"
