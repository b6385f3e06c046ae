"""Declare the plug-in of digits: RAM, DRAW, the verb ``draw`` and the tab of digits.

This module is loaded by commands that need none of the models; what takes time to
import is imported by its functions.
"""

from pathlib import Path

from show_attend_tell.runtime.plugins import Plugin, Tab, Task
from show_attend_tell.siblings.digits.commands import draw


def _classification_settings() -> type:
    from show_attend_tell.siblings.digits.settings import DigitExperiment

    return DigitExperiment


def _generation_settings() -> type:
    from show_attend_tell.siblings.digits.settings import GenerationExperiment

    return GenerationExperiment


def _prepare_mnist(preparation):
    from show_attend_tell.siblings.digits.mnist import prepare_mnist

    return prepare_mnist(preparation)


def _prepare_class_folders(preparation):
    from show_attend_tell.siblings.digits.class_folders import prepare_class_folders

    return prepare_class_folders(preparation)


def _train_classifier(*arguments, **options):
    from show_attend_tell.siblings.digits.ram.training import train

    return train(*arguments, **options)


def _verify_classifier(*arguments) -> None:
    from show_attend_tell.siblings.digits.ram.training import verify

    verify(*arguments)


def _train_generator(*arguments, **options):
    from show_attend_tell.siblings.digits.draw.training import train

    return train(*arguments, **options)


def _verify_generator(*arguments) -> None:
    from show_attend_tell.siblings.digits.draw.training import verify

    verify(*arguments)


def _evaluate_classifier(experiment, work, runs, split, options) -> list[str]:
    from show_attend_tell.siblings.digits.ram.evaluation import evaluate

    return evaluate(experiment, work, runs, split).lines()


def _evaluate_generator(experiment, work, runs, split, options) -> list[str]:
    from show_attend_tell.siblings.digits.draw.evaluation import evaluate

    return evaluate(experiment, work, runs, split).lines()


def _load_classifier(path: Path):
    from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS

    return CLASSIFIERS.load(path)


def _convert_classifier(model, source: Path, target: Path) -> None:
    from show_attend_tell.siblings.common.conversion import convert_model
    from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS

    convert_model(CLASSIFIERS, model, source, target)


def _load_generator(path: Path):
    from show_attend_tell.siblings.digits.draw.models import GENERATORS

    return GENERATORS.load(path)


def _convert_generator(model, source: Path, target: Path) -> None:
    from show_attend_tell.siblings.common.conversion import convert_model
    from show_attend_tell.siblings.digits.draw.models import GENERATORS

    convert_model(GENERATORS, model, source, target)


def _make_router(queue):
    from show_attend_tell.siblings.digits.tab import make_router

    return make_router(queue)


_LIMIT = {
    command: frozenset({"--limit"})
    for command in ("prepare", "features", "train", "eval")
}
_CLASSIFICATION = Task(
    name="classify",
    described="that classifies digits",
    settings=_classification_settings,
    prepare={"mnist": _prepare_mnist, "class_folders": _prepare_class_folders},
    train=_train_classifier,
    verify=_verify_classifier,
    evaluate=_evaluate_classifier,
    load_model=_load_classifier,
    convert_model=_convert_classifier,
    # Names, because the classes would import Keras; a test compares both.
    models=frozenset({"RecurrentAttention", "PictureClassifier", "WindowClassifier"}),
    accepts=_LIMIT,
)
_GENERATION = Task(
    name="generate",
    described="that generates pictures",
    settings=_generation_settings,
    prepare={"mnist": _prepare_mnist},
    train=_train_generator,
    verify=_verify_generator,
    evaluate=_evaluate_generator,
    load_model=_load_generator,
    convert_model=_convert_generator,
    models=frozenset({"Draw"}),
    commands=frozenset({"draw"}),
    accepts=_LIMIT,
)
_TAB = Tab(
    name="digits",
    title="Digits",
    intro="Two other models that attend, trained on handwritten digits. RAM classifies "
    "a digit by a few glimpses and chooses where to look next; DRAW writes a new digit "
    "onto a canvas through a window that it moves.",
    folder=Path(__file__).parent / "static",
    router=_make_router,
    scripts=("digits_figures.js", "digits.js"),
    styles=("digits.css",),
    requires=("keras",),
    remedy="pip install 'show-attend-tell[train]'",
)

plugin = Plugin(
    name="digits", tasks=(_CLASSIFICATION, _GENERATION), commands=(draw,), tab=_TAB
)
