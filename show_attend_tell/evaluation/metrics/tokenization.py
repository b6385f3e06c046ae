"""Tokenize captions for the scorers, with Stanford's tokenizer or without Java."""

from collections.abc import Sequence
from typing import Literal

from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation.metrics.java import jar_path, run_java
from show_attend_tell.runtime.errors import JavaError, MetricsError

TokenizerName = Literal["auto", "ptb", "simple"]

STANFORD = "stanford-corenlp-3.4.1"
# What the COCO evaluation drops: PUNCTUATIONS of pycocoevalcap's ptbtokenizer.py.
_PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ","]
    + [":", "-", "--", "...", ";"]
)


def ptb_tokenize(texts: Sequence[str], timeout: float) -> list[str]:
    """Tokenize with Stanford's PTBTokenizer, as the COCO evaluation does.

    Args:
        texts: captions as written; line breaks count as spaces.
        timeout: seconds for all captions together.

    Returns:
        The lower-case words of each caption without punctuation, joined by spaces.

    Raises:
        JavaError: Java is absent, fails or exceeds the time limit.
    """
    lines = [" ".join(text.split()) for text in texts]
    full = [line for line in lines if line]
    if not full:
        return lines
    arguments = ["-cp", jar_path("tokenizer", f"{STANFORD}.jar")]
    arguments += ["edu.stanford.nlp.process.PTBTokenizer", "-preserveLines"]
    arguments += ["-lowerCase"]
    source = "\n".join(full) + "\n"
    limit = 16 * len(source) + 4096  # a bracket becomes -lrb-, a letter 4 bytes
    done = run_java("PTB tokenizer", arguments, source, timeout, limit)
    answers = done.text.split("\n")[:-1]
    if len(answers) != len(full):
        raise JavaError(
            f"PTB tokenizer: java printed {len(answers)} lines for {len(full)} captions"
        )
    answer = iter(answers)
    return [_without_punctuation(next(answer)) if line else "" for line in lines]


def _without_punctuation(line: str) -> str:
    words = line.rstrip().split(" ")
    return " ".join(word for word in words if word not in _PUNCTUATION)


def tokenize_all(
    texts: Sequence[str], tokenizer: TokenizerName, timeout: float
) -> tuple[list[str], str, list[str]]:
    """Tokenize captions with the chosen tokenizer.

    Args:
        texts: captions as written.
        tokenizer: ``ptb`` (needs Java), ``simple`` (does not), or ``auto``: ``ptb``
            if Java works, else ``simple``.
        timeout: seconds for Java.

    Returns:
        The tokenized captions, the tokenizer used, and notes.

    Raises:
        MetricsError: the name is unknown, or ``ptb`` fails.
    """
    if tokenizer not in ("auto", "ptb", "simple"):
        raise MetricsError(
            f"`tokenizer` must be auto, ptb or simple. Received: {tokenizer!r}"
        )
    notes = []
    if tokenizer != "simple":
        try:
            return ptb_tokenize(texts, timeout), "ptb", notes
        except JavaError as error:
            if tokenizer == "ptb":
                raise
            notes = [f"simple tokenizer, not PTB, so scores differ slightly: {error}"]
    return [" ".join(tokenize(text)) for text in texts], "simple", notes
