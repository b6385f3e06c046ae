"""Define the verb ``calibrate``, which gives a model's captions their confidence."""

from pathlib import Path

import click

from show_attend_tell.cli.options import (
    PATH,
    encoder_weights_option,
    experiment_option,
    load_settings,
    runs_option,
    set_option,
    start_tensorflow,
    work_option,
)


@click.command()
@experiment_option
@set_option
@work_option
@runs_option
@click.option(
    "--model", type=PATH, help="A .keras file; by default the experiment's run."
)
@encoder_weights_option
@click.option(
    *("--other", "others"),
    type=PATH,
    multiple=True,
    metavar="FOLDER",
    help="Folder of pictures unlike the training photos; repeatable.",
)
@click.option(
    *("--pictures", "limit"),
    type=click.IntRange(min=8),
    default=200,
    show_default=True,
    help="Maximum pictures of each kind unlike the training photos.",
)
def calibrate(
    experiment, changes, work, runs, model, encoder_weights, others, limit
) -> None:
    """Measure when a model's captions can be trusted, for their confidence.

    Compares the validation photos with pictures unlike the training photos: the same
    photos upside down, close-ups of them, drawn scenes, and those of --other. Writes
    <model>.confidence.npz beside the model.
    """
    settings = load_settings(experiment, changes)
    start_tensorflow()
    from show_attend_tell.models.pretrained import model_path
    from show_attend_tell.training.calibration import calibrate

    file = model_path(str(model or settings.name), runs)
    ood_sets = {str(folder): _pictures(folder, limit) for folder in others}
    if settings.data.source != "scenes":
        ood_sets["drawn scenes"] = _drawn_scenes(limit)
    report = calibrate(settings, work, file, ood_sets, encoder_weights, limit)
    click.echo("\n".join(report.lines()))


def _drawn_scenes(limit: int):
    """Yield drawn scenes."""
    from data_prep.scenes.scenes import make_scene

    for number in range(limit):
        yield make_scene(0, "test", number)[0]


def _pictures(folder: Path, limit: int):
    """Yield the pictures of a folder; skip unreadable files."""
    from show_attend_tell.data.preprocessing import load_photo
    from show_attend_tell.inference.photos import find_photos
    from show_attend_tell.inference.result import Failure
    from show_attend_tell.runtime.errors import PhotoError

    photos = [path for path in find_photos([folder]) if not isinstance(path, Failure)]
    for path in photos[:limit]:
        try:
            yield load_photo(path)
        except PhotoError as error:
            click.echo(click.format_filename(str(error)), err=True)
