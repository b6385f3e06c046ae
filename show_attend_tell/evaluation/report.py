"""Build the report of an evaluation, for ``scores.json`` and as a table of text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.noun_phrases import share_with_repeated_nouns
from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation.metrics import bootstrap
from show_attend_tell.evaluation.metrics.ngrams import FILE_TOKEN_BLEU, SUFFIX
from show_attend_tell.evaluation.metrics.reward import names_people
from show_attend_tell.evaluation.metrics.scoring import (
    ScoringResult,
    TokenizerName,
    score,
)
from show_attend_tell.evaluation.pointing import HIDDEN, SCORES, pointing_statistics
from show_attend_tell.runtime.machine import collect_provenance
from show_attend_tell.runtime.table import align

_BLEU = tuple(f"BLEU-{n}" for n in range(1, 5))
METRICS = (*_BLEU, *(f"{name}-no-bp" for name in _BLEU), "METEOR", "ROUGE-L", "CIDEr")
_SHARES = (
    "exact_match",
    "invented_people",
    *SCORES,
    *HIDDEN,
    "region_control",
    "region_other",
)
_FILE_TOKENS_TITLE = (
    "BLEU of the tokens in the files, lower case, final period {period}; probably the "
    "convention of Table 1"
)


@dataclass(frozen=True)
class EvaluationReport:
    """The scores of one set of captions.

    Attributes:
        label: column title in a table, such as ``beam 5``.
        scores: the scores of :class:`scoring.ScoringResult` in percent; where boxes are
            known :data:`pointing.SCORES`, 0 to 1, and HIDDEN, in nats; for scenes
            ``exact_match`` and those of :func:`probes.measure_regions`, 0 to 1. None
            where a score cannot be computed; a note gives the reason.
        split: name of the split.
        photos: number of photos.
        mean_length: mean number of words of a caption.
        distinct: number of distinct captions as a share of all, 0 to 1.
        repeated_nouns: share of captions with two noun phrases of one head and no
            modifier that differs, 0 to 1, see :mod:`data.noun_phrases`.
        notes: a line for each group of photos or score that is missing.
        made: origin of the scores: tokenizer, beam, revision, versions and so on.
        captions: photo id -> caption that was scored.
        intervals: score -> lower and upper end of its 95 % bootstrap interval.
        file: the file of these scores, if it has a name of its own.
    """

    label: str
    scores: Mapping[str, float | None]
    split: str
    photos: int
    mean_length: float
    distinct: float
    repeated_nouns: float
    notes: tuple[str, ...] = ()
    made: Mapping[str, object] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    file: Path | None = None

    def to_dict(self) -> dict:
        """Return the content of ``scores.json``."""
        return {
            **self.scores,
            "split": self.split,
            "photos": self.photos,
            "mean_length": self.mean_length,
            "distinct": self.distinct,
            "repeated_nouns": self.repeated_nouns,
            **self.made,
            "intervals": {
                "level": bootstrap.LEVEL,
                "resamples": bootstrap.RESAMPLES,
                "seed": bootstrap.SEED,
                "scores": {name: list(ends) for name, ends in self.intervals.items()},
            },
            "notes": list(self.notes),
        }


def make_report(
    label: str,
    captions: Mapping[str, str],
    photos: Sequence[Photo],
    tokenizer: TokenizerName,
    spice: bool,
    made: Mapping[str, object],
    pointing: Mapping[str, np.ndarray] | None = None,
    regions: Mapping[str, float | None] | None = None,
    notes: Sequence[str] = (),
) -> EvaluationReport:
    """Score captions against all captions of their photos in the manifest.

    Args:
        label: column title of the report.
        captions: photo id -> caption.
        photos: the same photos, of one split, with their raw captions; the share of
            exact captions is computed on the photos with objects.
        tokenizer: see :func:`scoring.score`.
        spice: whether to compute SPICE.
        made: origin of the captions.
        pointing: photo id -> scores of its mentions, (M, 4) or (M, 7), see
            :func:`pointing.pointing_statistics`; None where no boxes are known.
        regions: further scores, from :func:`probes.measure_regions`.
        notes: lines about the captions.

    Raises:
        EvaluationError: the captions cannot be scored.
    """
    result = score_photos(captions, photos, tokenizer, spice)
    # The names come first: they fix the order of the table, and what cannot be computed
    # stays None.
    scores = dict.fromkeys((*METRICS, "SPICE") if spice else METRICS) | result.scores
    statistics = dict(result.statistics)
    if pointing is not None:
        scores |= dict.fromkeys(SCORES)
        # As wide as the others, (0, 4) or (0, 7): the sums of all photos are stacked.
        none = np.zeros((0, max((x.shape[1] for x in pointing.values()), default=0)))
        mentions = [pointing.get(photo.id, none) for photo in photos]
        if any(map(len, mentions)):
            pointed = pointing_statistics(mentions)
            statistics |= pointed
            scores |= {name: each.score() for name, each in pointed.items()}
    scores |= regions or {}
    origin: dict[str, Any] = collect_provenance()
    versions = {**origin.pop("versions"), **result.versions}
    lengths = [len(caption.split()) for caption in captions.values()]
    return EvaluationReport(
        label=label,
        scores=scores,
        split=photos[0].split,
        photos=len(photos),
        mean_length=float(np.mean(lengths)),
        distinct=len(set(captions.values())) / len(captions),
        repeated_nouns=share_with_repeated_nouns(captions.values()),
        notes=(*notes, *result.notes),
        made={
            "tokenizer": result.tokenizer,
            "period_appended": result.period_appended,
            **made,
            **origin,
            "versions": versions,
        },
        captions=captions,
        intervals=bootstrap.intervals(statistics),
    )


def score_photos(
    captions: Mapping[str, str],
    photos: Sequence[Photo],
    tokenizer: TokenizerName,
    spice: bool = False,
) -> ScoringResult:
    """Compute every score of captions that needs no attention.

    Returns:
        The result of :func:`scoring.score` and two shares, 0 to 1: for photos with
        objects ``exact_match``, the share of them whose caption is exact; and where
        people name people in some photos and not in others, ``invented_people``, the
        share of these others whose caption names people.

    Raises:
        EvaluationError: the captions cannot be scored.
    """
    references = {photo.id: list(photo.captions) for photo in photos}
    result = score(captions, references, tokenizer, spice)
    has_objects = [bool(photo.objects) for photo in photos]
    if any(has_objects):
        # A photo without objects counts neither above nor below the line of the share.
        exact = [
            bool(photo.objects)
            and tokenize(captions[photo.id]) in map(tokenize, photo.captions)
            for photo in photos
        ]
        statistic = bootstrap.ratio_statistic(exact, has_objects)
        result.statistics["exact_match"] = statistic
        result.scores["exact_match"] = statistic.score()
    nobody = [not _names_people(photo.captions) for photo in photos]
    if any(nobody) and not all(nobody):
        invented = [
            empty and _names_people([captions[photo.id]])
            for photo, empty in zip(photos, nobody, strict=True)
        ]
        statistic = bootstrap.ratio_statistic(invented, nobody)
        result.statistics["invented_people"] = statistic
        result.scores["invented_people"] = statistic.score()
    return result


def _names_people(captions: Iterable[str]) -> bool:
    """Return whether any caption has a word for people."""
    return any(names_people(tokenize(caption)) for caption in captions)


def decoding_record(decoding: DecodingSettings) -> dict[str, object]:
    """Return the decoding settings that ``scores.json`` records."""
    searches = decoding.method == "beam"
    # A setting without effect is recorded as the value that has the same effect, for
    # comparisons of runs.
    ranked = searches and decoding.beam > 1
    words = {"temperature": decoding.temperature} if decoding.method == "sample" else {}
    is_random = decoding.method == "sample" or decoding.locations == "sampled"
    seed = {"seed": decoding.seed} if is_random else {}
    return {
        "method": decoding.method,
        **words,
        "beam": decoding.beam if searches else 1,
        "length_normalisation": decoding.length_normalisation if ranked else 0.0,
        "max_words": decoding.max_words,
        "allow_unknown": decoding.allow_unknown,
        "locations": decoding.locations,
        **seed,
    }


def decoding_label(decoding: DecodingSettings) -> str:
    """Return the column title of decoding settings: ``beam 5, likeliest``."""
    methods = {
        "beam": f"beam {decoding.beam}",
        "greedy": "greedy",
        "sample": f"words sampled, seed {decoding.seed}",
    }
    parts = [part.replace("-", " ") for part in location_parts(decoding)]
    return ", ".join([methods[decoding.method], *parts])


def location_parts(decoding: DecodingSettings) -> tuple[str, ...]:
    """Return ``decoding.locations`` and its seed as parts of file names and labels.

    The default, ``expected``, has no parts.
    """
    if decoding.locations == "expected":
        return ()
    seed = (f"seed-{decoding.seed}",) if decoding.locations == "sampled" else ()
    return decoding.locations, *seed


def table(reports: Sequence[EvaluationReport]) -> list[str]:
    """Return a table as lines of text: a row per score, a column per report, notes.

    Args:
        reports: reports of one split, at least one.
    """
    first = reports[0]
    names = dict.fromkeys(name for report in reports for name in report.scores)
    of_files = [name for name in names if name in FILE_TOKEN_BLEU]
    rows = [["", *(report.label for report in reports)]]
    rows += [_row(name, reports) for name in names if name not in of_files]
    for name in ("mean_length", "distinct", "repeated_nouns"):
        rows.append([name, *(f"{getattr(report, name):.3f}" for report in reports)])
    # Both parts of the table are aligned together, so that they share their columns.
    # The title of the second part is inserted afterwards.
    count = len(rows)
    lines = align(rows + [_row(name, reports) for name in of_files])
    if of_files:
        appended = any(report.made.get("period_appended") for report in reports)
        period = "appended" if appended else "kept"
        lines.insert(count, _FILE_TOKENS_TITLE.format(period=period))
    title = f"{first.photos} photos of {first.split}, tokenizer "
    title += str(first.made["tokenizer"])
    title += ", [95 % bootstrap interval]" if first.intervals else ""
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    files = [f"scores: {report.file}" for report in reports if report.file is not None]
    return [title, *lines, *(f"note: {note}" for note in notes), *files]


def decimals_of(name: str) -> int:
    """Return the number of decimals of a score in a table: a share has one more."""
    return 3 if name in _SHARES else 2


def _row(name: str, reports: Sequence[EvaluationReport]) -> list[str]:
    """Return the name of a score, and percent or shares with their intervals."""
    decimals = decimals_of(name)
    cells = []
    for report in reports:
        value = report.scores.get(name)
        cell = "-" if value is None else f"{value:.{decimals}f}"
        if value is not None and name in report.intervals:
            low, high = report.intervals[name]
            cell += f" [{low:.{decimals}f}, {high:.{decimals}f}]"
        cells.append(cell)
    return [name.removesuffix(SUFFIX), *cells]
