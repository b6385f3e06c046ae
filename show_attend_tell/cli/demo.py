"""Define the verb ``demo``, a web page for trained models."""

from importlib.util import find_spec
from pathlib import Path

import click

from show_attend_tell.cli.options import (
    PATH,
    encoder_weights_option,
    start_tensorflow,
)

_SHIPPED = ("Transformer", "LSTM")  # the choices on the page, of pretrained.NAMES
_LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.argument("models", nargs=-1, type=PATH, metavar="[MODEL]...")
@encoder_weights_option
@click.option("--host", default=_LOCAL[0], show_default=True, help="Address to serve.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to serve; 0 chooses a free one.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Maximum photos in progress and waiting; more are refused for the moment.",
)
def demo(models, encoder_weights, host, port, queue) -> None:
    """Serve a web page that captions photos.

    The page and its POST /caption are served on this machine.

    MODEL is a .keras file; with several, such as one with soft and one with hard
    attention, the page offers a choice. By default it offers both models of the
    package: the best by scores, a Transformer, and the paper's LSTM.
    """
    from show_attend_tell.deployment.server.serve import server_of, take_port
    from show_attend_tell.models.pretrained import NAMES, shipped_model

    if models:
        named = dict(zip(_names(models), models, strict=True))
    else:
        named = dict(zip(_SHIPPED, map(shipped_model, NAMES), strict=True))
    with take_port(host, port) as taken:
        app = _load(named, encoder_weights, queue, _hosts(host))
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"http://{shown}:{taken.getsockname()[1]} - stop with Ctrl-C")
        server_of(app).run(sockets=[taken])


def _load(named, encoder_weights, queue, hosts):
    """Load models; return the web application."""
    from data_prep.scenes.example_pictures import example_pictures
    from show_attend_tell.deployment.server.app import create_app
    from show_attend_tell.inference.pipeline import load
    from show_attend_tell.inference.request import CaptionRequest

    pipelines = {name: load(model, encoder_weights) for name, model in named.items()}
    for pipeline in pipelines.values():
        pipeline.compile(CaptionRequest())  # traces all graphs
    first = next(iter(pipelines.values()))
    examples = example_pictures(first.engine.encoder.settings.network == "SceneNet")
    digits = reader = None
    if find_spec("tensorflow") is not None:
        start_tensorflow()
        from show_attend_tell.deployment.server.digits import DigitModels
        from show_attend_tell.deployment.server.words import WordReader

        digits, reader = DigitModels.shipped(), WordReader.shipped()
    return create_app(
        *(pipelines, examples, queue), hosts=hosts, digits=digits, reader=reader
    )


def _hosts(host: str) -> list[str]:
    """Return the host names to which the server responds."""
    return [*_LOCAL, "[::1]"] if host in _LOCAL else ["*"]


def _names(models) -> list[str]:
    """Return distinct names of models: of the files, folders or whole paths."""
    names = [Path(model).stem for model in models]
    if len(set(names)) < len(names):
        names = [Path(model).absolute().parent.name for model in models]
    if len(set(names)) < len(names):
        names = [str(model) for model in models]
    return [f"{n} {k}" if n in names[:k] else n for k, n in enumerate(names)]
