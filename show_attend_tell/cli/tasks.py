"""Map each task of an experiment to the functions that the verbs call.

:data:`TASKS` has an entry for each value of the key ``task``. Modules are imported when
a verb runs, so that ``--help`` is fast.

To add a task, a sibling of the captioner: (1) make a folder in ``siblings/`` with
``model.py``, ``training.py``, ``evaluation.py`` and ``figures.py``, named in
``packages`` of ``setup.cfg`` and in ``tests/test_architecture.py``; (2) add its models
to ``CLASSES`` and ``_arguments_of`` of :mod:`siblings.models`; (3) its settings to
``_TASKS`` and ``AnyExperiment`` of :mod:`config.settings`; (4) its data to
:data:`data_prep.prepare.SOURCES` and ``read_split`` of :mod:`siblings.evaluation`; (5)
an entry to :data:`TASKS`, and an experiment.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import click
from click.core import ParameterSource


@dataclass(frozen=True)
class Task:
    """Describe a task to the verbs.

    Attributes:
        described: the end of "needs an experiment ..." in usage errors.
        training: module in :mod:`show_attend_tell` whose function ``train`` has the
            arguments of :func:`training.train.train`.
        evaluate: called with the experiment, the work folder, the folder of runs, the
            split and the other options of ``eval``, a dictionary; returns lines.
        accepts: verbs, options and values of options that not every task accepts, such
            as ``draw``, ``eval --beam`` and ``eval --split all``. Every task accepts
            a verb or an option that no entry names.
        classes: names of the classes of its models.
        has_captions: whether its experiments have captions, and features of photos.
    """

    described: str
    training: str
    evaluate: Callable[..., list[str]]
    accepts: frozenset[str]
    classes: frozenset[str]
    has_captions: bool = False

    def train(self, *arguments, **options):
        """Import the task's module, and train."""
        module = import_module(f"show_attend_tell.{self.training}")
        return module.train(*arguments, **options)


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


def _evaluate_digits(folder, settings, work, runs, split, options) -> list[str]:
    module = import_module(f"show_attend_tell.siblings.{folder}.evaluation")
    return module.evaluate(settings, work, runs, split).lines()


def _evaluate_words(settings, work, runs, split, options) -> list[str]:
    from show_attend_tell.siblings.words.evaluation import evaluate
    from show_attend_tell.siblings.words.generation import Lexicon

    file, lines = options["lexicon"], []
    lexicon = None if file is None else Lexicon.load(file)
    for beam in options["beams"] or (1,):
        options = {"beam": beam, "lexicon": lexicon}
        lines += evaluate(settings, work, runs, split, **options).lines()
    return lines


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
        training="training.train",
        evaluate=_evaluate_captions,
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
        ),
        classes=frozenset(["Captioner"]),
        has_captions=True,
    ),
    "classify": Task(
        described="that classifies digits",
        training="siblings.ram.training",
        evaluate=partial(_evaluate_digits, "ram"),
        accepts=frozenset(),
        classes=frozenset(
            ["RecurrentAttention", "PictureClassifier", "WindowClassifier"]
        ),
    ),
    "generate": Task(
        described="that generates pictures",
        training="siblings.draw.training",
        evaluate=partial(_evaluate_digits, "draw"),
        accepts=_accepts({"draw": ""}),
        classes=frozenset(["Draw"]),
    ),
    "read": Task(
        described="that reads words",
        training="siblings.words.training",
        evaluate=_evaluate_words,
        accepts=_accepts(
            {
                "train": "--init-from",
                "eval": "--beam, --lexicon, --split train, --split all",
            }
        ),
        classes=frozenset(["Reader"]),
    ),
}


def name_of_model(path: Path) -> str:
    """Return the name of a model file's task; ``caption`` if the file is no model."""
    from show_attend_tell.reference.model_file import class_of

    name = class_of(path)  # its loader reports a fault
    return next((k for k, task in TASKS.items() if name in task.classes), "caption")


def require_accepted(
    name: str, received: object, subject: str = "an experiment"
) -> None:
    """Raise a usage error if a task does not accept the running verb or its options.

    Args:
        name: the task.
        received: the experiment or the model that has this task.
        subject: name of what was received.
    """
    for use in _uses(click.get_current_context()):
        accepting = [t.described for t in TASKS.values() if use in t.accepts]
        if accepting and use not in TASKS[name].accepts:
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
