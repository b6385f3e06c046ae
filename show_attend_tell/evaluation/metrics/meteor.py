"""Compute METEOR 1.5 with the jar that pycocoevalcap ships."""

import math
from collections.abc import Sequence

from show_attend_tell.evaluation.metrics.java import jar_path, run_java
from show_attend_tell.runtime.errors import JavaError

_SECONDS_PER_CAPTION = 1  # aligning 5 references takes about 0.01 s on one core
_LINE_LIMIT = 1 << 12  # bytes; the statistics of a caption have about 100
# Scores follow from the statistics alone, which have a column for each of the four
# default modules. With four modules in their place that need no data, and the default
# weights, EVAL does not load the paraphrase table, which takes about 8 s.
_EVAL_MODULES = ("-m", "exact exact exact exact", "-w", "1.0 0.6 0.8 0.6")


def meteor(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> tuple[float, list[float]]:
    """Score tokenized captions; equals ``pycocoevalcap``'s ``Meteor``.

    The jar answers a SCORE line with the statistics of one caption, and an EVAL line
    with the scores computed from such statistics.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: references of each caption, in the same form.
        timeout: seconds for Java to start; time per caption is added.

    Returns:
        The score of the corpus and of each caption, 0 to 1.

    Raises:
        JavaError: Java is absent, fails, exceeds the time limit or prints something
            else.
    """
    seconds = timeout + _SECONDS_PER_CAPTION * len(hypotheses)
    questions = [
        " ||| ".join(["SCORE", *map(_field, texts), _field(hypothesis)])
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    # Named, because the jar fails to find its own file below a folder with a space.
    paraphrases = ("-a", jar_path("meteor", "data", "paraphrase-en.gz"))
    statistics = _answers(paraphrases, questions, len(questions), seconds)
    for line in statistics:
        for word in line.split() or [line]:
            _number(word)
    question = " ||| ".join(["EVAL", *statistics])
    lines = _answers(_EVAL_MODULES, [question], len(statistics) + 1, timeout)
    *each, corpus = map(_number, lines)
    return corpus, each


def _answers(
    options: Sequence[str], questions: list[str], count: int, seconds: float
) -> list[str]:
    """Return the `count` lines that METEOR prints for lines of standard input."""
    arguments = ["-Xmx2G", "-jar", jar_path("meteor", "meteor-1.5.jar")]
    arguments += ["-", "-", "-stdio", "-l", "en", "-norm", *options]
    text = "\n".join(questions) + "\n"
    done = run_java("METEOR", arguments, text, seconds, count * _LINE_LIMIT)
    lines = [line.strip() for line in done.text.split("\n")[:-1]]
    if len(lines) != count:
        raise JavaError(f"METEOR: java printed {len(lines)} lines instead of {count}")
    return lines


def _field(text: str) -> str:
    """Return the text without METEOR's separator, on one line."""
    return " ".join(text.replace("|||", "").split())


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise JavaError(f"METEOR: java printed {text[:60]!r} instead of a number")
    return value
