"""Define every error that a user may meet, as one tree under a common base class.

Each message is one line: the requirement, the value received and the remedy. The
command line prints the message and ends with exit status 1.
"""

import difflib
from collections.abc import Iterable


class ShowAttendTellError(ValueError):
    """The base class: catch it to catch every error below."""


def one_line(error: object, limit: int = 200) -> str:
    """Return an error's message as one line of at most `limit` characters."""
    return _cut(" ".join(str(error).split()) or type(error).__name__, limit)


def quote(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to `limit` characters, to quote it in an error.

    The result for integers of thousands of digits and deeply nested lists, whose
    ``repr`` fails, is the name of their type.
    """
    try:
        return _cut(repr(value), limit)
    except (ValueError, RecursionError):
        return f"{type(value).__name__}, too large to print"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``, nearest: <known name>``, empty if no known name is similar.

    An abbreviated key of a table is similar too: the initials of its words, such as
    ``training.lr`` for ``training.learning_rate``, or one of its words.
    """
    lower = {each.lower(): each for each in known}
    close = [each for each in lower if _abbreviates(name.lower(), each)]
    close = close or difflib.get_close_matches(name.lower(), lower, n=1)
    return f", nearest: {lower[close[0]]}" if close else ""


def _abbreviates(name: str, known: str) -> bool:
    """Return whether TABLE.KEY abbreviates another key of the same table."""
    table, _, key = name.rpartition(".")
    other, _, whole = known.rpartition(".")
    words = whole.split("_")
    initials = "".join(word[:1] for word in words)
    return bool(table) and table == other and key in (initials, *words)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 photo``, ``2,000 photos``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class ConfigError(ShowAttendTellError):
    """An experiment's settings are malformed, unknown or out of range."""


class SetupError(ShowAttendTellError):
    """Keras, Java, a cluster, a port or a packaged model is absent or fails."""


class DataError(ShowAttendTellError):
    """A data set, a download or prepared data are absent, malformed or unwritable.

    Prepared data are a manifest, a vocabulary and features.
    """


class PhotoError(ShowAttendTellError):
    """A photo cannot be decoded."""


class ModelFileError(ShowAttendTellError):
    """A model or an encoder cannot be read, built, calibrated or exported."""


class TrainingError(ShowAttendTellError):
    """Training has diverged, or a run folder is absent, in use or of other settings."""


class CaptionError(ShowAttendTellError):
    """Photos cannot be captioned, or their captions cannot be written."""


class EvaluationError(ShowAttendTellError):
    """Captions cannot be scored, or their file is malformed or incomplete."""
