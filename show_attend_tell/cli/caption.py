"""Define the verbs for trained models: ``caption``, ``average`` and ``export``."""

import json
import sys

import click

from show_attend_tell.cli.options import (
    PATH,
    encoder_weights_option,
    experiment_option,
    figure_options,
    runs_option,
    set_option,
    start_tensorflow,
)

_OUT = (
    "Write captions to FILE: a .jsonl, or a .csv or .html generated at the end from a "
    ".jsonl beside it. An interrupted run is resumed."
)


@click.command()
@click.argument("photos", nargs=-1, required=True, type=PATH, metavar="PHOTO...")
@click.option(
    "--model", type=PATH, help="A .keras file; by default the pretrained model."
)
@encoder_weights_option
@click.option(
    "--beam", type=click.IntRange(min=1), help="Beam width; overrides the model's."
)
@click.option(
    "--locations",
    type=click.Choice(["expected", "likeliest", "sampled"]),
    help="Context of each word; overrides the model's: all locations weighted by "
    "attention (soft), the one of highest attention, or one sampled (hard).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of sampled locations; overrides the model's.",
)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Leave out captions whose confidence is below P, 0 to 1.",
)
@click.option("--out", type=PATH, metavar="FILE", help=_OUT)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines with all details."
)
@figure_options
def caption(
    photos,
    model,
    encoder_weights,
    beam,
    locations,
    seed,
    min_confidence,
    out,
    as_json,
    attention,
    formats,
    theme,
    page,
) -> None:
    """Generate captions of photos, or of all photos in folders."""
    if out is not None and (as_json or attention is not None or page is not None):
        raise click.UsageError(
            "--out cannot be combined with --json, --attention or --html."
        )
    model = _model_or_pretrained(model)
    if out is not None:
        _caption_into(
            *(out, photos, model, encoder_weights, beam, locations, seed),
            min_confidence,
        )
        return
    start_tensorflow()
    from show_attend_tell.inference.figures import draw_figures, write_attention_page
    from show_attend_tell.inference.pipeline import load
    from show_attend_tell.inference.result import Failure, LowConfidence

    pipeline = load(model, encoder_weights)
    decoding = pipeline.decoding(beam=beam, locations=locations, seed=seed)
    results = pipeline.caption_photos(photos, decoding, min_confidence)
    if page is not None:
        results = write_attention_page(results, page)
    drawn = ((result, []) for result in results)
    if attention is not None:
        drawn = draw_figures(results, attention, formats, theme == "dark")
    failed, left_out = False, 0
    for result, figures in drawn:
        failure = isinstance(result, Failure)
        left_out += isinstance(result, LowConfidence)
        failed |= failure and not isinstance(result, LowConfidence)
        if as_json:
            click.echo(json.dumps(result.to_dict()))
        elif not failure:
            doubt = " (low confidence)" if result.is_doubtful else ""
            click.echo(f"{click.format_filename(result.path)}: {result.text}{doubt}")
        if failure:
            click.echo(click.format_filename(result.reason), err=True)
        for figure in figures:
            click.echo(f"figure: {click.format_filename(figure)}", err=True)
    if left_out:
        click.echo(f"{left_out} captions left out for low confidence", err=True)
    if page is not None:
        click.echo(f"page: {click.format_filename(page)}", err=True)
    if failed:
        sys.exit(1)


def _model_or_pretrained(given):
    from show_attend_tell.models.pretrained import shipped_model

    return shipped_model() if given is None else given


def _caption_into(
    out, photos, model, encoder_weights, beam, locations, seed, min_confidence
) -> None:
    start_tensorflow()
    from show_attend_tell.inference.batch import (
        caption_into_file,
        require_known_ending,
    )
    from show_attend_tell.inference.pipeline import load
    from show_attend_tell.inference.result import LowConfidence

    require_known_ending(out)
    pipeline = load(model, encoder_weights)
    decoding = pipeline.decoding(beam=beam, locations=locations, seed=seed)
    report = caption_into_file(
        pipeline, photos, out, decoding, min_confidence=min_confidence
    )
    for failure in report.failures:
        click.echo(click.format_filename(failure.reason), err=True)
    click.echo(report.summary())
    if any(not isinstance(one, LowConfidence) for one in report.failures):
        sys.exit(1)


@click.command()
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="MODEL...")
@experiment_option
@set_option
@runs_option
@click.option("--overwrite", is_flag=True, help="Replace an earlier run.")
def average(models, experiment, changes, runs, overwrite) -> None:
    """Average the weights of models into a new run.

    The models must have been trained from the same initial weights. The run is named
    after the experiment.
    """
    from show_attend_tell.config.experiments import load_experiment

    settings = load_experiment(experiment, changes)
    start_tensorflow()
    from show_attend_tell.training.weight_averaging import average_models

    out = average_models(models, settings, runs, overwrite)
    click.echo(f"{out}: the mean of {len(models)} models")


@click.command()
@click.argument("model", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["saved_model", "litert", "half"]),
    required=True,
    help="saved_model: a TensorFlow SavedModel from JPEG bytes to captions. "
    "litert: a .tflite file from pixels to words, and its .json. "
    "half: a .keras file with float16 weights.",
)
@click.option("--out", type=PATH, required=True, help="Folder or file to write.")
@encoder_weights_option
@click.option(
    "--beam", type=click.IntRange(min=1), help="Beam width; overrides the model's."
)
@click.option(
    "--accept-imagenet",
    is_flag=True,
    help="half: let the model accept the ImageNet weights of Keras too.",
)
def export(model, form, out, encoder_weights, beam, accept_imagenet) -> None:
    """Export a trained model to another format."""
    if form == "half" and (encoder_weights is not None or beam is not None):
        raise click.UsageError(
            "--format half cannot be combined with --encoder-weights or --beam."
        )
    if form != "half" and accept_imagenet:
        raise click.UsageError(
            f"--format {form} cannot be combined with --accept-imagenet."
        )
    start_tensorflow()
    if form == "saved_model":
        from show_attend_tell.deployment.saved_model import export_saved_model

        export_saved_model(model, out, encoder_weights, beam)
        click.echo(f"{out}")
    elif form == "litert":
        from show_attend_tell.deployment.litert import export_litert

        beside = export_litert(model, out, encoder_weights, beam)
        click.echo(f"{out}\n{beside}")
    else:
        _export_half(model, out, accept_imagenet)


def _export_half(model, out, accept_imagenet) -> None:
    from show_attend_tell.deployment.half_precision import save_half

    size = save_half(model, out, accept_imagenet)
    click.echo(f"{out}: {size / 1e6:.1f} MB")
