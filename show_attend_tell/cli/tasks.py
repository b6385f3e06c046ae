"""List the tasks of experiments, and what the verbs do with each of them.

:data:`TASKS` has an entry for each value of the key ``task``. The entries import their
modules when a verb runs, so that ``--help`` is fast.
"""

import functools
import json
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource


@dataclass(frozen=True)
class Task(ABC):
    """What the verbs do with the experiments and the models of a task.

    Attributes:
        described: the end of "needs an experiment ..." in usage errors.
        accepts: verbs, options, and values of options that only some tasks accept, such
            as ``draw``, ``eval --beam`` and ``eval --split all``. Every task accepts
            all that no entry names.
        classes: names of the classes of its models.
    """

    described: str
    accepts: frozenset[str]
    classes: frozenset[str]

    @abstractmethod
    def trainer(self, cluster: str | None, workers: int | None) -> Callable:
        """Return a function with the arguments of :func:`training.train.train`.

        Args:
            cluster: address of a Ray cluster whose workers train together, or None.
            workers: number of its workers.
        """

    @abstractmethod
    def evaluate(
        self, settings, work: Path, runs: Path, split: str | None, options: Mapping
    ) -> list[str]:
        """Measure the model of a run; return lines to print.

        Args:
            settings: the experiment.
            work: folder of prepared data.
            runs: folder of run folders.
            split: the split, or None for the task's own choice.
            options: the other options of ``eval``, by parameter.
        """

    @abstractmethod
    def export_smaller(
        self, model: Path, out: Path, eight_bit: bool, options: Mapping
    ) -> int:
        """Write a model file with smaller weights; return its size in bytes.

        Args:
            model: the model file.
            out: the new file.
            eight_bit: whether weights have 8 bits, in place of 16.
            options: further arguments of :func:`half_precision.save_half`.
        """


class Captioning(Task):
    """The task ``caption``."""

    def trainer(self, cluster, workers):
        """Return the function that trains a run; see :class:`Task`."""
        if cluster is not None:
            from show_attend_tell.cluster.training import train_on_cluster

            return functools.partial(train_on_cluster, cluster=cluster, count=workers)
        together = {}
        if "TF_CONFIG" in os.environ:
            from show_attend_tell.training.workers.joining import join

            together["workers"] = join()  # before TensorFlow computes anything

        from show_attend_tell.training.train import train

        return functools.partial(train, **together)

    def evaluate(self, settings, work, runs, split, options):
        """Measure the model of a run; see :class:`Task`."""
        from show_attend_tell.evaluation import evaluate as evaluation
        from show_attend_tell.evaluation.report import table

        scoring = {name: options[name] for name in ("tokenizer", "spice")}
        file, beams = options["captions"], options["beams"]
        if file is not None:
            reports = [evaluation.score_file(file, settings, work, split, **scoring)]
            return table(reports)
        scoring |= {name: options[name] for name in ("mirror", "reranker")}
        scoring["model"] = options["models"] or None
        run = (settings, work, runs, split)
        if len(beams) > 1:
            return table(evaluation.compare_beams(*run, beams, **scoring))
        return table([evaluation.evaluate(*run, *beams, **scoring)])

    def export_smaller(self, model, out, eight_bit, options):
        """Write a smaller model file; see :class:`Task`."""
        from show_attend_tell.deployment.exports.half_precision import save_half

        return save_half(model, out, eight_bit=eight_bit, **options)


@dataclass(frozen=True)
class Sibling(Task):
    """A task on digits or words.

    Attributes:
        modules: imports and returns ``task``, ``training`` and ``evaluation`` of the
            model's folder, which have the same functions in every folder.
    """

    modules: Callable

    def trainer(self, cluster, workers):
        """Return the function that trains a run; see :class:`Task`."""
        return self.modules()[1].train

    def evaluate(self, settings, work, runs, split, options):
        """Measure the model of a run; see :class:`Task`."""
        evaluate = self.modules()[2].evaluate
        lexicon, lines = options["lexicon"], []
        chosen = {} if lexicon is None else {"lexicon": lexicon}
        for beam in options["beams"] or (None,):
            chosen |= {} if beam is None else {"beam": beam}
            lines += evaluate(settings, work, runs, split, **chosen).lines()
        return lines

    def export_smaller(self, model, out, eight_bit, options):
        """Write a smaller model file; see :class:`Task`."""
        from show_attend_tell.deployment.exports.half_precision import save_smaller

        loaded = self.modules()[0].load_model(model)
        return save_smaller(loaded, out, model, eight_bit)


