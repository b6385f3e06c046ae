"""Map each task of an experiment to the functions that the verbs call.

:data:`TASKS` has an entry for each value of the key ``task``. The entries import their
modules when a verb runs, so that ``--help`` is fast.

To add a task, make a folder in ``siblings/`` with the files of ``siblings/ram/``, name
its models in :mod:`siblings.models`, its settings in ``_TASKS`` of
:mod:`config.settings`, its data in :data:`data_prep.sources.SOURCES`, and add an entry
to :data:`TASKS`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource


class Functions(NamedTuple):
    """The functions of a task, which the verbs call.

    ``load`` loads a model file. ``train`` has the arguments of
    :func:`training.train.train`. ``evaluate`` is called with the experiment, the work
    folder, the folder of runs, the split and the other options of ``eval``, a
    dictionary; it returns lines to print.
    """

    load: Callable
    train: Callable
    evaluate: Callable


@dataclass(frozen=True)
class Task:
    """Describe a task to the verbs.

    Attributes:
        described: the end of "needs an experiment ..." in usage errors.
        accepts: verbs, options and values of options that not every task accepts, such
            as ``draw``, ``eval --beam`` and ``eval --split all``. Every task accepts
            a verb or an option that no entry names.
        classes: names of the classes of its models.
        functions: imports and returns its functions.
        has_captions: whether its experiments have captions, and features of photos.
    """

    described: str
    accepts: frozenset[str]
    classes: frozenset[str]
    functions: Callable[[], Functions]
    has_captions: bool = False


def _caption() -> Functions:
    from show_attend_tell.models.saving import load_captioner
    from show_attend_tell.training.train import train

    return Functions(load_captioner, train, _evaluate_captions)


def _evaluate_captions(settings, work, runs, split, options) -> list[str]:
    from show_attend_tell.evaluation import evaluate as evaluation
    from show_attend_tell.evaluation.report import table

    scoring, file = {n: options[n] for n in ("tokenizer", "spice")}, options["captions"]
    if file is not None:
        return table([evaluation.score_file(file, settings, work, split, **scoring)])
    scoring |= {name: options[name] for name in ("mirror", "reranker", "boxes")}
    scoring["model"] = options["models"] or None
    reports = [
        evaluation.evaluate(settings, work, runs, split, beam, **scoring)
        for beam in dict.fromkeys(options["beams"] or (None,))
    ]
    return table(reports)


def _classify() -> Functions:
    from show_attend_tell.siblings.ram.evaluation import evaluate
    from show_attend_tell.siblings.ram.training import train

    return _of_sibling("classify", train, evaluate)


def _generate() -> Functions:
    from show_attend_tell.siblings.draw.evaluation import evaluate
    from show_attend_tell.siblings.draw.training import train

    return _of_sibling("generate", train, evaluate)


def _read() -> Functions:
    from show_attend_tell.siblings.words.evaluation import evaluate
    from show_attend_tell.siblings.words.generation import Lexicon
    from show_attend_tell.siblings.words.training import train

    functions = _of_sibling("read", train, evaluate)

    def evaluate_words(settings, work, runs, split, options) -> list[str]:
        file, lines = options["lexicon"], []
        lexicon = None if file is None else Lexicon.load(file)
        for beam in options["beams"] or (1,):
            lines += evaluate(settings, work, runs, split, beam, lexicon).lines()
        return lines

    return functions._replace(evaluate=evaluate_words)


def _of_sibling(task: str, train: Callable, evaluate: Callable) -> Functions:
    from show_attend_tell.siblings.models import load_model

    return Functions(
        load=functools.partial(load_model, task=task),
        train=train,
        evaluate=lambda *arguments: evaluate(*arguments[:-1]).lines(),
    )


# Uses of `train` in which several workers train one model.
JOINT, TF_CONFIG = "train --cluster without --seeds", "train TF_CONFIG"


def _accepts(verbs: dict[str, str]) -> frozenset[str]:
    """Return verbs with each of their options, which commas separate."""
    return frozenset(
        f"{verb} {option}".strip()
        for verb, options in verbs.items()
        for option in options.split(", ")
    )


TASKS = {
    "caption": Task(
        described="with captions",
        accepts=_accepts(
            {
                "average": "",
                "calibrate": "",
                "fit-reranker": "",
                "prepare": "--limit",
                "features": "--limit",
                "train": "--limit, --init-from",
                "eval": "--limit, --beam, --captions, --model, --mirror, --reranker, "
                "--boxes, --tokenizer, --spice",
                "export": "--format saved_model, --format litert, --format onnx, "
                "--beam, --accept-imagenet",
            }
        )
        | {JOINT, TF_CONFIG},
        classes=frozenset(["Captioner"]),
        functions=_caption,
        has_captions=True,
    ),
    "classify": Task(
        described="that classifies digits",
        accepts=frozenset(),
        classes=frozenset(
            ["RecurrentAttention", "PictureClassifier", "WindowClassifier"]
        ),
        functions=_classify,
    ),
    "generate": Task(
        described="that generates pictures",
        accepts=_accepts({"draw": ""}),
        classes=frozenset(["Draw"]),
        functions=_generate,
    ),
    "read": Task(
        described="that reads words",
        accepts=_accepts(
            {
                "train": "--init-from",
                "eval": "--beam, --lexicon, --split train, --split all",
            }
        ),
        classes=frozenset(["Reader"]),
        functions=_read,
    ),
}


def name_of_model(path: Path) -> str:
    """Return the name of a model file's task; ``caption`` if the file is no model."""
    from show_attend_tell.reference.model_file import class_of

    name = class_of(path)  # its loader reports a fault
    return next((k for k, task in TASKS.items() if name in task.classes), "caption")


def accepts(name: str, use: str) -> bool:
    """Return whether a task accepts a verb, or an option of a verb."""
    named = any(use in task.accepts for task in TASKS.values())
    return not named or use in TASKS[name].accepts


def require_accepted(
    name: str,
    received: object,
    subject: str = "an experiment",
    uses: Iterable[str] | None = None,
) -> None:
    """Raise a usage error if a task does not accept a verb, or an option of a verb.

    Args:
        name: the task.
        received: the experiment or the model that has this task.
        subject: name of what was received, such as "an experiment".
        uses: verbs, each alone or with a space and an option; by default the running
            verb and its options on the command line.
    """
    for use in _uses(click.get_current_context()) if uses is None else uses:
        if not accepts(name, use):
            accepting = [t.described for t in TASKS.values() if use in t.accepts]
            verb, _, option = use.partition(" ")
            raise click.UsageError(
                f"{option or verb} needs {subject} {' or '.join(accepting)}. Received: "
                f"{received}, whose task is {name!r}."
            )


def _uses(context: click.Context) -> Iterator[str]:
    """Yield the verb and its options on the command line, without and with values."""
    verb = context.command.name
    yield verb
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is not ParameterSource.DEFAULT:
            option = max(parameter.opts, key=len)
            yield f"{verb} {option}"
            yield f"{verb} {option} {context.params.get(parameter.name)}"
