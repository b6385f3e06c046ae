"""Build the report of an evaluation, for ``scores.json`` and as a table of text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation import metrics
from show_attend_tell.evaluation.metrics import FILE_TOKEN_BLEU, bootstrap
from show_attend_tell.evaluation.pointing_game import (
    Mention,
    is_exact,
    pointing_statistic,
)
from show_attend_tell.runtime.provenance import collect_provenance

_BLEU = tuple(f"BLEU-{n}" for n in range(1, 5))
METRICS = (*_BLEU, *(f"{name}-no-bp" for name in _BLEU), "METEOR", "ROUGE-L", "CIDEr")
_SHARES = ("exact_match", "pointing", "region_control", "region_other")
_FILE_TOKENS_TITLE = (
    "BLEU of the tokens in the files, lower case, final period {period}; probably the "
    "convention of Table 1"
)


@dataclass(frozen=True)
class EvaluationReport:
    """The scores of one set of captions.

    Attributes:
        label: column title in a table, such as ``beam 5``.
        scores: :data:`METRICS` and, on request, ``SPICE`` in percent, 0 to 100 (CIDEr
            may exceed it); :data:`metrics.FILE_TOKEN_BLEU`, unless a note gives the
            reason; for scenes, 0 to 1, ``exact_match``, ``pointing`` and the shares of
            :class:`RegionControl`, ``region_control``, ``region_other``. None where a
            score cannot be computed; a note gives the reason.
        split: name of the split.
        photos: number of photos.
        mean_length: mean number of words of a caption.
        distinct: number of distinct captions as a share of all, 0 to 1.
        notes: one line for each photo group or score that is missing.
        made: origin of the scores: tokenizer, beam, revision, versions and so on.
        captions: photo id -> caption that was scored.
        per_caption: metric -> photo id -> percent.
        intervals: score -> lower and upper end of its 95 % bootstrap interval.
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
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict:
        """Return the content of ``scores.json``."""
        return {
            **self.scores,
            "split": self.split,
            "photos": self.photos,
            "mean_length": self.mean_length,
            "distinct": self.distinct,
            **self.made,
            "intervals": {
                "level": bootstrap.LEVEL,
                "resamples": bootstrap.RESAMPLES,
                "seed": bootstrap.SEED,
                "scores": {name: list(ends) for name, ends in self.intervals.items()},
            },
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
    mentions: Mapping[str, Sequence[Mention]] | None = None,
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
        mentions: photo id -> its mentions of objects, for scenes; None if the
            pointing game was not played.

    Raises:
        MetricsError: the captions cannot be scored.
    """
    result = score_photos(captions, photos, tokenizer, spice)
    names = (*METRICS, "SPICE") if spice else METRICS
    scores = {name: result.scores.get(name) for name in names}
    scores |= {
        name: value for name, value in result.scores.items() if name not in names
    }
    statistics, notes = dict(result.statistics), result.notes
    if mentions is not None and "exact_match" in scores:
        pointing = pointing_statistic(mentions.get(photo.id, ()) for photo in photos)
        statistics["pointing"] = pointing
        found = pointing.values[:, 1].any()  # a caption names an object
        scores["pointing"] = pointing.score() if found else None
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
        notes=notes,
        made={
            "tokenizer": result.tokenizer,
            "period_appended": result.period_appended,
            **made,
            **origin,
            "versions": versions,
        },
        captions=captions,
        per_caption=result.per_caption,
        intervals=bootstrap.intervals(statistics),
    )


def score_photos(
    captions: Mapping[str, str],
    photos: Sequence[Photo],
    tokenizer: str,
    spice: bool = False,
) -> metrics.ScoringResult:
    """Compute every score of captions that needs no attention.

    Args:
        captions: photo id -> caption.
        photos: the same photos.
        tokenizer: ``auto``, ``ptb`` or ``simple``.
        spice: whether to compute SPICE.

    Returns:
        The result of :func:`metrics.score`, with :data:`metrics.FILE_TOKEN_BLEU` and,
        for photos with objects, ``exact_match``.

    Raises:
        MetricsError: the captions cannot be scored.
    """
    references = {photo.id: list(photo.captions) for photo in photos}
    result = metrics.score(captions, references, tokenizer, spice)
    own = metrics.file_token_bleu(captions, references)
    scores, statistics = result.scores | own.scores, result.statistics | own.statistics
    notes = result.notes
    if not own.scores:
        notes += (
            "no BLEU of the tokens in the files: no caption of the manifest ends with "
            "a period",
        )
    if any(photo.objects for photo in photos):
        statistics["exact_match"] = _exact_match(captions, photos)
        scores["exact_match"] = statistics["exact_match"].score()
    return replace(
        result,
        scores=scores,
        statistics=statistics,
        notes=notes,
        period_appended=own.period_appended if own.scores else None,
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


def _exact_match(captions: Mapping[str, str], photos: Sequence[Photo]):
    """Return the statistic of exact captions among the photos with objects."""
    exact = [
        bool(photo.objects)
        and is_exact(tokenize(captions[photo.id]), map(tokenize, photo.captions))
        for photo in photos
    ]
    return bootstrap.ratio_statistic(exact, [bool(photo.objects) for photo in photos])


def table(reports: Sequence[EvaluationReport]) -> list[str]:
    """Return a table as lines of text: a row per score, a column per report, notes.

    Args:
        reports: reports of one split, at least one.
    """
    first = reports[0]
    names = dict.fromkeys(name for report in reports for name in report.scores)
    own = [name for name in names if name in FILE_TOKEN_BLEU]
    rows = [_row(name, reports) for name in names if name not in own]
    for name in ("mean_length", "distinct"):
        rows.append((name, [f"{getattr(report, name):.3f}" for report in reports]))
    own_rows = [_row(name, reports) for name in own]
    labels = [report.label for report in reports]
    cells = [labels, *(row for _, row in rows + own_rows)]
    width = max(8, *(len(cell) for row in cells for cell in row))

    def line(name: str, row: Sequence[str]) -> str:
        return "  ".join([f"{name:14}", *(f"{cell:>{width}}" for cell in row)])

    ends = ", [95 % bootstrap interval]" if first.intervals else ""
    lines = [
        f"{first.photos} photos of {first.split}, tokenizer {first.made['tokenizer']}"
        + ends,
        line("", labels),
        *(line(*row) for row in rows),
    ]
    if own:
        appended = [report.made.get("period_appended") for report in reports]
        period = "appended" if any(appended) else "kept"
        lines.append(_FILE_TOKENS_TITLE.format(period=period))
        lines += [line(name.removesuffix("-files"), row) for name, row in own_rows]
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    return lines + [f"note: {note}" for note in notes]


def _row(name: str, reports: Sequence[EvaluationReport]) -> tuple[str, list[str]]:
    """Return the name of a score and its cell in every report."""
    return name, [
        _cell(name, report.scores.get(name), report.intervals.get(name))
        for report in reports
    ]


def _cell(name: str, value: float | None, interval: tuple[float, float] | None) -> str:
    """Return percent with 2 decimals and shares with 3, and the interval."""
    if value is None:
        return "-"
    decimals = 3 if name in _SHARES else 2
    text = f"{value:.{decimals}f}"
    if interval is None:
        return text
    low, high = interval
    return f"{text} [{low:.{decimals}f}, {high:.{decimals}f}]"
