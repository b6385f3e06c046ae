"""Measure a trained reader on a split of words."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from show_attend_tell.config import runs
from show_attend_tell.config.settings import read_experiment_file
from show_attend_tell.config.words import ReadExperiment
from show_attend_tell.data.words import WordData
from show_attend_tell.inference.visualization.attention_figure import save_figure
from show_attend_tell.runtime.errors import WordsError
from show_attend_tell.siblings.evaluation import write_scores
from show_attend_tell.siblings.words.figures import draw_reading
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.lexicon import Lexicon
from show_attend_tell.siblings.words.reading import Reading, best_readings
from show_attend_tell.siblings.words.scoring import score_words
from show_attend_tell.siblings.words.task import load_model

DRAWN = 6  # crops whose attention is drawn
_LEXICON = ", then the nearest word of a lexicon"


@dataclass(frozen=True)
class ReadReport:
    """The scores of a reader, in percent; see :class:`scoring.WordScores`."""

    experiment: str
    data: str  # name of the prepared folder
    split: str
    words: int  # number of words
    word_accuracy: float  # the main figure
    interval: tuple[float, float]
    similarity: float
    character_accuracy: float
    by_length: dict[int, tuple[float, int]]
    measured: str  # how it was measured
    figures: list[Path] = field(default_factory=list)  # files of the drawn attention

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        low, high = self.interval
        lengths = (
            f"{n}: {share:.1f} % of {count}"
            for n, (share, count) in self.by_length.items()
        )
        return [
            f"{self.experiment}, {self.data}, {self.split}, {self.words:,} words",
            f"word accuracy {self.word_accuracy:.2f} % (95 % interval {low:.2f} to "
            f"{high:.2f}): {self.measured}",
            f"1 - normalised edit distance {self.similarity:.2f} %",
            f"character accuracy {self.character_accuracy:.2f} %",
            f"by length {', '.join(lengths)}",
            *map(str, self.figures),
        ]


def evaluate(
    experiment: ReadExperiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    split: str | None = None,
    beam: int = 1,
    lexicon: Lexicon | None = None,
) -> ReadReport:
    """Measure the word accuracy of a run's model; write ``scores.json`` and figures.

    Every other way to measure has a file of its own: ``scores-<data>-<split>.json`` for
    words of another folder than the training's, with ``-beam-<n>`` and ``-lexicon`` for
    another search.

    Args:
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder.
        split: ``train``, ``val``, ``test`` or ``all``; by default test if there are
            such words, else val.
        beam: hypotheses per crop.
        lexicon: words, one of which each crop shows; none by default.

    Raises:
        WordsError: the prepared words are absent, damaged, or not of the split.
        ModelFileError: the model is absent, damaged or of other settings.
    """
    prepared, run = Path(work) / experiment.data.name, Path(runs_folder)
    run /= experiment.name
    split, data = _open_split(prepared, split)
    search = Searcher(load_model(run / runs.MODEL, experiment), beam)
    readings = best_readings(search, data.images, lexicon)
    scores = score_words([reading.word for reading in readings], data.words)
    how = "greedy" if beam == 1 else f"beam {beam}"
    report = ReadReport(
        experiment=experiment.name,
        data=experiment.data.name,
        split=split,
        words=len(data),
        **dataclasses.asdict(scores),
        measured=f"{how}, capitals as small letters"
        + (_LEXICON if lexicon else ", without a lexicon"),
    )
    trained_on = read_experiment_file(run / runs.SETTINGS).data.name
    usual = beam == 1 and lexicon is None and split in ("val", "test")
    suffix = "" if usual else f"-beam-{beam}" + "-lexicon" * (lexicon is not None)
    if not usual or experiment.data.name != trained_on:
        suffix = f"-{experiment.data.name}-{split}{suffix}"
    report.figures.extend(_draw(run / f"figures{suffix}", readings))
    write_scores(run, experiment, report, suffix)
    return report


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
