"""Score the tokens of the files, probably as Table 1 of the paper does.

The authors' scripts pass the tokens of their files to the scorer: the final period is a
word, and there is no PTB tokenizer, which drops it. A period that ends the caption and
every reference raises BLEU. That Table 1 was scored so is likely, but not proven: the
script that made it was not published. Here both sides are lower case.

A captioner trained without punctuation writes no period; one is then appended to each
of its captions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from show_attend_tell.data.vocabulary import tokenize_as_written
from show_attend_tell.evaluation.metrics.bootstrap import Statistic
from show_attend_tell.evaluation.metrics.ngrams import bleu, bleu_statistics

PERIOD = "."
SUFFIX = "-files"  # of the names of these scores
FILE_TOKEN_BLEU = tuple(
    f"BLEU-{n}{penalty}{SUFFIX}" for penalty in ("", "-no-bp") for n in range(1, 5)
)


class FileTokenBleu(NamedTuple):
    """BLEU of the tokens of the files.

    Attributes:
        scores: :data:`FILE_TOKEN_BLEU` -> percent; empty if no reference has a period.
        statistics: the statistic of each score.
        period_appended: whether a period was appended to the captions.
    """

    scores: dict[str, float]
    statistics: dict[str, Statistic]
    period_appended: bool


def file_token_bleu(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> FileTokenBleu:
    """Compute BLEU of lower-case tokens, the final period included.

    Args:
        captions: photo id -> caption.
        references: photo id -> raw captions of the same photos, not all empty.
    """
    words = [tokenize_as_written(captions[photo]) for photo in captions]
    texts = [list(map(tokenize_as_written, references[photo])) for photo in captions]
    texts = [list(filter(None, of_photo)) for of_photo in texts]
    appended = not any(tokens[-1:] == [PERIOD] for tokens in words)
    if not any(tokens[-1] == PERIOD for of_photo in texts for tokens in of_photo):
        return FileTokenBleu({}, {}, appended)
    if appended:
        words = [[*tokens, PERIOD] for tokens in words]
    hypotheses = [" ".join(tokens) for tokens in words]
    joined = [[" ".join(tokens) for tokens in of_photo] for of_photo in texts]
    penalised, plain, _ = bleu(hypotheses, joined)
    values = [100 * float(value) for value in (*penalised, *plain)]
    statistics = bleu_statistics(hypotheses, joined).items()
    return FileTokenBleu(
        scores=dict(zip(FILE_TOKEN_BLEU, values, strict=True)),
        statistics={f"{name}{SUFFIX}": statistic for name, statistic in statistics},
        period_appended=appended,
    )
