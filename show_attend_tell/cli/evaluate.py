"""Define the verb ``eval``."""

import click

from show_attend_tell.cli.options import (
    PATH,
    ExperimentCommand,
    experiment_option,
    limit_option,
    load_settings,
    mirror_option,
    models_option,
    name_option,
    reranker_option,
    runs_option,
    set_option,
    start_tensorflow,
    work_option,
)
from show_attend_tell.cli.tasks import TASKS


@click.command("eval", cls=ExperimentCommand)
@experiment_option
@set_option
@work_option
@runs_option
@name_option
@click.option(
    "--split",
    type=click.Choice(["val", "test", "train", "all"]),
    help="Split to evaluate; by default test if the data have it, else val. train and "
    "all need an experiment that reads words.",
)
@click.option(
    *("--beam", "beams"),
    type=click.IntRange(min=1),
    multiple=True,
    help="Beam width, in place of decoding.beam; repeatable, to compare.",
)
@click.option(
    "--captions",
    type=PATH,
    metavar="FILE.json",
    help="Score the captions of this file in place of the run's model.",
)
@click.option(
    "--lexicon",
    type=PATH,
    metavar="FILE",
    help="Text file of words, one a line: measure the nearest of these words, with an "
    "experiment that reads words.",
)
@models_option
@mirror_option
@reranker_option
@click.option(
    "--boxes",
    type=PATH,
    metavar="FILE.jsonl",
    help="Boxes of people, by which the attention at words such as man is measured: a "
    'line {"file": "a.jpg", "people": [[x0, y0, x1, y1]]} for each photo, in shares of '
    "its width and height.",
)
@click.option(
    "--tokenizer",
    type=click.Choice(["auto", "ptb", "simple"]),
    default="auto",
    show_default=True,
    help="Tokenizer of the scores; ptb needs Java.",
)
@click.option(
    "--spice", is_flag=True, help="Also compute SPICE; downloads CoreNLP, needs Java."
)
@limit_option
def evaluate(experiment, changes, work, runs, name, split, limit, **options) -> None:
    """Generate the captions of a split, and save and score them.

    For an experiment on digits or words, measure the error, the bound or the word
    accuracy of its model.
    """
    if options["captions"] is not None:
        if any(options[n] for n in ("models", "mirror", "reranker", "boxes")):
            raise click.UsageError(
                "--captions excludes --model, --mirror, --reranker and --boxes."
            )
        if options["beams"]:
            raise click.UsageError("--captions and --beam exclude each other.")
    settings = load_settings(experiment, changes, name, limit)
    start_tensorflow()
    measure = TASKS[settings.task].functions().evaluate
    click.echo("\n".join(measure(settings, work, runs, split, options)))
