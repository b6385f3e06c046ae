"""Compute METEOR 1.5 and, on request, SPICE with the jars that pycocoevalcap ships."""

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from show_attend_tell.evaluation.metrics.bootstrap import Statistic
from show_attend_tell.evaluation.metrics.java import jar_path, run_java
from show_attend_tell.runtime.errors import JavaError

_METEOR_SECONDS = 1  # a caption; aligning 5 references takes about 0.01 s on one core
_LINE_LIMIT = 1 << 12  # bytes; the statistics of a caption have about 100
# Parameters and module weights of English in METEOR 1.5, Denkowski and Lavie (2014).
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
_COLUMNS = 23  # statistics of a caption
# Scores follow from the statistics alone, which have a column for each of the four
# default modules. With four modules in their place that need no data, and the default
# weights, EVAL does not load the paraphrase table, which takes about 8 s.
_EVAL_MODULES = ("-m", "exact exact exact exact", "-w", "1.0 0.6 0.8 0.6")
_CORENLP = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
_OUTPUT_LIMIT = 1 << 20  # bytes; it runs with -silent
_SPICE_SECONDS = 2  # a caption, to parse 5 references on a slow core


class MeteorScores(NamedTuple):
    """METEOR of a set of captions.

    Attributes:
        corpus: score of the corpus, 0 to 1.
        each: score of each caption, 0 to 1.
        statistic: the statistics of each caption; its scores are in percent.
    """

    corpus: float
    each: list[float]
    statistic: Statistic


def meteor(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> MeteorScores:
    """Score tokenized captions; equals ``pycocoevalcap``'s ``Meteor``.

    The jar answers a SCORE line with the statistics of one caption, and an EVAL line
    with the scores computed from such statistics.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: references of each caption, in the same form.
        timeout: seconds for Java to start; time per caption is added.

    Raises:
        JavaError: Java is absent, fails, exceeds the time limit or prints something
            else.
    """
    seconds = timeout + _METEOR_SECONDS * len(hypotheses)
    questions = [
        " ||| ".join(["SCORE", *map(_field, texts), _field(hypothesis)])
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    # Named, because the jar fails to find its own file below a folder with a space.
    paraphrases = ("-a", jar_path("meteor", "data", "paraphrase-en.gz"))
    statistics = _answers(paraphrases, questions, len(questions), seconds)
    values = np.array([_columns(line) for line in statistics])  # (N, 23)
    question = " ||| ".join(["EVAL", *statistics])
    lines = _answers(_EVAL_MODULES, [question], len(statistics) + 1, timeout)
    *each, corpus = map(_number, lines)
    return MeteorScores(corpus, each, meteor_statistic(values))


def meteor_statistic(values: np.ndarray) -> Statistic:
    """Return the statistic of the corpus score in percent.

    Args:
        values: (N, 23) of the captions, as the jar prints them: length of the caption
            and its reference; their function words; for each of four modules the
            matched content words of caption and reference and their matched function
            words; chunks; matched words of caption and reference.
    """
    values = values.copy()
    matches = values[:, 4:20].reshape(-1, 4, 2, 2).sum(axis=(1, 2))  # (N, 2)
    # As in the jar, the chunk of a caption that equals its reference is not summed.
    whole = (matches == values[:, :2]).all(axis=1) & (values[:, 20] == 1)
    values[whole, 20] = 0
    return Statistic(values, _score_of_sums)


def _score_of_sums(sums: np.ndarray) -> np.ndarray:
    """Map (..., 23) summed statistics to METEOR in percent.

    F = P R / (alpha P + (1 - alpha) R) and (1 - gamma (chunks / matches)^beta) F, in
    which content words have the weight delta and function words 1 - delta.
    """
    kinds = np.array([_DELTA, 1 - _DELTA])  # content words, function words
    lengths, function = sums[..., :2], sums[..., 2:4]
    total = _DELTA * (lengths - function) + (1 - _DELTA) * function  # (..., 2)
    modules = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 2, 2)
    matched = np.einsum("...mkt,m,k->...t", modules, _WEIGHTS, kinds)  # (..., 2)
    with np.errstate(divide="ignore", invalid="ignore"):  # no word, or no match
        precision, recall = np.moveaxis(matched / total, -1, 0)
        f_mean = 1 / ((1 - _ALPHA) / precision + _ALPHA / recall)
        fragments = sums[..., 20] / (sums[..., 21:23].sum(axis=-1) / 2)
        score = f_mean * (1 - _GAMMA * fragments**_BETA)
    return 100 * np.maximum(np.nan_to_num(score), 0)


def _columns(line: str) -> list[float]:
    """Return the statistics of one caption."""
    numbers = [_number(word) for word in line.split() or [line]]
    if len(numbers) != _COLUMNS:
        raise JavaError(
            f"METEOR: java printed {len(numbers)} statistics instead of {_COLUMNS}"
        )
    return numbers


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


def spice(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> list[float]:
    """Return the SPICE F-score of each tokenized caption, 0 to 1.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: references of each caption, in the same form.
        timeout: seconds for Java to start; time per caption is added.

    Raises:
        JavaError: Java or Stanford CoreNLP is absent, or the program failed.
    """
    program = jar_path("spice", "spice-1.0.jar")
    if not all(Path(program).with_name("lib").joinpath(n).is_file() for n in _CORENLP):
        raise JavaError(
            "SPICE (AGPL) needs Stanford CoreNLP 3.6.0, about 400 MB: run "
            "`python -m pycocoevalcap.spice.get_stanford_models` once"
        )
    rows = [
        {"image_id": index, "test": hypothesis, "refs": list(texts)}
        for index, (hypothesis, texts) in enumerate(
            zip(hypotheses, references, strict=True)
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.json"), Path(folder, "out.json")
        source.write_text(json.dumps(rows), encoding="utf-8")
        arguments = ["-Xmx8G", "-jar", program, str(source), "-out", str(target)]
        arguments += ["-subset", "-silent"]
        seconds = timeout + _SPICE_SECONDS * len(rows)
        run_java("SPICE", arguments, "", seconds, _OUTPUT_LIMIT)
        return _read_scores(target, len(rows))


def _read_scores(path: Path, count: int) -> list[float]:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        values = [float(item["scores"]["All"]["f"]) for item in results]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise JavaError(f"SPICE: java wrote no usable scores: {error!r}") from None
    if len(values) != count or not all(map(math.isfinite, values)):
        raise JavaError(f"SPICE: java scored {len(values)} captions of {count}")
    return values
