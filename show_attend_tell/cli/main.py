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
from show_attend_tell.cli.caption import caption
from show_attend_tell.cli.convert import convert
from show_attend_tell.cli.deployment import demo, export
from show_attend_tell.cli.doctor import doctor
from show_attend_tell.cli.evaluate import compare, evaluate
from show_attend_tell.cli.options import START_OVER, Verb, in_one_line
from show_attend_tell.cli.preparation import download, features, prepare
from show_attend_tell.cli.train import average, calibrate, fit_reranker, train
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import ShowAttendTellError, nearest

_OWN_PACKAGES = ("show_attend_tell", "data_prep")
# 128 + the signal's number, by convention of shells.
_INTERRUPTED = 130
_TERMINATED = 143
_INSTALL = "run pip install 'show-attend-tell[train]'"


class _Verbs(click.Group):
    """The verbs; an unknown one is answered with the nearest."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a verb; plug-ins are loaded only for a name that is not the core's."""
        return super().get_command(context, name) or plugins.commands().get(name)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all verbs, sorted."""
        return sorted([*self.commands, *plugins.commands()])

    def resolve_command(self, context: click.Context, words: list[str]):
        """Return the name and the command of a verb, and its arguments."""
        name = words[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            close = nearest(name, self.list_commands(context))
            context.fail(f"No such command {name!r}{close}.")
        return super().resolve_command(context, words)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
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
for verb in (caption, compare, convert, demo, doctor, export, download):
    cli.add_command(verb)


def _exit_interrupted(
    arguments: Sequence[str] | None, terminated: bool, error: BaseException | None
) -> None:
    """Print how to continue the interrupted verb, and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    context = click.Context(cli)
    verbs = (cli.get_command(context, word) for word in words)
    verb = next((verb for verb in verbs if isinstance(verb, Verb)), None)
    remedy = START_OVER if verb is None else verb.remedy(words)
    # A note on the interruption or on its cause knows what there is to continue.
    while error is not None:
        remedy = next(iter(getattr(error, "__notes__", ())), remedy)
        error = error.__cause__
    click.echo(f"{'terminated' if terminated else 'interrupted'}; {remedy}", err=True)
    sys.exit(_TERMINATED if terminated else _INTERRUPTED)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[threading.Event]:
    """Raise KeyboardInterrupt at the first SIGTERM, so that verbs end as after Ctrl-C.

    Later signals are ignored: the verb is writing its last file.

    Yields:
        An event that is set once the signal has come.
    """
    terminated = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield terminated  # only the main thread receives signals
        return

    def interrupt(number: int, frame: object) -> None:
        if not terminated.is_set():
            terminated.set()
            raise KeyboardInterrupt

    def raise_again(unraisable) -> None:
        """Interrupt again if Python dropped the error, as in a destructor."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Later, because Python would drop an error of this function too.
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            hook(unraisable)

    hook = sys.unraisablehook
    before = signal.signal(signal.SIGTERM, interrupt)
    # Python calls it with an error of a destructor, which it then drops.
    sys.unraisablehook = raise_again
    try:
        yield terminated
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 (error), 2 (usage), 130 or 143 (stopped)."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may be invalid text
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # Libraries only warn; this program also says what it does.
    for package in _OWN_PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO)
    with _interrupted_by_sigterm() as terminated:
        _run(arguments, terminated)


def _run(arguments: Sequence[str] | None, terminated: threading.Event) -> None:
    """Run the command line; exit unless it succeeds."""
    try:
        # In its standalone mode click itself ends the process, with 1 after Ctrl-C.
        cli.main(arguments, prog_name="show-attend-tell", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        _exit_interrupted(arguments, terminated.is_set(), error)
    except BrokenPipeError:  # the reading program, such as head, has closed the pipe
        # Python flushes standard output when it exits, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        # An absent module of this package is a mistake, which needs its traceback.
        if error.name is None or error.name.split(".")[0] in _OWN_PACKAGES:
            raise
        click.echo(f"error: {error.name} is not installed; {_INSTALL}", err=True)
        sys.exit(1)
    except (ShowAttendTellError, OSError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.strerror and error.filename:
            message = f"{error.filename}: {error.strerror}"
        click.echo(in_one_line(f"error: {message}"), err=True)
        sys.exit(1)
    except Exception as error:
        # C code replaces an interruption by errors of any type: pybind11 by a
        # RuntimeError, an extension that is being imported by an UnboundLocalError.
        cause = error.__cause__ or error.__context__
        is_cause = isinstance(cause, KeyboardInterrupt)
        is_named = "KeyboardInterrupt" in str(error)
        if not (terminated.is_set() or is_cause or is_named):
            raise
        _exit_interrupted(arguments, terminated.is_set(), cause)
