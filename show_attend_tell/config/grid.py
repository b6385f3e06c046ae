"""Parse a grid of settings, and make an experiment of each of its points."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from tomllib import TOMLDecodeError

from show_attend_tell.config.experiments import seed_variants
from show_attend_tell.config.settings import (
    Experiment,
    experiment_from_dict,
    experiment_to_dict,
)
from show_attend_tell.config.toml import TOML_ERRORS, parse_toml
from show_attend_tell.runtime.errors import ConfigError, one_line, quote

_FORM = "`--grid` must be table.key=value,value, such as training.learning_rate=1e-4"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")
# Settings that another option varies, or whose runs cannot be compared.
_REFUSED = {
    "training.seed": "pass the seeds as --seeds 1,2,3",
    "data.name": "train each data set by a command of its own",
}


def parse_grid(axes: Iterable[str]) -> dict[str, list[object]]:
    """Parse the texts ``table.key=value,value`` of the option ``--grid``.

    Args:
        axes: one text for each setting; values are TOML, in which quotes around a word
            may be omitted.

    Returns:
        The values of each setting, by ``table.key``.

    Raises:
        ConfigError: a text is malformed, a value is empty, or a setting is given twice
            or may not vary.
    """
    grid: dict[str, list[object]] = {}
    for axis in axes:
        key, equals, text = axis.partition("=")
        key = key.strip()
        if not equals or not all(key.partition(".")[::2]) or key.count(".") != 1:
            raise ConfigError(f"{_FORM},5e-4. Received: {quote(axis)}")
        if remedy := _REFUSED.get(key):
            raise ConfigError(f"--grid: {key} may not vary; {remedy}")
        if key in grid:
            raise ConfigError(
                f"--grid: {key} is given twice; give all of its values together"
            )
        grid[key] = _parse_values(key, text)
    return grid


def _parse_values(key: str, text: str) -> list[object]:
    """Return the values of one setting."""
    empty = ConfigError(
        f"--grid: {key} has an empty value. Received: {quote(text)}; write a value "
        "between any two commas"
    )
    if text.strip().endswith(","):  # TOML permits it
        raise empty
    try:
        values = parse_toml(f"value = [{text}]")["value"]
    except TOMLDecodeError:  # words without quotes
        values = [_parse_value(part.strip()) for part in text.split(",")]
    except TOML_ERRORS as error:
        raise ConfigError(
            f"--grid: {key}: {quote(text)} cannot be read as TOML: {one_line(error)}"
        ) from None
    if not values or "" in values:
        raise empty
    return values


def _parse_value(text: str) -> object:
    try:
        return parse_toml(f"value = {text}")["value"]
    except TOML_ERRORS:
        return text


def grid_variants(
    experiment: Experiment,
    grid: Mapping[str, Sequence[object]],
    seeds: Sequence[int] | None = None,
) -> list[Experiment]:
    """Return the experiment with each point of a grid, and with each seed.

    The name of a variant is ``<name>-<key>-<value>-seed-<seed>``, with a key and a
    value for each setting of the grid.

    Args:
        experiment: the settings; any task.
        grid: values by ``table.key``, see :func:`parse_grid`.
        seeds: the seeds of each point; by default the experiment's own, which the name
            does not have.

    Raises:
        ConfigError: a setting is unknown or a value is out of range, a name is too
            long, or two variants have the same settings.
    """
    variants = []
    for point in itertools.product(*grid.values()):
        values = experiment_to_dict(experiment)
        name = experiment.name
        for key, value in zip(grid, point, strict=True):
            table, last = key.split(".")
            values[table] = {**values.get(table, {}), last: value}
            name += f"-{_label(key, grid)}-{_value_text(value)}"
        # Without a grid the settings are valid already.
        origin = "--grid" if grid else "--seeds"
        variant = experiment_from_dict({**values, "name": name}, origin)
        variants += [variant] if seeds is None else seed_variants(variant, seeds)
    _require_distinct(variants)
    return variants


def _label(key: str, grid: Mapping[str, object]) -> str:
    """Return the last part of a key, or all of it if two keys have the same one."""
    last = key.rpartition(".")[2]
    several = sum(other.rpartition(".")[2] == last for other in grid) > 1
    return key if several else last


def _value_text(value: object) -> str:
    """Return a value as a part of a name of a folder, other for other values."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    short = _NOT_IN_A_NAME.sub("_", text)[:40]
    if short == text and ".." not in text:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{short.replace('.', '_')}-{digest}"


def _require_distinct(variants: Sequence[Experiment]) -> None:
    """Raise an error if two variants have the same settings."""
    seen: list[tuple[dict, str]] = []
    for variant in variants:
        settings = {**experiment_to_dict(variant), "name": ""}
        for other, name in seen:
            if settings == other:
                raise ConfigError(
                    f"--grid, --seeds: {name} and {variant.name} have the same "
                    "settings; give each value once"
                )
        seen.append((settings, variant.name))
