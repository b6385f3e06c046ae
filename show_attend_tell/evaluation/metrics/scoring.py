"""Compute all scores of a set of captions, or only the scores for validation."""

import logging
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from typing import Literal

from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation.metrics.bootstrap import Statistic
from show_attend_tell.evaluation.metrics.java import (
    STANFORD,
    java_version,
    meteor,
    ptb_tokenize,
    spice,
)
from show_attend_tell.evaluation.metrics.ngrams import (
    bleu,
    cider,
    file_token_bleu,
    rouge_l,
)
from show_attend_tell.runtime.errors import EvaluationError, SetupError

logger = logging.getLogger(__name__)

_JAVA_SECONDS = 120.0  # for a program to start; METEOR and SPICE add time per caption
TokenizerName = Literal["auto", "ptb", "simple"]


@dataclass(frozen=True)
class ScoringResult:
    """The scores of one set of captions and how they were computed.

    Attributes:
        scores: percent, 0 to 100 (CIDEr, whose usual scale is 0 to 10, times 100):
            ``BLEU-1`` to ``BLEU-4``, the same with the suffix ``-no-bp`` (without
            brevity penalty, as the paper reports), ``METEOR``, ``ROUGE-L``, ``CIDEr``,
            :data:`ngrams.FILE_TOKEN_BLEU` and, on request, ``SPICE``. Scores that
            cannot be computed are absent.
        statistics: the statistic of each score.
        tokenizer: tokenizer that was used, ``ptb`` or ``simple``.
        notes: one line for each score that cannot be computed, with the reason.
        versions: versions of the libraries and tools that computed the scores.
        period_appended: whether a period was appended to the captions, see
            :func:`ngrams.file_token_bleu`; None if no reference ends with a period.
    """

    scores: dict[str, float]
    statistics: dict[str, Statistic]
    tokenizer: str
    notes: tuple[str, ...]
    versions: dict[str, str]
    period_appended: bool | None


def score(
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokenizer: TokenizerName = "auto",
    with_spice: bool = False,
) -> ScoringResult:
    """Score one caption per photo against its references.

    Without Java, METEOR is absent, with the reason in a note.

    Args:
        captions: photo id -> generated caption; an empty caption scores about 0.
        references: photo id -> reference captions, raw text; the same photos.
        tokenizer: ``ptb`` (Stanford's, needs Java, used by published scores),
            ``simple`` (no Java) or ``auto`` (``ptb`` if Java works, else ``simple``).
        with_spice: whether to compute SPICE, which needs a separate download.

    Raises:
        EvaluationError: a photo has no reference with a word, or the tokenizer is
            unknown.
        SetupError: ``tokenizer="ptb"``, and Java is absent or fails.
    """
    notes: list[str] = []
    # All texts at once, as each call of the PTB tokenizer starts Java.
    raw = list(captions.values())
    raw += [text for photo in captions for text in references[photo]]
    tokenized, used, hangs = _tokenize(raw, tokenizer, notes)
    hypotheses = tokenized[: len(captions)]
    others = iter(tokenized[len(captions) :])
    texts = [list(islice(others, len(references[photo]))) for photo in captions]
    kept = _drop_empty(captions, texts)
    if dropped := sum(map(len, texts)) - sum(map(len, kept)):
        notes.append(f"{dropped} references without a word were left out")
    # The scores that need no Java.
    results = bleu(hypotheses, kept)
    results["ROUGE-L"] = rouge_l(hypotheses, kept)
    results["CIDEr"] = cider(hypotheses, kept)
    if len(captions) == 1:
        notes.append("CIDEr of a single photo is 0 by definition")
    # Those of Java's programs, each of which may fail alone.
    programs = {"METEOR": meteor} | ({"SPICE": spice} if with_spice else {})
    if hangs:  # METEOR would wait for minutes more
        notes += [f"no {name}: java hangs" for name in programs]
        programs = {}
    for name, program in programs.items():
        try:
            results[name] = program(hypotheses, kept, _JAVA_SECONDS)
        except SetupError as error:
            notes.append(f"no {name}: {error}")
    for note in notes:
        logger.warning("%s", note)
    of_files, appended = file_token_bleu(captions, references)
    if not of_files:
        notes.append(
            "no BLEU of the tokens in the files: no caption of the manifest ends with "
            "a period"
        )
    versions = {"pycocoevalcap": version("pycocoevalcap")}
    versions["tokenizer"] = STANFORD if used == "ptb" else f"nltk {version('nltk')}"
    # Only if Java has computed something: its version takes another start of it.
    if used == "ptb" or results.keys() & programs.keys():
        versions["java"] = java_version(_JAVA_SECONDS)
    if "METEOR" in results:
        versions["METEOR"] = "1.5"
    results |= of_files
    return ScoringResult(
        scores={name: result.value for name, result in results.items()},
        statistics={name: result.statistic for name, result in results.items()},
        tokenizer=used,
        notes=tuple(notes),
        versions=versions,
        period_appended=appended if of_files else None,
    )


def _tokenize(
    texts: Sequence[str], tokenizer: TokenizerName, notes: list[str]
) -> tuple[list[str], str, bool]:
    """Return the tokenized captions, the tokenizer used, and whether Java hangs.

    For ``auto`` a note gives the reason of another tokenizer than PTB.
    """
    hangs = False
    if tokenizer not in ("auto", "ptb", "simple"):
        raise EvaluationError(
            f"`tokenizer` must be auto, ptb or simple. Received: {tokenizer!r}"
        )
    if tokenizer != "simple":
        try:
            return ptb_tokenize(texts, _JAVA_SECONDS), "ptb", hangs
        except SetupError as error:
            if tokenizer == "ptb":
                raise
            # run_java keeps the timeout as the cause of its error.
            hangs = isinstance(error.__cause__, subprocess.TimeoutExpired)
            notes.append(
                f"simple tokenizer, not PTB, so scores differ slightly: {error}"
            )
    return [" ".join(tokenize(text)) for text in texts], "simple", hangs


def validation_scores(
    captions: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[Sequence[str]]],
) -> dict[str, float]:
    """Score tokenized captions during training, without Java.

    It takes about 0.6 s for 1,000 photos with 5 references.

    Args:
        captions: photo id -> words of the generated caption, possibly none.
        references: photo id -> tokenized reference captions; the same photos.

    Returns:
        ``BLEU-4`` (with brevity penalty) and ``CIDEr`` in percent.

    Raises:
        EvaluationError: a photo has no reference with a word.
    """
    hypotheses = [" ".join(words) for words in captions.values()]
    texts = [[" ".join(words) for words in references[photo]] for photo in captions]
    texts = _drop_empty(captions, texts)
    return {
        "BLEU-4": bleu(hypotheses, texts)["BLEU-4"].value,
        "CIDEr": cider(hypotheses, texts).value,
    }


def _drop_empty(photos: Mapping[str, object], references: Sequence[Sequence[str]]):
    """Return the references that contain a word.

    Raises:
        EvaluationError: a photo has no such reference.
    """
    kept = [[text for text in texts if text] for texts in references]
    missing = [photo for photo, texts in zip(photos, kept, strict=True) if not texts]
    if missing:
        raise EvaluationError(
            f"{len(missing)} photos have no reference with a word: {missing[0]} ...; "
            "remove or caption them"
        )
    return kept
