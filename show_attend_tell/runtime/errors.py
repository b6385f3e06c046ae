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
    """Return ``, nearest: <known name>``, empty if no known name is similar."""
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f", nearest: {lower[close[0]]}" if close else ""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 photo``, ``2,000 photos``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


# --- settings and runs ---


class ConfigError(ShowAttendTellError):
    """An experiment's settings are malformed, unknown or out of range."""


class BackendError(ShowAttendTellError):
    """Keras runs on another backend than TensorFlow, or cannot be imported."""


class RunError(ShowAttendTellError):
    """A run folder is absent, in use, or made with other settings."""


class ClusterError(ShowAttendTellError):
    """A cluster cannot be used: Ray is absent, or a worker differs or failed."""


class TrainingError(ShowAttendTellError):
    """Training has diverged: its loss or weights are not finite, or far too large."""


# --- data ---


class DataError(ShowAttendTellError):
    """Data cannot be prepared or read: files are absent, malformed or unwritable."""


class DownloadError(ShowAttendTellError):
    """A file cannot be downloaded."""


class PhotoError(ShowAttendTellError):
    """A photo cannot be decoded."""


class ManifestError(ShowAttendTellError):
    """A manifest is absent, malformed, or has no photos of the split."""


class VocabularyError(ShowAttendTellError):
    """A vocabulary file is absent or malformed."""


class FeatureError(ShowAttendTellError):
    """A feature file is absent, incomplete, damaged, or of another encoder."""


# --- models ---


class EncoderError(ShowAttendTellError):
    """An encoder cannot be built, or its weights cannot be loaded."""


class ModelFileError(ShowAttendTellError):
    """A model file is absent or damaged, or holds no captioner."""


class MissingEquationsError(ModelFileError):
    """A model's decoder has a layer of Keras, but no equations in NumPy."""


class CalibrationError(ShowAttendTellError):
    """A calibration is damaged or belongs to another model, or its data are missing."""


class PretrainedModelError(ShowAttendTellError):
    """The installation has no pretrained model."""


class ExportError(ShowAttendTellError):
    """A model cannot be exported in the requested form."""


# --- captions and scores ---


class CaptionError(ShowAttendTellError):
    """Photos cannot be captioned with this model or these options."""


class OutputFileError(ShowAttendTellError):
    """Captions cannot be appended to the output file."""


class MetadataError(ShowAttendTellError):
    """The metadata of a photo cannot be read or written."""


class EvaluationError(ShowAttendTellError):
    """A split cannot be evaluated with these options."""


class ResultsFileError(ShowAttendTellError):
    """A file of captions in the COCO results format is malformed or incomplete."""


class MetricsError(ShowAttendTellError):
    """Captions cannot be scored."""


class JavaError(MetricsError):
    """A Java program is absent, fails, or exceeds its time limit."""


# --- server ---


class PortError(ShowAttendTellError):
    """The port cannot be opened."""
