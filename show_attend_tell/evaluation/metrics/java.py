"""Run Java programs with a fixed locale, a time limit and bounded output."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pycocoevalcap

from show_attend_tell.runtime.errors import JavaError

# Numbers with a decimal point and text in UTF-8, whatever the user's locale.
_FLAGS = (
    "-Duser.language=en",
    "-Duser.country=US",
    "-Duser.language.format=en",
    "-Duser.country.format=US",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
)
_MESSAGES_LIMIT = 1 << 16  # bytes of standard error that are searched for the reason
_MESSAGE_LIMIT = 200  # characters of a line of standard error that are quoted


class JavaOutput(NamedTuple):
    """Standard output as text, and the program's own lines of standard error."""

    text: str
    messages: list[str]


def jar_path(*parts: str) -> str:
    """Return the path of a file that pycocoevalcap ships.

    Args:
        parts: folders and name of the file inside the package.

    Raises:
        JavaError: the installation lacks the file.
    """
    path = Path(pycocoevalcap.__path__[0], *parts)
    if not path.is_file():
        raise JavaError(f"{path}: missing; reinstall pycocoevalcap")
    return str(path)


def run_java(
    name: str, arguments: list[str], text: str, timeout: float, limit: int
) -> JavaOutput:
    """Run a Java program to its end; it is killed at the time limit and by Ctrl-C.

    Args:
        name: name of the program in errors.
        arguments: arguments of ``java``, after the flags that fix locale and encoding.
        text: the whole standard input.
        timeout: seconds until the program is killed.
        limit: largest output that is accepted, in bytes.

    Raises:
        JavaError: Java is absent or cannot be started, or the program fails, prints
            more than `limit` bytes or exceeds `timeout`.
    """
    java = shutil.which("java")
    if java is None:
        raise JavaError(f"{name} needs Java: no `java` on the PATH, install it")
    # Files, not pipes, for the output: any amount of it takes no memory.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                [java, *_FLAGS, *arguments],
                input=text.encode("utf-8", "replace"),
                stdout=output,
                stderr=errors,
                timeout=timeout,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise JavaError(f"{name}: java did not end in {timeout:g} s") from None
        except OSError as error:
            raise JavaError(f"{name}: {java} cannot be run: {error}") from None
        printed, messages = _read(output, limit + 1), _own_lines(errors)
    if done.returncode != 0:
        raise JavaError(
            f"{name}: java stopped with status {done.returncode}: {_reason(messages)}"
        )
    if len(printed) > limit:
        raise JavaError(f"{name}: java printed more than {limit} bytes")
    return JavaOutput(printed.decode("utf-8", "replace"), messages)


def java_version(timeout: float) -> str:
    """Return the first line of ``java -version``, or ``unknown`` when that fails."""
    try:
        done = run_java("java -version", ["-version"], "", timeout, _MESSAGES_LIMIT)
    except JavaError:
        return "unknown"
    return (done.messages or ["unknown"])[0]


def _read(file, limit: int) -> bytes:
    file.seek(0)
    return file.read(limit)


def _own_lines(errors) -> list[str]:
    """Return the lines of standard error without Java's remarks on the environment."""
    text = _read(errors, _MESSAGES_LIMIT).decode("utf-8", "replace")
    lines = [line.strip()[:_MESSAGE_LIMIT] for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("Picked up ")]


def _reason(messages: list[str]) -> str:
    """Return the line that names an exception, else the last line."""
    named = [line for line in messages if "Exception" in line or "Error" in line]
    return (named[:1] or messages[-1:] or ["it gave no reason"])[0]


def _environment() -> dict[str, str]:
    """Return our environment; ``_JAVA_OPTIONS`` would overrule the command line."""
    environment = dict(os.environ)
    if "_JAVA_OPTIONS" in environment:
        environment["_JAVA_OPTIONS"] += " " + " ".join(_FLAGS)
    return environment
