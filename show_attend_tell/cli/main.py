"""Run the console script ``show-attend-tell``.

Each verb imports its modules when it runs, so that ``--help`` is fast.
"""

import _thread
import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import click

from show_attend_tell import __version__
from show_attend_tell.cli.calibrate import calibrate
from show_attend_tell.cli.caption import caption
from show_attend_tell.cli.compare import compare
from show_attend_tell.cli.demo import demo
from show_attend_tell.cli.draw import draw
from show_attend_tell.cli.evaluate import evaluate
from show_attend_tell.cli.fit_reranker import fit_reranker
from show_attend_tell.cli.models import average, export
from show_attend_tell.cli.preparation import download, features, prepare
from show_attend_tell.cli.read import read
from show_attend_tell.cli.train import train
from show_attend_tell.runtime.errors import ShowAttendTellError

_OWN_PACKAGES = ("show_attend_tell", "data_prep")
# 128 + the signal's number, by convention of shells.
_INTERRUPTED, _TERMINATED = 130, 143
_INSTALL = "run pip install 'show-attend-tell[train]'"
_CONTINUES = "run the same command again to continue"
_REMEDIES = {
    "caption": "run the same command again; with --out it continues",
    "demo": "the server has stopped",
    "download": _CONTINUES,
    "features": _CONTINUES,
    "prepare": _CONTINUES,
    "read": "run the same command again; with --out it continues",
    "train": "continue with --resume, or without it if there is no checkpoint yet",
}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success; 1 error, with one line on standard error; 2 wrong "
    "usage; 130 interrupted by Ctrl-C; 143 terminated by SIGTERM. An interrupted verb "
    "leaves complete files; train writes a checkpoint first.",
)
@click.version_option(__version__, prog_name="show-attend-tell")
def cli() -> None:
    """Caption photos with Show, Attend and Tell, in Keras 3.

    `caption` describes your photos with the pretrained model. To train on a data set,
    run prepare, features, train and eval in this order.
    """


for verb in (prepare, features, train, evaluate, average, calibrate, fit_reranker):
    cli.add_command(verb)
for verb in (caption, compare, demo, draw, export, download, read):
    cli.add_command(verb)


@cli.command()
def doctor() -> None:
    """Check this machine and installation; exit with 1 on problems."""
    from show_attend_tell.cli.doctor import examine

    problems = 0
    for level, text in examine():
        click.echo(f"{level:8}{text}")
        problems += level == "problem"
    if problems:
        sys.exit(1)


def _remedy(arguments: Sequence[str] | None) -> str:
    """Return how to continue the interrupted verb of a command line."""
    words = sys.argv[1:] if arguments is None else arguments
    verb = next((word for word in words if word in cli.commands), "")
    if verb == "features" and "--overwrite" in words:
        return "run it again without --overwrite to continue"
    return _REMEDIES.get(verb, "run the same command again to start over")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at the first SIGTERM, so that verbs end as after Ctrl-C.

    Later signals are ignored: the verb is writing its last file.

    Yields:
        A list that receives the signal.
    """
    received = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread receives signals
        return

    def interrupt(number: int, frame: object) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    def raise_again(unraisable, hook=sys.unraisablehook) -> None:
        """Interrupt again if Python dropped the error, as in a destructor."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Later, because Python would drop an error of this function too.
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            hook(unraisable)

    before, hook = signal.signal(signal.SIGTERM, interrupt), sys.unraisablehook
    sys.unraisablehook = raise_again
    try:
        yield received
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 (error), 2 (usage), 130 or 143 (stopped)."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may be invalid text
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for package in _OWN_PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO)
    with _interrupted_by_sigterm() as received:
        _run(arguments, received)


def _exit_interrupted(arguments: Sequence[str] | None, received: list[int]) -> None:
    what = "terminated" if received else "interrupted"
    click.echo(f"{what}; {_remedy(arguments)}", err=True)
    sys.exit(_TERMINATED if received else _INTERRUPTED)


def _run(arguments: Sequence[str] | None, received: list[int]) -> None:
    """Run the command line; exit unless it succeeds."""
    try:
        cli.main(arguments, prog_name="show-attend-tell", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _exit_interrupted(arguments, received)
    except (SystemError, RuntimeError) as error:  # C code raises them when interrupted
        cause = error.__cause__ or error.__context__
        if not (received or isinstance(cause, KeyboardInterrupt)):
            raise
        _exit_interrupted(arguments, received)
    except BrokenPipeError:  # the reading program, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in _OWN_PACKAGES:
            raise
        click.echo(f"error: {error.name} is not installed; {_INSTALL}", err=True)
        sys.exit(1)
    except (ShowAttendTellError, OSError) as error:
        click.echo(f"error: {_one_line(error)}", err=True)
        sys.exit(1)
