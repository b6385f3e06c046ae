"""Define the verb ``compare``: argument parsing and printing only."""

import click

from show_attend_tell.cli.options import runs_option, work_option


@click.command()
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
    type=click.Choice(["text", "markdown", "csv", "latex"]),
    default="text",
    show_default=True,
    help="Format of the table.",
)
def compare(names, runs, work, metrics, style) -> None:
    """Compare evaluated runs: mean over seeds, deviation, p against the first.

    RUN is a run folder, the name of a run, or a file of scores in a run folder. Runs
    of one experiment with different seeds share a row.
    """
    from show_attend_tell.evaluation.comparison import compare_runs, format_comparison

    comparison = compare_runs(names, work, runs, metrics or None)
    click.echo(format_comparison(comparison, style))
