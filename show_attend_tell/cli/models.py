"""Define the verbs that write new model files: ``average`` and ``export``."""

import click

from show_attend_tell.cli.options import (
    PATH,
    ExperimentCommand,
    encoder_weights_option,
    experiment_option,
    load_settings,
    runs_option,
    set_option,
    start_tensorflow,
)
from show_attend_tell.cli.tasks import TASKS, name_of_model, require_accepted


@click.command(cls=ExperimentCommand)
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="MODEL...")
@experiment_option
@set_option
@runs_option
@click.option("--overwrite", is_flag=True, help="Replace an earlier run.")
def average(models, experiment, changes, runs, overwrite) -> None:
    """Average the weights of models into a new run.

    The models must have been trained from the same initial weights. The run has the
    experiment's name.
    """
    settings = load_settings(experiment, changes)
    start_tensorflow()
    from show_attend_tell.training.initial_model import average_models

    out = average_models(models, settings, runs, overwrite)
    click.echo(f"{out}: the mean of {len(models)} models")


@click.command()
@click.argument("model", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["saved_model", "litert", "half", "8bit"]),
    required=True,
    help="saved_model: a TensorFlow SavedModel from pixels to captions. "
    "litert: a .tflite file from pixels to words, and its .json. "
    "half: a .keras file with float16 weights. 8bit: one with 8 bits per weight.",
)
@click.option("--out", type=PATH, required=True, help="Folder or file to write.")
@encoder_weights_option
@click.option(
    "--beam", type=click.IntRange(min=1), help="Beam width; overrides the model's."
)
@click.option(
    "--accept-imagenet",
    is_flag=True,
    help="half, 8bit: let the model accept the ImageNet weights of Keras too.",
)
def export(model, form, out, encoder_weights, beam, accept_imagenet) -> None:
    """Export a trained model to another format."""
    smaller = form in ("half", "8bit")
    if smaller and encoder_weights is not None:
        raise click.UsageError(
            f"--format {form} cannot be combined with --encoder-weights."
        )
    if not smaller and accept_imagenet:
        raise click.UsageError(
            f"--format {form} cannot be combined with --accept-imagenet."
        )
    start_tensorflow()
    from show_attend_tell.models.pretrained import NAMES, shipped_model

    if str(model) in NAMES:
        model = shipped_model(str(model))
    task = name_of_model(model)
    require_accepted(task, model, "the model of an experiment")
    if form == "saved_model":
        from show_attend_tell.deployment.exports.graphs import export_saved_model

        export_saved_model(model, out, encoder_weights, beam)
        click.echo(f"{out}")
    elif form == "litert":
        from show_attend_tell.deployment.exports.graphs import export_litert

        beside = export_litert(model, out, encoder_weights, beam)
        click.echo(f"{out}\n{beside}")
    else:
        from show_attend_tell.deployment.exports.half_precision import save_half

        load, eight_bit = TASKS[task].functions().load, form == "8bit"
        size = save_half(model, out, accept_imagenet, eight_bit, beam, load)
        click.echo(f"{out}: {size / 1e6:.1f} MB")
