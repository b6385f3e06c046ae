"""Every score of a set of captions in one report."""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import islice

from show_attend_tell.evaluation.metrics.inputs import (
    check_ids,
    check_texts,
    drop_empty,
)
from show_attend_tell.evaluation.metrics.java import java_version
from show_attend_tell.evaluation.metrics.meteor import meteor
from show_attend_tell.evaluation.metrics.ngrams import bleu, cider, rouge_l
from show_attend_tell.evaluation.metrics.report import Report
from show_attend_tell.evaluation.metrics.spice import spice as spice_f_score
from show_attend_tell.evaluation.metrics.tokenization import (
    STANFORD,
    TokenizerName,
    tokenize_all,
)
from show_attend_tell.runtime.errors import JavaError

logger = logging.getLogger(__name__)


def score(
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokenizer: TokenizerName = "auto",
    spice: bool = False,
    java_timeout: float = 120.0,
) -> Report:
    """Score one caption per photo against its references.

    Without Java, METEOR is left out with a note and the other scores still come.

    Args:
        captions: photo id -> its generated caption; an empty one scores about 0.
        references: photo id -> its true captions, raw text; the same photos.
        tokenizer: ``ptb`` (Stanford's, by Java, what published scores use),
            ``simple`` (no Java) or ``auto`` (the first if it works).
        spice: also compute SPICE, which needs a separate download.
        java_timeout: seconds within which Java must give each answer.

    Raises:
        MetricsError: nothing to score, the photos differ, a photo has no usable
            reference, or ``tokenizer="ptb"`` does not work.
    """
    check_ids(captions, references)
    check_texts(captions, references)
    ids = list(captions)
    words, used, notes = _tokenized(ids, captions, references, tokenizer, java_timeout)
    scores, each = _without_java(*words)
    if len(ids) == 1:
        notes.append("CIDEr of a single photo is 0 by definition")
    result = _attempt(notes, "METEOR", meteor, *words, java_timeout)
    if result is not None:
        scores["METEOR"], each["METEOR"] = result
    if spice:
        result = _attempt(notes, "SPICE", spice_f_score, *words, java_timeout)
        if result is not None:
            scores["SPICE"] = result
    for note in notes:
        logger.warning("%s", note)
    return Report(
        scores={name: 100 * float(value) for name, value in scores.items()},
        tokenizer=used,
        notes=tuple(notes),
        versions=_versions(used, scores, java_timeout),
        per_caption={
            name: {photo: 100 * v for photo, v in zip(ids, values, strict=True)}
            for name, values in each.items()
        },
    )


def _tokenized(
    ids: Sequence[str],
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokenizer: TokenizerName,
    timeout: float,
) -> tuple[tuple[list[str], list[list[str]]], str, list[str]]:
    """Tokenize captions and references in one go.

    Returns:
        (captions, references of each), the tokenizer used, notes.
    """
    raw = [captions[photo] for photo in ids]
    raw += [text for photo in ids for text in references[photo]]
    tokenized, used, notes = tokenize_all(raw, tokenizer, timeout)
    hypotheses, rest = tokenized[: len(ids)], iter(tokenized[len(ids) :])
    texts = [list(islice(rest, len(references[photo]))) for photo in ids]
    kept = drop_empty(ids, texts)
    dropped = sum(map(len, texts)) - sum(map(len, kept))
    if dropped:
        notes = [*notes, f"{dropped} references without a word were left out"]
    return (hypotheses, kept), used, list(notes)


def _without_java(
    hypotheses: list[str], references: list[list[str]]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the scores that need no Java and those of each caption, 0 to 1."""
    penalised, plain, bleu_each = bleu(hypotheses, references)
    rouge, rouge_each = rouge_l(hypotheses, references)
    consensus, cider_each = cider(hypotheses, references)
    scores = {f"BLEU-{n}": value for n, value in enumerate(penalised, 1)}
    scores |= {f"BLEU-{n}-no-bp": value for n, value in enumerate(plain, 1)}
    scores |= {"ROUGE-L": rouge, "CIDEr": consensus}
    each = {"BLEU-4": bleu_each, "ROUGE-L": rouge_each, "CIDEr": cider_each}
    return scores, each


def _attempt(notes: list[str], name: str, metric: Callable, *arguments: object):
    """Return the metric's result, or None and a note when Java lets it down."""
    try:
        return metric(*arguments)
    except JavaError as error:
        notes.append(f"no {name}: {error}")
        return None


def _versions(used: str, scores: Mapping[str, float], timeout: float) -> dict[str, str]:
    versions = {"pycocoevalcap": version("pycocoevalcap")}
    versions["tokenizer"] = STANFORD if used == "ptb" else f"nltk {version('nltk')}"
    if used == "ptb" or scores.keys() & {"METEOR", "SPICE"}:
        versions["java"] = java_version(timeout)
    if "METEOR" in scores:
        versions["METEOR"] = "1.5"
    return versions
