"""Run the Java programs that pycocoevalcap ships: PTB tokenizer, METEOR 1.5, SPICE."""

import json
import logging
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pycocoevalcap

from show_attend_tell.data.unicode_text import plain_punctuation, visible_text
from show_attend_tell.evaluation.metrics.bootstrap import (
    Scored,
    Statistic,
    mean_score,
)
from show_attend_tell.runtime.errors import SetupError

logger = logging.getLogger(__name__)

# Numbers with a decimal point and text in UTF-8, whatever the user's locale.
_FLAGS = (
    "-Duser.language=en -Duser.country=US -Duser.language.format=en "
    "-Duser.country.format=US -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8"
)
# seconds without a sign of life before the first line about a program, and the others
_FIRST_LINE = 5.0
_NEXT_LINE = 15.0
_MESSAGE_LIMIT = 200  # characters of a line of standard error that are quoted

STANFORD = "stanford-corenlp-3.4.1"
# What the COCO evaluation drops: PUNCTUATIONS of pycocoevalcap's ptbtokenizer.py.
_PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ","]
    + [":", "-", "--", "...", ";"]
)

_METEOR_SECONDS = 1  # a caption; aligning 5 references takes about 0.01 s on one core
# Parameters and module weights of English in METEOR 1.5, Denkowski and Lavie (2014).
_ALPHA = 0.85
_BETA = 0.2
_GAMMA = 0.6
_DELTA = 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
_COLUMNS = 23  # statistics of a caption
# Scores follow from the statistics alone, which have a column for each of the four
# default modules. With four modules in their place that need no data, and the default
# weights, EVAL does not load the paraphrase table, which takes about 8 s.
_EVAL_MODULES = ("-m", "exact exact exact exact", "-w", "1.0 0.6 0.8 0.6")

_CORENLP = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
_SPICE_SECONDS = 2  # a caption, to parse 5 references on a slow core


def run_java(
    name: str, arguments: Sequence[str], text: str, timeout: float
) -> tuple[str, list[str]]:
    """Run a Java program to its end; kill it at the time limit and on Ctrl-C.

    Args:
        name: name of the program in errors.
        arguments: arguments of ``java``.
        text: the whole standard input.
        timeout: seconds until the program is killed.

    Returns:
        Standard output, and the program's own lines of standard error.

    Raises:
        SetupError: Java is absent or cannot be started, or the program fails or exceeds
            `timeout`.
    """
    java = shutil.which("java")
    if java is None:
        raise SetupError(f"{name} needs Java: no `java` on the PATH, install it")
    # _JAVA_OPTIONS overrules the command line, and its last value of a flag counts.
    flags = f"{os.environ.get('_JAVA_OPTIONS', '')} {_FLAGS}"
    try:
        # A file: `communicate` forgets the rest of a pipe's input after a timeout.
        with tempfile.TemporaryFile() as given:
            given.write(text.encode("utf-8", "replace"))
            given.seek(0)
            process = subprocess.Popen(
                [java, *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "_JAVA_OPTIONS": flags},
            )
    except OSError as error:  # also of a full disk
        raise SetupError(f"{name}: {java} cannot be run: {error}") from None
    # Popen's context closes the pipes and waits for the end, also after a kill.
    with process:
        try:
            printed, faults = _wait_for(process, name, timeout)
        except subprocess.TimeoutExpired as error:
            process.kill()
            # By this cause scoring.py knows that Java hangs, and does not try METEOR.
            raise SetupError(f"{name}: java did not end in {timeout:g} s") from error
        except BaseException:  # Ctrl-C too
            process.kill()
            process.wait()
            raise
    lines = faults.decode("utf-8", "replace").splitlines()
    messages = [line.strip()[:_MESSAGE_LIMIT] for line in lines]
    # Java announces the variable: "Picked up _JAVA_OPTIONS: ...".
    messages = [m for m in messages if m and not m.startswith("Picked up ")]
    if process.returncode != 0:
        # The last line of a stack trace names a method; the exception is above it.
        named = [m for m in messages if "Exception" in m or "Error" in m]
        reason = (named[:1] or messages[-1:] or ["it gave no reason"])[0]
        raise SetupError(
            f"{name}: java stopped with status {process.returncode}: {reason}"
        )
    return printed.decode("utf-8", "replace"), messages


