"""Run the console script ``show-attend-tell``: argument parsing and printing only.

Each verb imports its modules when it runs, so that ``--help`` is fast.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from show_attend_tell import __version__
from show_attend_tell.cli.caption import average, caption, export
from show_attend_tell.cli.demo import demo
from show_attend_tell.cli.options import (
    PATH,
    encoder_weights_option,
    experiment_option,
    limit_option,
    runs_option,
    set_option,
    start_tensorflow,
    work_option,
)
from show_attend_tell.runtime.errors import ShowAttendTellError

_OWN_PACKAGES = ("show_attend_tell", "data_prep")
# 128 + the signal's number, by convention of shells.
_INTERRUPTED, _TERMINATED = 130, 143
_CONTINUES = "run the same command again to continue"
_REMEDIES = {
    "caption": "run the same command again; with --out it continues",
    "demo": "the server has stopped",
    "download": _CONTINUES,
    "features": _CONTINUES,
    "train": "continue with --resume, or without it if there is no checkpoint yet",
}


def _load_experiment(name: str, changes: Sequence[str], limit: int | None = None):
    from show_attend_tell.config.experiments import load_experiment

    experiment = load_experiment(name, changes)
    if limit is not None:
        from show_attend_tell.config.limits import limit_experiment, limit_message

        experiment = limit_experiment(experiment, limit)
        click.echo(limit_message(experiment, limit))
    return experiment


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a callback (name, done, total) that draws bars, None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    bars = {}

    def report(path: object, done: int, total: int) -> None:
        name = Path(str(path)).name
        if name not in bars:
            bars[name] = tqdm(desc=name, total=total, initial=done, unit_scale=True)
        bars[name].update(done - bars[name].n)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success; 1 error, with one line on standard error; 2 wrong "
    "usage; 130 interrupted by Ctrl-C; 143 terminated by SIGTERM. Both leave whole "
    "files, and train writes a checkpoint first.",
)
@click.version_option(__version__, prog_name="show-attend-tell")
def cli() -> None:
    """Caption photos by Show, Attend and Tell, in Keras 3.

    `caption` describes your photos with the pretrained model. To train on a data set,
    run prepare, features, train and eval in this order.
    """


for verb in (average, caption, demo, export):
    cli.add_command(verb)


@cli.command()
@experiment_option
@set_option
@work_option
@click.option(
    "--data", type=PATH, help="Folder with the data set's photos and captions."
)
@click.option(
    "--on-problem",
    type=click.Choice(["skip", "refuse"]),
    default="skip",
    show_default=True,
    help="Skip malformed lines and photos, or refuse the data set.",
)
@limit_option
def prepare(experiment, changes, work, data, on_problem, limit) -> None:
    """Make the manifest and the vocabulary of a data set."""
    from data_prep.prepare import prepare

    settings = _load_experiment(experiment, changes, limit)
    with _progress() as progress:
        report = prepare(settings, data, work, on_problem, progress, limit)
    click.echo("\n".join(report.lines()))


@cli.command()
@experiment_option
@set_option
@work_option
@encoder_weights_option
@click.option("--overwrite", is_flag=True, help="Replace existing features.")
@limit_option
def features(experiment, changes, work, encoder_weights, overwrite, limit) -> None:
    """Extract annotation vectors of prepared photos.

    An interrupted extraction resumes when it is run again.
    """
    settings = _load_experiment(experiment, changes, limit)
    start_tensorflow()
    from data_prep.extract import extract

    report = extract(settings, work, encoder_weights, overwrite)
    click.echo("\n".join(report.lines()))


@cli.command()
@experiment_option
@set_option
@work_option
@runs_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Random seed, in place of training.seed.",
)
@click.option(
    "--init-from",
    metavar="MODEL|NAME",
    help="Initial model: a .keras file, the experiment of another run, or `shipped`. "
    "Its words are kept, and those that are new in the data are added.",
)
@click.option(
    *("--text", "texts"),
    metavar="FILE",
    multiple=True,
    help="Train on captions without photos, one a line; repeatable. The run is "
    "<experiment>-text, from which --init-from can start a training with photos.",
)
@click.option("--resume", is_flag=True, help="Continue from the run's last checkpoint.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier run.")
@limit_option
def train(
    experiment, changes, work, runs, seed, init_from, texts, resume, overwrite, limit
) -> None:
    """Train a captioner on prepared features."""
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other.")
    own = {"seed": seed, "init_from": init_from}
    own = [f"training.{key}={v}" for key, v in own.items() if v is not None]
    settings = _load_experiment(experiment, (*changes, *own), limit)
    start_tensorflow()
    from show_attend_tell.training.text_likelihood import text_experiment
    from show_attend_tell.training.train import train

    settings = text_experiment(settings, texts) if texts else settings
    done = train(settings, work, runs, resume, overwrite)
    click.echo(
        f"{done.steps} steps in {done.seconds:.0f} s, {done.stopped}; best "
        f"{done.metric} {done.best:.2f} at step {done.best_step}"
    )
    click.echo(f"model: {done.model}")


@cli.command("eval")
@experiment_option
@set_option
@work_option
@runs_option
@click.option(
    "--split",
    type=click.Choice(["val", "test"]),
    help="Split to evaluate; by default test if it has captions, else val.",
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
    experiment, changes, work, runs, split, beams, captions, tokenizer, spice, limit
) -> None:
    """Generate the captions of a split, and save and score them."""
    if captions is not None and beams:
        raise click.UsageError("--captions and --beam exclude each other.")
    settings = _load_experiment(experiment, changes, limit)
    start_tensorflow()
    from show_attend_tell.evaluation import evaluate as evaluation
    from show_attend_tell.evaluation.report import table

    scoring = {"tokenizer": tokenizer, "spice": spice}
    if captions is not None:
        reports = [evaluation.score_file(captions, settings, work, split, **scoring)]
    else:
        where = (settings, work, runs, split)
        if len(beams) > 1:
            reports = evaluation.compare(*where, beams, **scoring)
        else:
            reports = [evaluation.evaluate(*where, *beams, **scoring)]
    click.echo("\n".join(table(reports)))


@cli.command()
@click.argument("source", metavar="SOURCE")
@click.option(
    "--data", type=PATH, required=True, help="Folder of the downloaded files."
)
def download(source, data) -> None:
    """Download a data set with public URLs, such as coco.

    An interrupted download resumes when it is run again.
    """
    from data_prep import download
    from data_prep.disk import format_bytes, free_bytes

    if size := download.total_size(source):
        free = format_bytes(free_bytes(data))
        click.echo(f"{format_bytes(size)} to download, {free} free in {data}")
    with _progress() as progress:
        files = download.download(source, data, progress)
    click.echo("\n".join(map(str, files)))


@cli.command()
def doctor() -> None:
    """Check this machine and installation; exits with 1 on problems."""
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
    return _REMEDIES.get(verb, "run the same command again to start over")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at the first SIGTERM, so that verbs end as by Ctrl-C.

    Later ones are ignored: the verb is writing its last file.

    Yields:
        A list, to which the signal is added when it arrives.
    """
    received = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread receives signals
        return

    def interrupt(number: int, frame: object) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 (error), 2 (usage), 130 or 143 (stopped)."""
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
    except SystemError as error:  # C code turns an interruption of its imports into it
        if not isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise
        _exit_interrupted(arguments, received)
    except BrokenPipeError:  # the reader of the pipe, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ShowAttendTellError, OSError) as error:
        click.echo(f"error: {_one_line(error)}", err=True)
        sys.exit(1)
