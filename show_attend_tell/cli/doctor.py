"""Define the verb ``doctor``: report missing software and how to install it."""

import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec

import click

from show_attend_tell import __version__
from show_attend_tell.cli.options import Verb
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import one_line
from show_attend_tell.runtime.keras_startup import BACKENDS, backend_title

_PACKAGES = ("numpy", "pillow", "pydantic", "matplotlib")
_TRAINING = ("keras", "h5py", "hdf5plugin", "nltk", "pycocoevalcap")


@click.command(cls=Verb)
def doctor() -> None:
    """Check this machine and installation; exit with 1 on problems."""
    checks: list[Callable[[], Iterable[plugins.Finding]]] = [_check_packages]
    if find_spec("keras") is not None:  # not the plain install
        checks += [_check_java, _check_keras_file, _check_backend]
    checks.append(_check_plugins)
    problems = 0
    for check in checks:
        for level, text in check():
            click.echo(f"{level:8}{text}")
            problems += level == "problem"
    if problems:
        sys.exit(1)


def _check_packages() -> Iterator[plugins.Finding]:
    version = platform.python_version()
    software = f"show-attend-tell {__version__}, Python {version}"
    yield "OK", f"{software} on {platform.platform()}"
    versions = []
    missing = []
    backends = [name for name in BACKENDS if find_spec(name) is not None]
    for package in (*_PACKAGES, *_TRAINING, *(backends or ["tensorflow"])):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    yield "OK", ", ".join(versions)
    if missing:
        # Captions need the first list alone.
        level = "problem" if set(missing) & set(_PACKAGES) else "note"
        remedy = "pip install '.[train]'; captions need pip install . alone"
        yield level, f"not installed: {', '.join(missing)}; {remedy}"


def _check_java() -> Iterator[plugins.Finding]:
    from show_attend_tell.evaluation.metrics.java import java_version
    from show_attend_tell.runtime.errors import SetupError

    try:
        yield "OK", f"Java: {java_version()}"
    except SetupError as error:
        lost = "METEOR, SPICE and the PTB tokenizer are not available; other scores are"
        yield "note", f"{error}: {lost}"


def _check_keras_file() -> Iterator[plugins.Finding]:
    from show_attend_tell.runtime.errors import one_line
    from show_attend_tell.runtime.keras_startup import (
        ignored_keras_settings,
        keras_file,
    )

    try:
        ignored = ignored_keras_settings()
    except (OSError, ValueError) as error:
        yield "note", f"{keras_file()}: cannot be read: {one_line(error)}"
        return
    if ignored:
        values = ", ".join(f"{name} = {value!r}" for name, value in ignored.items())
        yield "note", f"{keras_file()}: {one_line(values)}: ignored by this program"


def _check_backend() -> Iterator[plugins.Finding]:
    from show_attend_tell.runtime.errors import SetupError
    from show_attend_tell.runtime.keras_startup import start_keras

    try:
        start_keras()
    except SetupError as error:
        yield "problem", str(error)
        return
    from show_attend_tell.runtime.backend import accelerators

    yield "OK", f"Keras runs on {backend_title()}"
    names = ", ".join(accelerators()) or "none, the CPU is used"
    yield "OK", f"GPUs: {names}"


def _check_plugins() -> Iterator[plugins.Finding]:
    found = plugins.installed()
    names = ", ".join(plugin.name for plugin in found)
    yield "OK", f"plug-ins: {names or 'none'}"
    for plugin in found:
        try:
            yield from plugin.doctor() if plugin.doctor is not None else ()
        except Exception as error:  # of a stranger's code
            yield "problem", f"plug-in {plugin.name}: {one_line(error)}"
