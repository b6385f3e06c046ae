"""Define the verbs ``demo``, a web page for trained models, and ``export``."""

from importlib.util import find_spec
from pathlib import Path

import click

from show_attend_tell.cli.captioning import (
    CAPTIONING,
    require_accepted,
    task_of_model,
)
from show_attend_tell.cli.options import PATH, Verb, encoder_weights_option
from show_attend_tell.config import MAX_BEAM
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.keras_startup import chosen_backend, start_keras

_SHIPPED = ("Transformer", "LSTM")  # the choices on the page, of pretrained.PACKAGED
# Addresses of this machine, and their values of the header Host.
_LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "localhost", "::1": "[::1]"}


@click.command(cls=Verb, interrupted="the server has stopped")
@click.argument("models", nargs=-1, type=PATH, metavar="[MODEL]...")
@encoder_weights_option
@click.option("--host", default="127.0.0.1", help="Address to serve.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    help="Port to serve; 0 chooses a free one.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=32,
    help="Maximum photos in progress or waiting; more are refused for now.",
)
def demo(models, encoder_weights, host, port, queue) -> None:
    """Serve a web page that captions photos.

    The page and its POST /caption are served on this machine.

    MODEL is a .safetensors file; with several, such as one with soft and one with hard
    attention, the page offers a choice. By default it offers both models of the
    package: the best-scoring one, a Transformer, and the paper's LSTM.
    """
    from show_attend_tell.deployment.server.serve import server_of, take_port
    from show_attend_tell.models.pretrained import PACKAGED, shipped_model

    if models:
        named = dict(zip(_names(models), models, strict=True))
    else:
        named = dict(zip(_SHIPPED, map(shipped_model, PACKAGED), strict=True))
    # The port comes first: loading models takes seconds, and the port may be taken.
    with take_port(host, port) as taken:
        # On this machine other values of Host are refused, so that no page of the web
        # reaches the server through a name that it resolves to this address.
        hosts = [*_LOCAL.values()] if host in _LOCAL else ["*"]
        app = _load(named, encoder_weights, queue, hosts)
        # In a URL an IPv6 address has brackets.
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"http://{shown}:{taken.getsockname()[1]} - stop with Ctrl-C")
        server_of(app).run(sockets=[taken])


def _load(named, encoder_weights, queue, hosts):
    """Load models; return the web application."""
    from data_prep.scenes.example_pictures import example_pictures
    from show_attend_tell.deployment.server.app import create_app
    from show_attend_tell.inference.pipeline import load

    pipelines = {name: load(model, encoder_weights) for name, model in named.items()}
    first = next(iter(pipelines.values()))
    examples = example_pictures(first.engine.encoder.settings.network == "SceneNet")
    return create_app(pipelines, examples, queue, hosts, plugins.tabs())


def _names(models) -> list[str]:
    """Return distinct names of models: of the files, folders or whole paths."""
    paths = [Path(model) for model in models]
    stems = [path.stem for path in paths]
    folders = [path.absolute().parent.name for path in paths]
    choices = (stems, folders, list(map(str, paths)))
    return next((c for c in choices if len(set(c)) == len(c)), choices[-1])


@click.command(cls=Verb)
@click.argument("model", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["saved_model", "litert", "onnx", "half", "8bit", "keras"]),
    required=True,
    help="saved_model: a TensorFlow SavedModel from pixels to captions. "
    "litert: a .tflite file from pixels to words, and its .json. "
    "onnx: a folder with the encoder and one decoding step. "
    "half: a .safetensors file with float16 weights. 8bit: one with 8 bits per weight. "
    "keras: a .keras file, which keras.saving.load_model reads.",
)
@click.option("--out", type=PATH, required=True, help="Folder or file to write.")
@encoder_weights_option
@click.option(
    "--beam",
    type=click.IntRange(1, MAX_BEAM),
    help="Beam width; overrides the model's.",
)
@click.option(
    "--accept-imagenet",
    is_flag=True,
    help="half, 8bit: let the model accept the ImageNet weights of Keras too.",
)
def export(model, form, out, encoder_weights, beam, accept_imagenet) -> None:
    """Export a trained model to another format."""
    smaller = form in ("half", "8bit")
    if (smaller or form == "keras") and encoder_weights is not None:
        raise click.UsageError(
            f"--format {form} cannot be combined with --encoder-weights."
        )
    if smaller and out.suffix.lower() != ".safetensors":
        raise click.UsageError(
            f"--out of --format {form} must end in .safetensors. Received: {out}."
        )
    if not smaller and accept_imagenet:
        raise click.UsageError(
            f"--format {form} cannot be combined with --accept-imagenet."
        )
    from show_attend_tell.models.pretrained import NAMES, shipped_model

    if str(model) in NAMES:
        model = shipped_model(str(model))
    task = task_of_model(model)
    if form in ("saved_model", "litert") and chosen_backend() != "tensorflow":
        raise click.UsageError(
            f"--format {form} needs TensorFlow. Received: the backend "
            f"{chosen_backend()}; set KERAS_BACKEND=tensorflow, and run pip install "
            "'show-attend-tell[train]'"
        )
    # The excepted exports are written with NumPy alone.
    if form != "onnx" and not (smaller and task is CAPTIONING):
        start_keras()
    require_accepted(task, model, "the model of an experiment")
    if form == "saved_model":
        from show_attend_tell.deployment.exports.graphs import export_saved_model

        export_saved_model(model, out, encoder_weights, beam)
        click.echo(f"{out}")
    elif form == "litert":
        from show_attend_tell.deployment.exports.graphs import export_litert

        beside = export_litert(model, out, encoder_weights, beam)
        click.echo(f"{out}\n{beside}")
    elif form == "onnx":
        if find_spec("onnx") is None:
            raise click.UsageError(
                "--format onnx needs the package onnx; run pip install "
                "'show-attend-tell[onnx]'"
            )
        from show_attend_tell.deployment.exports.onnx_graphs import export_onnx

        export_onnx(model, out, encoder_weights, beam)
        click.echo(f"{out}")
    elif form == "keras":
        from show_attend_tell.deployment.exports.keras_file import export_keras

        assert task.load_model is not None  # as every task with models has one
        export_keras(model, out, beam, task.load_model)
        click.echo(f"{out}")
    else:
        from show_attend_tell.deployment.exports.half_precision import save_half

        eight_bit = form == "8bit"
        read_model = None if task is CAPTIONING else task.load_model
        size = save_half(model, out, accept_imagenet, eight_bit, beam, read_model)
        click.echo(f"{out}: {size / 1e6:.1f} MB")