def _wait_for(
    process: subprocess.Popen, name: str, timeout: float
) -> tuple[bytes, bytes]:
    """Return what a program prints; say at times that it is waited for.

    Raises:
        subprocess.TimeoutExpired: the program does not end in `timeout` seconds.
    """
    started = time.monotonic()
    pause = _FIRST_LINE
    while True:
        left = timeout - (time.monotonic() - started)
        try:
            return process.communicate(timeout=max(0, min(pause, left)))
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            if elapsed >= timeout:
                raise
            logger.info(
                "%s: waiting for java, %.0f s of at most %.0f", name, elapsed, timeout
            )
            pause = _NEXT_LINE


def java_version(timeout: float = 30) -> str:
    """Return the first line of ``java -version``.

    Raises:
        SetupError: see :func:`run_java`.
    """
    _, messages = run_java("java -version", ["-version"], "", timeout)
    return (messages or ["unknown"])[0]


def _jar(*parts: str) -> str:
    """Return the path of a file inside pycocoevalcap."""
    return os.path.join(pycocoevalcap.__path__[0], *parts)


def _answers(
    name: str,
    arguments: list[str],
    questions: Sequence[str],
    count: int,
    seconds: float,
) -> list[str]:
    """Return the `count` lines that a program prints for lines of standard input."""
    text = "\n".join(questions) + "\n"
    printed, _ = run_java(name, arguments, text, seconds)
    lines = printed.split("\n")[:-1]
    if len(lines) != count:
        raise SetupError(f"{name}: java printed {len(lines)} lines instead of {count}")
    return lines


def ptb_tokenize(texts: Sequence[str], timeout: float) -> list[str]:
    """Tokenize with Stanford's PTBTokenizer, as the COCO evaluation does.

    Texts are normalised first: equal-looking captions get equal words, and punctuation
    beyond ASCII, of which PTBTokenizer keeps a part as words, is dropped.

    Args:
        texts: captions as written; line breaks count as spaces.
        timeout: seconds for all captions together.

    Returns:
        The lower-case words of each caption without punctuation, joined by spaces.

    Raises:
        SetupError: Java is absent, fails or exceeds the time limit.
    """
    visible = (plain_punctuation(visible_text(text)) for text in texts)
    lines = [" ".join(text.split()) for text in visible]
    full = [line for line in lines if line]
    if not full:
        return lines
    arguments = ["-cp", _jar("tokenizer", f"{STANFORD}.jar")]
    arguments += ["edu.stanford.nlp.process.PTBTokenizer", "-preserveLines"]
    arguments += ["-lowerCase"]
    answers = iter(_answers("PTB tokenizer", arguments, full, len(full), timeout))
    tokens = (next(answers).rstrip().split(" ") if line else () for line in lines)
    return [" ".join(w for w in words if w not in _PUNCTUATION) for words in tokens]


