"""Measure a trained reader on a split of words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from show_attend_tell.config import runs
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.data.words import WordData
from show_attend_tell.inference.visualization.attention_figure import save_figure
from show_attend_tell.runtime.errors import WordsError
from show_attend_tell.siblings.evaluation import Report
from show_attend_tell.siblings.models import load_model
from show_attend_tell.siblings.words.figures import draw_reading
from show_attend_tell.siblings.words.generation import Lexicon, Searcher
from show_attend_tell.siblings.words.reading import Reading, best_readings

DRAWN = 6  # crops whose attention is drawn
_NORMAL = 1.959964  # quantile of 97.5 % of the normal distribution


def evaluate(
    experiment: ReadExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    beam: int = 1,
    lexicon: Lexicon | None = None,
) -> Report:
    """Measure the word accuracy of a run's model; write ``scores.json`` and figures.

    Other data and other searches have other files: ``scores-<data>-<split>.json`` for
    words that are not in the folder of the training words, with ``-beam-<n>`` and
    ``-lexicon`` for another search.

    Args:
        experiment: see :mod:`siblings.evaluation`.
        work: see the same module.
        runs_folder: see the same module.
        split: ``train``, ``val``, ``test`` or ``all``.
        beam: hypotheses per crop.
        lexicon: the words that crops may show; any word by default.

    Raises:
        WordsError: the prepared words are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    name, run = experiment.data.name, Path(runs_folder) / experiment.name
    split, data = _open_split(Path(work) / name, split)
    model = load_model(run / runs.MODEL, "read", experiment)
    search = Searcher(model, beam, lexicon=lexicon)
    readings = best_readings(search, data.images)
    how = "greedy" if beam == 1 else f"beam {beam}"
    listed = "without a lexicon"
    if lexicon is not None:
        listed = "then the nearest word of a lexicon"
    scores = {
        "experiment": experiment.name,
        "data": name,
        "split": split,
        "words": len(data),
        **score_words([reading.word for reading in readings], data.words),
        "measured": f"{how}, capitals as small letters, {listed}",
    }
    trained_on = read_experiment_file(run / runs.SETTINGS).data.name
    usual = beam == 1 and lexicon is None and split in ("val", "test")
    suffix = "" if usual else f"-beam-{beam}" + "-lexicon" * (lexicon is not None)
    if not usual or name != trained_on:
        suffix = f"-{name}-{split}{suffix}"
    figures = _draw(run / f"figures{suffix}", readings)
    report = Report(scores, _describe(scores), figures)
    report.write(run, experiment, suffix)
    return report


def _describe(scores: dict) -> list[str]:
    """Return scores as lines to print."""
    low, high = scores["interval"]
    lengths = (
        f"{n}: {share:.1f} % of {count}"
        for n, (share, count) in scores["by_length"].items()
    )
    return [
        "{experiment}, {data}, {split}, {words:,} words".format(**scores),
        f"word accuracy {scores['word_accuracy']:.2f} % (95 % interval {low:.2f} to "
        f"{high:.2f}): {scores['measured']}",
        f"1 - normalised edit distance {scores['similarity']:.2f} %",
        f"character accuracy {scores['character_accuracy']:.2f} %",
        f"by length {', '.join(lengths)}",
    ]


def _open_split(prepared: Path, split: str | None) -> tuple[str, WordData]:
    """Open a split; by default test if there are such words, else val."""
    if split is not None:
        return split, WordData.open(prepared, split)
    try:
        return "test", WordData.open(prepared, "test")
    except WordsError:  # no such words, or a damaged folder
        return "val", WordData.open(prepared, "val")


def _draw(folder: Path, readings: Sequence[Reading]) -> list[Path]:
    """Write figures of the first words; none if the reader attends to no places."""
    files = []
    for row, reading in enumerate(readings[:DRAWN]):
        if reading.attention is not None and reading.characters:
            figure = draw_reading(reading)
            files += save_figure(figure, folder / f"word-{row}", ("png",))
    return files


def score_words(words: Sequence[str], right: Sequence[str]) -> dict:
    """Score N words against the right words; capitals count as small letters.

    Args:
        words: the words that a model read, in small letters.
        right: the right words, in small letters, of one character or more.

    Returns:
        Scores in percent: ``word_accuracy``, words that are exactly right; its
        ``interval``; ``similarity``, mean of 1 - edit distance / length of the longer
        word; ``character_accuracy``, 1 - sum of edit distances / characters of the
        right words, at least 0; and ``by_length``, from the characters of the right
        word to word accuracy and number of words.
    """
    pairs = list(zip(words, right, strict=True))
    exact = np.array([word == answer for word, answer in pairs])
    distances = np.array([Levenshtein.distance(*pair) for pair in pairs])
    longest = np.array([max(map(len, pair)) for pair in pairs])
    lengths = np.array([len(word) for word in right])
    wrong = min(1.0, distances.sum() / lengths.sum())
    return {
        "word_accuracy": 100 * float(exact.mean()),
        "interval": wilson_interval(int(exact.sum()), len(exact)),
        "similarity": 100 * float(np.mean(1 - distances / longest)),
        "character_accuracy": 100 * float(1 - wrong),
        "by_length": {
            int(n): (100 * float(exact[lengths == n].mean()), int((lengths == n).sum()))
            for n in np.unique(lengths)
        },
    }


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of independent trials, in percent.

    Wilson's score interval, JASA 22 (1927), which stays inside 0 and 100.

    Args:
        right: number of successes.
        count: number of trials.
    """
    p, z2 = right / count, _NORMAL**2
    centre = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = _NORMAL * np.sqrt(p * (1 - p) / count + z2 / (4 * count**2))
    half = half / (1 + z2 / count)
    return 100 * max(0.0, float(centre - half)), 100 * min(1.0, float(centre + half))
