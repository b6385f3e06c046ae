"""Define the verb ``eval``."""

import click

from show_attend_tell.cli.experiment_help import ExperimentCommand
from show_attend_tell.cli.options import (
    PATH,
    experiment_option,
    is_of_digits,
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


@click.command("eval", cls=ExperimentCommand)
@experiment_option
@set_option
@work_option
@runs_option
@name_option
@click.option(
    "--split",
    type=click.Choice(["val", "test", "train", "all"]),
    help="Split to evaluate; by default test if it has captions, digits or words, else "
    "val. train and all are for words.",
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
    help="Text file of words, one a line, with an experiment that reads: the nearest "
    "of these is measured.",
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
def evaluate(
    experiment,
    changes,
    work,
    runs,
    name,
    split,
    beams,
    captions,
    lexicon,
    models,
    mirror,
    reranker,
    boxes,
    tokenizer,
    spice,
    limit,
) -> None:
    """Generate the captions of a split, and save and score them.

    With an experiment on digits or words, measure the error, the bound or the word
    accuracy of its model.
    """
    others = models or mirror or reranker or boxes
    if captions is not None and others:
        raise click.UsageError(
            "--captions excludes --model, --mirror, --reranker and --boxes."
        )
    if captions is not None and beams:
        raise click.UsageError("--captions and --beam exclude each other.")
    settings = load_settings(experiment, changes, name, limit)
    if settings.task == "read":
        if others or captions or spice or tokenizer != "auto":
            raise click.UsageError(
                "--captions, --model, --mirror, --reranker, --boxes, --tokenizer and "
                "--spice need an experiment with captions."
            )
        _measure_reader(settings, work, runs, split, beams or (1,), lexicon)
        return
    if split in ("train", "all") or lexicon is not None:
        raise click.UsageError(
            "--lexicon, --split train and --split all need an experiment that reads "
            "words."
        )
    if is_of_digits(settings):
        if others or beams or captions or spice or tokenizer != "auto":
            raise click.UsageError(
                "--beam, --captions, --model, --mirror, --reranker, --boxes, "
                "--tokenizer and --spice need an experiment with captions."
            )
        start_tensorflow()
        if settings.task == "generate":
            from show_attend_tell.siblings.draw.evaluation import evaluate as measure
        else:
            from show_attend_tell.siblings.classification.evaluation import (
                evaluate as measure,
            )

        click.echo("\n".join(measure(settings, work, runs, split).lines()))
        return
    start_tensorflow()
    from show_attend_tell.evaluation import evaluate as evaluation
    from show_attend_tell.evaluation.report import table

    scoring = {"tokenizer": tokenizer, "spice": spice}
    if captions is not None:
        reports = [evaluation.score_file(captions, settings, work, split, **scoring)]
    else:
        scoring |= {"model": models or None, "mirror": mirror, "reranker": reranker}
        reports = [
            evaluation.evaluate(
                settings, work, runs, split, beam, boxes=boxes, **scoring
            )
            for beam in dict.fromkeys(beams or (None,))
        ]
    click.echo("\n".join(table(reports)))


def _measure_reader(settings, work, runs, split, beams, lexicon) -> None:
    start_tensorflow()
    from show_attend_tell.siblings.words.evaluation import evaluate as measure
    from show_attend_tell.siblings.words.lexicon import Lexicon

    words = None if lexicon is None else Lexicon.load(lexicon)
    for beam in beams:
        report = measure(settings, work, runs, split, beam, words)
        click.echo("\n".join(report.lines()))