def meteor(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> Scored:
    """Compute METEOR of tokenized captions; equals ``pycocoevalcap``'s ``Meteor``.

    The jar answers a SCORE line with the statistics of one caption, and an EVAL line
    with the scores computed from such statistics; the last is the corpus score.

    Args:
        hypotheses: N captions, words joined by spaces.
        references: references of each caption, in the same form.
        timeout: seconds for Java to start; time per caption is added.

    Raises:
        SetupError: Java is absent, fails or exceeds the time limit, or its output is
            malformed.
    """
    seconds = timeout + _METEOR_SECONDS * len(hypotheses)
    questions = [
        " ||| ".join(["SCORE", *map(_field, texts), _field(hypothesis)])
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    # The options of pycocoevalcap's Meteor, for the same scores.
    program = ["-Xmx2G", "-jar", _jar("meteor", "meteor-1.5.jar")]
    program += ["-", "-", "-stdio", "-l", "en", "-norm"]
    # Named, because the jar fails to find its own file below a folder with a space.
    aligned = [*program, "-a", _jar("meteor", "data", "paraphrase-en.gz")]
    lines = _answers("METEOR", aligned, questions, len(questions), seconds)
    values = np.array([_numbers(line, _COLUMNS) for line in lines])  # (N, 23)
    question = " ||| ".join(["EVAL", *map(str.strip, lines)])
    program += _EVAL_MODULES
    scores = _answers("METEOR", program, [question], len(lines) + 1, timeout)
    return Scored(100 * _numbers(scores[-1], 1)[0], meteor_statistic(values))


def _field(text: str) -> str:
    """Return the text without METEOR's separator, on one line."""
    return " ".join(text.replace("|||", "").split())


def _numbers(line: str, count: int) -> list[float]:
    """Return the `count` finite numbers of a line."""
    try:
        numbers = list(map(float, line.split()))
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise SetupError(
            f"METEOR: java printed {line[:60]!r} instead of {count} numbers"
        )
    return numbers


def meteor_statistic(values: np.ndarray) -> Statistic:
    """Return the statistic of the corpus score in percent.

    Args:
        values: (N, 23) of the captions, as the jar prints them: length of the caption
            and its reference; their function words; for each of four modules the
            matched content words of caption and reference and their matched function
            words; chunks; matched words of caption and reference.
    """
    values = values.copy()
    # (N, 4 modules, content or function words, caption or reference) -> (N, 2)
    matches = values[:, 4:20].reshape(-1, 4, 2, 2).sum(axis=(1, 2))  # (N, 2)
    # As in the jar, the chunk of a caption that equals its reference is not summed.
    whole = (matches == values[:, :2]).all(axis=1) & (values[:, 20] == 1)
    values[whole, 20] = 0
    return Statistic(values, _meteor_of_sums)


def _meteor_of_sums(sums: np.ndarray) -> np.ndarray:
    """Map (..., 23) summed statistics to METEOR in percent.

    F = P R / (alpha P + (1 - alpha) R) and (1 - gamma (chunks / matches)^beta) F, in
    which content words have the weight delta and function words 1 - delta.
    """
    kinds = np.array([_DELTA, 1 - _DELTA])  # content words, function words
    lengths = sums[..., :2]
    function = sums[..., 2:4]
    total = _DELTA * (lengths - function) + (1 - _DELTA) * function  # (..., 2)
    modules = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 2, 2)
    matched = np.einsum("...mkt,m,k->...t", modules, _WEIGHTS, kinds)  # (..., 2)
    with np.errstate(divide="ignore", invalid="ignore"):  # no word, or no match
        precision, recall = np.moveaxis(matched / total, -1, 0)
        # F with numerator and denominator divided by P R: without a match it is
        # 1 / infinity = 0, where the form of the docstring is 0 / 0.
        f_mean = 1 / ((1 - _ALPHA) / precision + _ALPHA / recall)
        fragments = sums[..., 20] / (sums[..., 21:23].sum(axis=-1) / 2)
        score = f_mean * (1 - _GAMMA * fragments**_BETA)
    return 100 * np.maximum(np.nan_to_num(score), 0)


def spice(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float
) -> Scored:
    """Compute the mean SPICE F-score of captions; see :func:`meteor` for the arguments.

    Raises:
        SetupError: Java or Stanford CoreNLP is absent, or the program fails.
    """
    program = _jar("spice", "spice-1.0.jar")
    if not all(Path(program).with_name("lib").joinpath(n).is_file() for n in _CORENLP):
        raise SetupError(
            "SPICE (AGPL) needs Stanford CoreNLP 3.6.0, about 400 MB: run "
            "`python -m pycocoevalcap.spice.get_stanford_models` once"
        )
    rows = [
        {"image_id": k, "test": hypothesis, "refs": list(texts)}
        for k, (hypothesis, texts) in enumerate(
            zip(hypotheses, references, strict=True)
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.json")
        target = Path(folder, "out.json")
        source.write_text(json.dumps(rows), encoding="utf-8")
        # The options of pycocoevalcap's Spice.
        arguments = ["-Xmx8G", "-jar", program, str(source), "-out", str(target)]
        arguments += ["-subset", "-silent"]
        run_java("SPICE", arguments, "", timeout + _SPICE_SECONDS * len(rows))
        try:
            results = json.loads(target.read_text(encoding="utf-8"))
            scores = [float(row["scores"]["All"]["f"]) for row in results]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise SetupError(f"SPICE: java wrote no usable scores: {error!r}") from None
    if len(scores) != len(rows) or not all(map(math.isfinite, scores)):
        raise SetupError(f"SPICE: java scored {len(scores)} captions of {len(rows)}")
    return mean_score(scores)
