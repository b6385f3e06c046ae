"""Find an experiment by name or file, override settings and make variants."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from show_attend_tell.config.captioner import DECODERS, unread_tables
from show_attend_tell.config.settings import (
    TOML_ERRORS,
    AnyExperiment,
    Experiment,
    Tables,
    experiment_from_dict,
    experiment_to_dict,
    parse_toml,
    read_experiment_file,
)
from show_attend_tell.runtime.errors import (
    ConfigError,
    nearest,
    one_line,
    quote,
)

_LIMITED = re.compile(r"(.+)-first-\d+")
_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_experiments() -> dict[str, Path]:
    """Return the file of each shipped experiment by name, in alphabetical order.

    The files are inside the package in an installation and beside it in a checkout.
    """
    for folder in (_PACKAGE / "experiments", _PACKAGE.parent / "experiments"):
        files = sorted(folder.glob("*.toml"))
        if files:
            return {file.stem: file for file in files}
    return {}


def find_experiment(name: str) -> Path:
    """Return the settings file of an experiment.

    Args:
        name: a path ending in ``.toml``, or the bare name of a shipped experiment.

    Raises:
        ConfigError: no shipped experiment has that name.
    """
    if name.endswith(".toml"):
        return Path(name)
    known = shipped_experiments()
    if name not in known:
        close = nearest(name, known)
        choices = "a shipped one" if close else f"one of {', '.join(known)}"
        raise ConfigError(
            f"`experiment` must be a .toml file or {choices}. "
            f"Received: {quote(name)}{close}; correct the name"
        )
    return known[name]


def rename(experiment: AnyExperiment, name: str) -> AnyExperiment:
    """Return the experiment under another name, the name of its run folder.

    Raises:
        ConfigError: `name` is not the name of a folder.
    """
    values = experiment_to_dict(experiment) | {"name": name}
    return experiment_from_dict(values, "--name")


def nearest_shipped(experiment: AnyExperiment) -> tuple[str, Tables]:
    """Return the shipped experiment with the fewest other settings, and these.

    The settings are the experiment's own, table.key -> value, without its name.
    """
    own = _flat(experiment)
    found: list[tuple[str, Tables]] = []
    for name, file in shipped_experiments().items():
        try:
            shipped = read_experiment_file(file)
        except ConfigError:  # of a plug-in that is not installed
            continue
        if shipped.task == experiment.task:
            theirs = _flat(shipped)
            others = {k: x for k, x in own.items() if k not in theirs or theirs[k] != x}
            found.append((name, others))
    return min(found, key=lambda pair: len(pair[1]), default=("no shipped one", {}))


def _flat(experiment: AnyExperiment) -> Tables:
    return {
        f"{table}.{key}": value
        for table, values in experiment_to_dict(experiment).items()
        if isinstance(values, dict)
        for key, value in values.items()
    }


def seed_variants(
    experiment: AnyExperiment, seeds: Iterable[int]
) -> list[AnyExperiment]:
    """Return the experiment with each seed, named ``<name>-seed-<seed>``.

    Raises:
        ConfigError: a seed is out of range, or a name too long.
    """
    values = experiment_to_dict(experiment)
    return [
        experiment_from_dict(
            {
                **values,
                "name": f"{experiment.name}-seed-{seed}",
                "training": {**values["training"], "seed": seed},
            },
            "--seeds",
        )
        for seed in seeds
    ]


def limit_experiment(experiment: AnyExperiment, limit: int) -> AnyExperiment:
    """Return the experiment with the first photos, or digits, of each split only.

    Its prepared folders, those of ``data.also`` too, and its run have the suffix
    ``-first-<limit>``, so that limited features and models are never mistaken for
    complete ones. Photos and features are taken from a whole set if it is prepared.

    Args:
        experiment: the settings.
        limit: number of photos of each split, in the order of the data set.
    """
    suffix = f"-first-{limit}"
    changes: dict[str, Any] = {"name": experiment.data.name + suffix}
    # The data settings of plug-ins have no further sets.
    also = getattr(experiment.data, "also", None)
    if also:
        changes["also"] = {name + suffix: weight for name, weight in also.items()}
    # The number of training items that the data of a plug-in hold back, if they do.
    held_back = getattr(experiment.data, "validation", None)
    if held_back is not None:
        changes["validation"] = min(held_back, limit)
    data = dataclasses.replace(experiment.data, **changes)
    values: Any = experiment  # a dataclass, which a Protocol cannot say
    limited: AnyExperiment
    limited = dataclasses.replace(values, name=experiment.name + suffix, data=data)
    return limited


def whole_folder(folder: Path) -> Path | None:
    """Return the prepared folder of the whole data set, None if this one is whole.

    Args:
        folder: the prepared folder of a data set, perhaps of a limited one.
    """
    found = _LIMITED.fullmatch(folder.name)
    return folder.with_name(found[1]) if found else None


def load_experiment(name: str, changes: Iterable[str] = ()) -> AnyExperiment:
    """Read an experiment and override single settings.

    Args:
        name: name or file of the experiment, see :func:`find_experiment`.
        changes: overrides ``table.key=value``, as ``--set`` takes them; the value is
            TOML, in which quotes around a word may be omitted.

    Raises:
        ConfigError: there is no such experiment, a setting is invalid, or a change
            has no effect.
    """
    changes = tuple(changes)
    experiment = read_experiment_file(find_experiment(name))
    values = experiment_to_dict(experiment)
    for change in changes:
        _apply_change(values, change)
    # The file alone is valid, so any fault is in the changes.
    changed = experiment_from_dict(values, "--set")
    if isinstance(changed, Experiment):
        _require_effect(changed, changes)
    return changed


def unused_settings(experiment: Experiment) -> list[str]:
    """Return the keys of ``[model]`` that the decoder ignores and that are set."""
    model = experiment.model
    default = type(model)()
    return sorted(
        f"model.{name}"
        for name in DECODERS[model.decoder].unused
        if getattr(model, name) != getattr(default, name)
    )


def _require_effect(experiment: Experiment, changes: Iterable[str]) -> None:
    """Raise ConfigError if a change has no effect with the decoder or the attention."""
    model = experiment.model
    decoder = DECODERS[model.decoder]
    # None if its widths and switches are in [model].
    own_table = getattr(experiment, decoder.table, None)
    unread = unread_tables(model.decoder)
    for change in changes:
        key = change.partition("=")[0].strip()
        table, _, name = key.partition(".")
        if table == "model" and name in decoder.unused:
            reason = f"model.decoder = {model.decoder!r}"
            has_own = hasattr(own_table, name)
            advice = f"set {decoder.table}.{name}" if has_own else "leave it out"
        elif table in unread:
            reason = f"model.decoder = {model.decoder!r}"
            advice = f"leave it out, or set model.decoder = {unread[table]!r}"
        elif table == "hard" and model.attention != "hard":
            reason = f"model.attention = {model.attention!r}"
            advice = "leave it out, or set model.attention = 'hard'"
        else:
            continue
        raise ConfigError(f"--set: {key} has no effect with {reason}; {advice}")


def caption_experiment(name: str, changes: Iterable[str] = ()) -> Experiment:
    """Read an experiment with captions; see :func:`load_experiment`.

    Raises:
        ConfigError: its task is another, or see the same function.
    """
    experiment = load_experiment(name, changes)
    if not isinstance(experiment, Experiment):
        raise ConfigError(
            f"`experiment` must be one with captions. Received: {quote(name)}, whose "
            f"task is {experiment.task!r}; run `show-attend-tell train -e {name}`"
        )
    return experiment


def _apply_change(values: Tables, change: str) -> None:
    """Store the value of one ``table.key=value`` in the nested tables."""
    key, equals, text = change.partition("=")
    *tables, last = key.strip().split(".")
    for table in tables:
        # An unknown table is made here, and then refused by the validation.
        values = values.setdefault(table, {}) if isinstance(values, dict) else None
    if not equals or not last or not isinstance(values, dict):
        raise ConfigError(
            "`--set` must be table.key=value, such as training.epochs=3. "
            f"Received: {quote(change)}"
        )
    values[last] = _parse_value(text.strip())


def _parse_value(text: str) -> object:
    """Parse a TOML value; text that is not TOML is a string."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except TOML_ERRORS as error:  # too many digits, or levels
        raise ConfigError(
            f"--set: {quote(text)} cannot be read as TOML: {one_line(error)}"
        ) from None