def _ram():
    from show_attend_tell.siblings.ram import evaluation, task, training

    return task, training, evaluation


def _draw():
    from show_attend_tell.siblings.draw import evaluation, task, training

    return task, training, evaluation


def _words():
    from show_attend_tell.siblings.words import evaluation, task, training

    return task, training, evaluation


_JOINT = "train --cluster without --seeds or --grid"

TASKS: Mapping[str, Task] = {
    "caption": Captioning(
        described="with captions",
        accepts=frozenset(
            ["average", "calibrate", "fit-reranker"]
            + [f"{verb} --limit" for verb in ("prepare", "features", "train", "eval")]
            + ["train --init-from", "train --text", "train TF_CONFIG", _JOINT]
            + ["eval --beam", "eval --captions", "eval --model", "eval --mirror"]
            + ["eval --reranker", "eval --tokenizer", "eval --spice"]
            + ["export --format saved_model", "export --format litert"]
            + ["export --beam", "export --accept-imagenet"]
        ),
        classes=frozenset(["Captioner"]),
    ),
    "classify": Sibling(
        described="that classifies digits",
        accepts=frozenset(),
        classes=frozenset(
            ["RecurrentAttention", "PictureClassifier", "WindowClassifier"]
        ),
        modules=_ram,
    ),
    "generate": Sibling(
        described="that generates pictures",
        accepts=frozenset(["draw"]),
        classes=frozenset(["Draw"]),
        modules=_draw,
    ),
    "read": Sibling(
        described="that reads words",
        accepts=frozenset(
            ["train --init-from", "eval --beam", "eval --lexicon"]
            + ["eval --split train", "eval --split all"]
        ),
        classes=frozenset(["Reader"]),
        modules=_words,
    ),
}


def name_of_model(path: Path) -> str:
    """Return the name of a model file's task; ``caption`` if the file is no model."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = json.loads(archive.read("config.json"))["class_name"]
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
        return "caption"  # its loader says what is wrong with the file
    names = (key for key, task in TASKS.items() if name in task.classes)
    return next(names, "caption")


def require_accepted(name: str, received: object, subject: str = "an experiment"):
    """Raise a usage error if the running verb, or an option of it, is not for a task.

    Args:
        name: the task.
        received: the experiment or the model that has this task.
        subject: what has the task.
    """
    for use in _uses(click.get_current_context()):
        require_use(use, name, received, subject)


def require_use(use: str, name: str, received: object, subject="an experiment") -> None:
    """Raise a usage error if a task does not accept a verb, or an option of a verb.

    Args:
        use: the verb, then a space and the option.
        name: see :func:`require_accepted`.
        received: see the same function.
        subject: see the same function.
    """
    accepting = [task.described for task in TASKS.values() if use in task.accepts]
    if accepting and use not in TASKS[name].accepts:
        verb, _, option = use.partition(" ")
        raise click.UsageError(
            f"{option or verb} needs {subject} {' or '.join(accepting)}. Received: "
            f"{received}, whose task is {name!r}."
        )


def require_joint_training(name: str, received: str, joins_cluster: bool) -> None:
    """Raise a usage error if a task cannot be trained by several workers together.

    Args:
        name: the task.
        received: the experiment.
        joins_cluster: whether the workers of a cluster train one model together.
    """
    if joins_cluster:
        require_use(_JOINT, name, received)
    if "TF_CONFIG" in os.environ:
        require_use("train TF_CONFIG", name, received)


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
