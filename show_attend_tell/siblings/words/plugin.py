"""Declare the plug-in of words: a reader, the verb ``read`` and the tab of words.

This module is loaded by commands that need no reader; what takes time to import is
imported by its functions.
"""

from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from show_attend_tell.runtime.plugins import Finding, Plugin, Tab, Task
from show_attend_tell.siblings.words.commands import evaluation_lexicon, read


def _settings() -> type:
    from show_attend_tell.siblings.words.settings import ReadExperiment

    return ReadExperiment


def _prepare_iiit5k(preparation):
    from show_attend_tell.siblings.words.iiit5k import prepare_iiit5k

    return prepare_iiit5k(preparation)


def _prepare_rendered_words(preparation):
    from show_attend_tell.siblings.words.rendering.prepare import prepare_rendered_words

    return prepare_rendered_words(preparation)


def _prepare_table(preparation):
    from show_attend_tell.siblings.words.table import prepare_table

    return prepare_table(preparation)


def _train(*arguments, **options):
    from show_attend_tell.siblings.words.training import train

    return train(*arguments, **options)


def _verify(*arguments) -> None:
    from show_attend_tell.siblings.words.training import verify

    verify(*arguments)


def _evaluate(experiment, work, runs, split, options) -> list[str]:
    """Measure a reader with each beam width."""
    from show_attend_tell.siblings.words.evaluation import evaluate

    file = options["lexicon"]
    lines = []
    for beam in options["beams"] or (1,):
        report = evaluate(experiment, work, runs, split, beam=beam, lexicon=file)
        lines += report.lines()
    return lines


def _load_model(path: Path):
    from show_attend_tell.siblings.words.models import READERS

    return READERS.load(path)


def _convert_model(model, source: Path, target: Path) -> None:
    from show_attend_tell.siblings.common.conversion import convert_model
    from show_attend_tell.siblings.words.models import READERS

    convert_model(READERS, model, source, target)


def _make_router(queue):
    from show_attend_tell.siblings.words.tab import make_router

    return make_router(queue)


def _check_rendering() -> Iterator[Finding]:
    """Report whether the extra for rendered words is installed."""
    fonts = len(entry_points(group="fontpkg.family"))
    if fonts and find_spec("wordfreq") is not None:
        yield "OK", f"rendered words: {fonts} font packages, wordfreq"
    else:
        yield (
            "note",
            "rendered words: few fonts, no list of frequent words; run pip install "
            "'show-attend-tell[words]'",
        )


_READING = Task(
    name="read",
    described="that reads words",
    settings=_settings,
    prepare={
        "iiit5k": _prepare_iiit5k,
        "word_table": _prepare_table,
        "words": _prepare_rendered_words,
    },
    train=_train,
    verify=_verify,
    evaluate=_evaluate,
    load_model=_load_model,
    convert_model=_convert_model,
    models=frozenset({"Reader"}),
    accepts={
        "train": frozenset({"--init-from"}),
        "eval": frozenset({"--beam", "--split train", "--split all"}),
    },
    evaluate_options=(evaluation_lexicon,),
)
_TAB = Tab(
    name="reading",
    title="Words",
    intro="Another model that attends: it reads the word of a crop, one character "
    "after the other. Capitals are read as small letters.",
    folder=Path(__file__).parent / "static",
    router=_make_router,
    scripts=("reading.js",),
    styles=("reading.css",),
    requires=("keras",),
    remedy="pip install 'show-attend-tell[train]'",
)

plugin = Plugin(
    name="words", tasks=(_READING,), commands=(read,), tab=_TAB, doctor=_check_rendering
)
