"""Measure a trained reader on a split of words."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.stats
from rapidfuzz.distance import Levenshtein

from show_attend_tell.config import runs
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.inference.visualization.attention_figure import save_figure
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.siblings.common.evaluation import Measured, Report, evaluate_run
from show_attend_tell.siblings.words.data import describe_characters, read_split
from show_attend_tell.siblings.words.figures import draw_reading
from show_attend_tell.siblings.words.generation import Lexicon, Searcher
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.reading import best_readings
from show_attend_tell.siblings.words.settings import ReadExperiment

DRAWN = 6  # crops whose attention is drawn


def measure(
    run: Measured[ReadExperiment], beam: int = 1, lexicon: Path | None = None
) -> Report:
    """Measure the word accuracy of a reader, and draw the attention of some words.

    Other data and other searches have other files: ``scores-<data>-<split>.json`` for
    words that are not in the folder of the training words, and for the splits ``train``
    and ``all``, with ``-beam-<n>`` and ``-lexicon`` for another search.

    Args:
        run: the model and its words.
        beam: see :class:`Searcher`.
        lexicon: file of the words that crops may show; any word by default.

    Raises:
        DataError: a word has a character outside of the model's alphabet, or the
            lexicon cannot be read.
    """
    name = run.experiment.data.name
    split = run.split
    data = run.data
    # From the run itself, because `--set data.name` names the words to measure.
    trained_on = read_experiment_file(run.folder / runs.SETTINGS).data.name
    characters = run.model.characters
    _require_alphabet(data.words, characters, run)
    words = None if lexicon is None else Lexicon.load(lexicon, characters)
    search = Searcher(run.model, beam, lexicon=words)
    readings = best_readings(search, data.images)
    search_name = "greedy" if beam == 1 else f"beam {beam}"
    lexicon_use = "without a lexicon"
    if lexicon is not None:
        lexicon_use = "then the nearest word of a lexicon"
    scores = {
        "data": name,
        "words": len(data),
        **score_words([reading.word for reading in readings], data.words),
        "measured": f"{search_name}, capitals as small letters, {lexicon_use}",
    }
    suffix = file_suffix(name, split, trained_on, beam, lexicon is not None)
    folder = run.folder / f"figures{suffix}"
    figures = []
    for row, reading in enumerate(readings[:DRAWN]):
        if reading.attention is not None and reading.characters:
            figure = draw_reading(reading)
            figures += save_figure(figure, folder / f"word-{row}", ("png",))
    head = f"{run.experiment.name}, {name}, {split}, {len(data):,} words"
    return Report(scores, [head, *_describe(scores)], figures, suffix)


evaluate = functools.partial(evaluate_run, measure, READERS, read_split)


def file_suffix(
    data: str, split: str, trained_on: str, beam: int, has_lexicon: bool
) -> str:
    """Return the end of the names of scores and figures, see :func:`measure`.

    It is empty for greedy words of the held-out data that the run was trained with.
    """
    search = ""
    if has_lexicon:
        search = f"-beam-{beam}-lexicon"
    elif beam != 1:
        search = f"-beam-{beam}"
    if not search and data == trained_on and split in ("val", "test"):
        return ""
    return f"-{data}-{split}{search}"


def _require_alphabet(
    words: Sequence[str], characters: str, run: Measured[ReadExperiment]
) -> None:
    """Raise a DataError if a model cannot write one of the words."""
    for word in words:
        odd = [character for character in word if character not in characters]
        if odd:
            raise DataError(
                f"{run.work / run.experiment.data.name}: the word {quote(word)} has "
                f"{quote(odd[0])}, which is not in the alphabet of "
                f"{run.folder / runs.MODEL}: {describe_characters(characters)}; "
                "measure a model that learned these words, or remove the word"
            )


def _describe(scores: dict) -> list[str]:
    """Return scores as lines to print, without their head."""
    low, high = scores["interval"]
    lengths = (
        f"{n}: {share:.1f} % of {count}"
        for n, (share, count) in scores["by_length"].items()
    )
    return [
        f"word accuracy {scores['word_accuracy']:.2f} % (95 % interval {low:.2f} to "
        f"{high:.2f}): {scores['measured']}",
        f"1 - normalised edit distance {scores['similarity']:.2f} %",
        f"character accuracy {scores['character_accuracy']:.2f} %",
        f"by length {', '.join(lengths)}",
    ]


def score_words(words: Sequence[str], right: Sequence[str]) -> dict:
    """Score N words against the right words; capitals count as small letters.

    Args:
        words: the words that a model read, in small letters.
        right: the right words, in small letters, of one character or more.

    Returns:
        Scores in percent: ``word_accuracy``, words that are exactly right; its 95 %
        ``interval``, Wilson's (JASA 22, 1927); ``similarity``, mean of 1 - edit
        distance / length of the longer word; ``character_accuracy``, 1 - sum of edit
        distances / characters of the right words, at least 0; and ``by_length``, from
        the characters of the right word to word accuracy and number of words.
    """
    pairs = list(zip(words, right, strict=True))
    exact = np.array([word == answer for word, answer in pairs])
    distances = np.array([Levenshtein.distance(word, answer) for word, answer in pairs])
    longest = np.array([max(map(len, pair)) for pair in pairs])
    lengths = np.array([len(word) for word in right])
    shares = scipy.stats.binomtest(int(exact.sum()), len(exact))
    interval = shares.proportion_ci(method="wilson")
    wrong = min(1.0, distances.sum() / lengths.sum())
    return {
        "word_accuracy": 100 * float(exact.mean()),
        "interval": (100 * interval.low, 100 * interval.high),
        "similarity": 100 * float(np.mean(1 - distances / longest)),
        "character_accuracy": 100 * float(1 - wrong),
        "by_length": {
            int(n): (100 * float(exact[lengths == n].mean()), int((lengths == n).sum()))
            for n in np.unique(lengths)
        },
    }
