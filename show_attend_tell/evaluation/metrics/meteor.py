"""METEOR 1.5 by pycocoevalcap's jar, under our supervision."""

import math
from collections.abc import Sequence

from show_attend_tell.evaluation.metrics.java import JavaProcess, jar
from show_attend_tell.runtime.errors import JavaError


def meteor(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> tuple[float, list[float]]:
    """Score tokenized captions; equals ``pycocoevalcap``'s ``Meteor``.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: for each its references, in the same form.
        timeout: seconds within which each answer must come.

    Returns:
        The score of the corpus and of each caption, 0 to 1.

    Raises:
        JavaError: Java is absent, died, hung, or printed something else.
    """
    arguments = ["-Xmx2G", "-jar", jar("meteor", "meteor-1.5.jar")]
    arguments += ["-", "-", "-stdio", "-l", "en", "-norm"]
    # Named, because the jar fails to find its own file below a folder with a space.
    arguments += ["-a", jar("meteor", "data", "paraphrase-en.gz")]
    with JavaProcess("METEOR", arguments, timeout) as process:
        statistics = [
            _statistics(process, hypothesis, texts)
            for hypothesis, texts in zip(hypotheses, references, strict=True)
        ]
        first = process.ask(" ||| ".join(["EVAL", *statistics]))
        lines = [first] + [process.read_line() for _ in statistics]
    *each, corpus = [_number(line) for line in lines]
    return corpus, each


def _statistics(
    process: JavaProcess, hypothesis: str, references: Sequence[str]
) -> str:
    fields = [_field(text) for text in (*references, hypothesis)]
    line = process.ask(" ||| ".join(["SCORE", *fields]))
    for word in line.split() or [line]:
        _number(word)
    return line


def _field(text: str) -> str:
    """Return the text without METEOR's separator, on one line."""
    return " ".join(text.replace("|||", "").split())


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise JavaError(f"METEOR: java printed {text[:60]!r} in place of a number")
    return value
