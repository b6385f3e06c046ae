"""Define the task of the captioner, and what the commands ask of every task."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from show_attend_tell.runtime import plugins


# These functions import what they call when they are called, so that the options and
# the help need no Keras.
def _settings() -> type:
    from show_attend_tell.config.settings import Experiment

    return Experiment


def _train(*arguments, **options):
    from show_attend_tell.training.train import train

    return train(*arguments, **options)


def _verify(*arguments) -> None:
    from show_attend_tell.training.train import verify

    verify(*arguments)


def _evaluate(experiment, work, runs, split, options: Mapping) -> list[str]:
    """Score the captions of a file, or of a run's model with each beam width."""
    if split in ("train", "all"):
        raise click.UsageError(
            f"--split {split} needs an experiment without captions. Received: "
            f"{experiment.name}."
        )
    from show_attend_tell.evaluation import evaluate as evaluation
    from show_attend_tell.evaluation.report import table

    scoring = {"tokenizer": options["tokenizer"], "spice": options["spice"]}
    file = options["captions"]
    if file is not None:
        report = evaluation.score_file(
            file, experiment, work, split, runs_folder=runs, **scoring
        )
        return table([report])
    scoring |= {name: options[name] for name in ("mirror", "reranker", "boxes")}
    scoring["model"] = options["models"] or None
    reports = [
        evaluation.evaluate(experiment, work, runs, split, beam, **scoring)
        # Each width once; None is the experiment's width.
        for beam in dict.fromkeys(options["beams"] or (None,))
    ]
    return table(reports)


def _load_model(path: Path):
    from show_attend_tell.models.saving import load_captioner

    return load_captioner(path)


CAPTIONING = plugins.Task(
    name="caption",
    described="with captions",
    settings=_settings,
    train=_train,
    verify=_verify,
    evaluate=_evaluate,
    load_model=_load_model,
    models=frozenset({"Captioner"}),
    commands=frozenset({"average", "calibrate", "fit-reranker"}),
    accepts={
        "prepare": frozenset({"--limit"}),
        "features": frozenset({"--limit"}),
        "train": frozenset({"--limit", "--init-from"}),
        "eval": frozenset(
            {
                "--limit",
                "--beam",
                "--captions",
                "--model",
                "--mirror",
                "--reranker",
                "--boxes",
                "--tokenizer",
                "--spice",
            }
        ),
        "export": frozenset(
            {
                "--format saved_model",
                "--format litert",
                "--format onnx",
                "--beam",
                "--accept-imagenet",
            }
        ),
    },
)


def tasks() -> dict[str, plugins.Task]:
    """Return the captioner's task, and the tasks of plug-ins, by name."""
    return {CAPTIONING.name: CAPTIONING, **plugins.tasks()}


def task_of_model(path: Path) -> plugins.Task:
    """Return the task of a model file; the captioner's if the file is no model."""
    from show_attend_tell.reference.tensor_file import class_of

    name = class_of(path)  # its loader reports a fault
    if name in CAPTIONING.models:
        return CAPTIONING
    owners = (task for task in plugins.tasks().values() if name in task.models)
    return next(owners, CAPTIONING)


def require_accepted(
    task: plugins.Task, received: object, subject: str = "an experiment"
) -> None:
    """Raise a usage error if a task does not accept the running command or its options.

    Args:
        task: the task.
        received: the experiment or the model that has this task.
        subject: name of what was received.
    """
    context = click.get_current_context()
    command = str(context.command.name)
    all_tasks = tasks().values()

    def require(name: str, accepting: list[plugins.Task]) -> None:
        """Refuse a name that others accept; all accept a name that no task lists."""
        if accepting and task not in accepting:
            described = " or ".join(
                other.described or f"whose task is {other.name!r}"
                for other in accepting
            )
            raise click.UsageError(
                f"{name} needs {subject} {described}. Received: {received}, whose "
                f"task is {task.name!r}."
            )

    require(command, [t for t in all_tasks if command in t.commands])
    for option in _options_given(context):
        accepting = [t for t in all_tasks if option in t.accepted_options(command)]
        require(option, accepting)


def _options_given(context: click.Context) -> Iterator[str]:
    """Yield the options on the command line, each without and with its value."""
    for parameter in context.command.get_params(context):
        name = str(parameter.name)
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            # The long name of an option that has a short one too.
            option = max(parameter.opts, key=len)
            yield option
            yield f"{option} {context.params.get(name)}"
