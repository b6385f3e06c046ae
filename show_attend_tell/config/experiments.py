"""Find an experiment by its name or file, and change single settings of it.

The shipped experiments are the TOML files of ``experiments/``, which an installation
holds inside the package and a checkout beside it.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from show_attend_tell.config import settings as config
from show_attend_tell.config.settings import Experiment
from show_attend_tell.runtime.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped() -> dict[str, Path]:
    """Return the shipped experiments: name -> file, in the order of names."""
    for folder in (_PACKAGE / "experiments", _PACKAGE.parent / "experiments"):
        files = sorted(folder.glob("*.toml"))
        if files:
            return {file.stem: file for file in files}
    return {}


def find(name: str) -> Path:
    """Return the settings file that a person means by a name or a path.

    Args:
        name: a path ending in ``.toml``, or the bare name of a shipped experiment.

    Raises:
        ConfigError: no shipped experiment has that name.
    """
    if name.endswith(".toml"):
        return Path(name)
    known = shipped()
    if name not in known:
        raise ConfigError(
            f"`experiment` must be a .toml file or one of {', '.join(known)}. "
            f"Received: {name!r}; correct the name"
        )
    return known[name]


def load(name: str, changes: Iterable[str] = ()) -> Experiment:
    """Read an experiment and change single settings of it.

    Args:
        name: what :func:`find` takes.
        changes: ``table.key=value`` each, the value as in TOML; quotes around words
            may be left out.

    Raises:
        ConfigError: there is no such experiment, or a setting does not fit.
    """
    path = find(name)
    experiment = config.load(path)
    values = config.to_dict(experiment)
    for change in changes:
        _apply(values, change)
    return config.from_dict(values, str(path))


def _apply(values: dict, change: str) -> None:
    """Put one ``table.key=value`` into the nested tables."""
    key, equals, text = change.partition("=")
    *tables, last = key.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {}) if isinstance(values, dict) else None
    if not equals or not last or not isinstance(values, dict):
        raise ConfigError(
            "`--set` must be table.key=value, such as training.epochs=3. "
            f"Received: {change!r}"
        )
    values[last] = _parse(text.strip())


def _parse(text: str) -> object:
    """Read a value as TOML does, and anything else as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
