"""Define the verbs ``eval`` and ``compare``."""

import click

from show_attend_tell.cli.captioning import tasks
from show_attend_tell.cli.options import (
    PATH,
    Verb,
    experiment_options,
    limit_option,
    load_settings,
    mirror_option,
    models_option,
    name_option,
    reranker_option,
    runs_option,
    work_option,
)
from show_attend_tell.config import MAX_BEAM
from show_attend_tell.runtime.keras_startup import start_keras


class _Evaluate(Verb):
    """The verb ``eval``, whose further options belong to tasks of plug-ins."""

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return the options, those of plug-ins before ``--help``."""
        # click puts --help last.
        *own, shows_help = super().get_params(context)
        further = [o for task in tasks().values() for o in task.evaluate_options]
        return [*own, *further, shows_help]


@click.command("eval", cls=_Evaluate)
@experiment_options
@work_option
@runs_option
@name_option
@click.option(
    "--split",
    type=click.Choice(["val", "test", "train", "all"]),
    help="Split to evaluate; by default test if the data have it, else val. Captions "
    "have val and test.",
)
@click.option(
    *("--beam", "beams"),
    type=click.IntRange(1, MAX_BEAM),
    multiple=True,
    help="Beam width, in place of decoding.beam; repeatable, to compare.",
)
@click.option(
    "--captions",
    type=PATH,
    metavar="FILE.json",
    help="Score the captions of this file in place of the run's model, into "
    "scores-captions-FILE.json of the run folder.",
)
@models_option
@mirror_option
@reranker_option
@click.option(
    "--boxes",
    type=PATH,
    metavar="FILE.jsonl",
    help="Boxes of people, by which the attention at words such as man is measured: a "
    'line {"file": "a.jpg", "people": [[x0, y0, x1, y1]]} for each photo, as '
    "fractions of its width and height.",
)
@click.option(
    "--tokenizer",
    type=click.Choice(["auto", "ptb", "simple"]),
    default="auto",
    help="Tokenizer of the scores; ptb needs Java.",
)
@click.option(
    "--spice", is_flag=True, help="Also compute SPICE; downloads CoreNLP, needs Java."
)
@limit_option
def evaluate(experiment, changes, work, runs, name, split, limit, **options) -> None:
    """Generate captions for a split, save and score them.

    For an experiment without captions, measure what its model does, such as an error.
    """
    excluded = ("models", "mirror", "reranker", "boxes", "beams")
    if options["captions"] is not None and any(options[name] for name in excluded):
        raise click.UsageError(
            "--captions excludes --model, --mirror, --reranker, --boxes and --beam."
        )
    settings = load_settings(experiment, changes, name, limit)
    # After the settings, whose faults are named without the seconds of this start.
    start_keras()
    task = tasks()[settings.task]
    lines = task.evaluate(settings, work, runs, split, options)
    click.echo("\n".join(lines))


@click.command(cls=Verb)
@click.argument("names", metavar="RUN [RUN ...]", nargs=-1, required=True)
@runs_option
@work_option
@click.option(
    *("--metric", "metrics"),
    multiple=True,
    metavar="NAME",
    help="Score to compare, such as BLEU-4-files; repeatable. By default BLEU-1, "
    "BLEU-4, METEOR and CIDEr.",
)
@click.option(
    *("--format", "style"),
    type=click.Choice(["text", "markdown", "csv"]),
    default="text",
    help="Format of the table.",
)
def compare(names, runs, work, metrics, style) -> None:
    """Compare evaluated runs: mean over seeds, deviation, p against the first.

    RUN is a run folder, the name of a run, or a file of scores in a run folder. Runs
    of one experiment with different seeds share a row. The settings that differ follow
    the table.
    """
    from show_attend_tell.evaluation.comparison import compare_runs, format_comparison

    comparison = compare_runs(names, work, runs, metrics or None)
    click.echo(format_comparison(comparison, style))
