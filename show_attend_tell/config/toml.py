"""Parse TOML of a bounded size, and describe faulty settings in one line each."""

import dataclasses
import tomllib
import typing

from show_attend_tell.runtime.errors import nearest, one_line, quote

# A run of dotted keys takes quadratic time.
_LONGEST_TEXT, _LONGEST_LINE = 2**16, 2**13  # characters

# Errors of parsing: a TOMLDecodeError, an integer of too many digits or a text that is
# not UTF-8 (ValueError), and lists that are nested too deeply.
TOML_ERRORS = (ValueError, RecursionError)


def parse_toml(text: str) -> dict:
    """Parse TOML.

    Raises:
        ValueError, RecursionError: the text is too long or not TOML.
    """
    longest = max(map(len, text.splitlines()), default=0)
    if len(text) > _LONGEST_TEXT or longest > _LONGEST_LINE:
        raise ValueError(
            f"must be at most {_LONGEST_TEXT} characters, {_LONGEST_LINE} in a line"
        )
    return tomllib.loads(text)


def describe_fault(fault: dict, tables: type) -> str:
    """Describe one of pydantic's errors by key, fault and remedy.

    Args:
        fault: an entry of ``ValidationError.errors()``.
        tables: the dataclass of the settings, whose keys are suggested.
    """
    key = " ".join(".".join(map(str, fault["loc"])).split())[:80] or "settings"
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        close = _nearest(key, tables)
        return f"{key}: unknown key{close}; remove it or correct its spelling"
    if fault["type"] in ("missing", "missing_argument"):
        return f"{key}: missing, add it"
    if fault["type"] == "value_error":  # raised above, with the value received
        return f"{key}: {one_line(fault['ctx']['error'], 300)}"
    message = fault["msg"]
    if fault["type"] == "string_pattern_mismatch":  # of a name
        message = (
            "must be the name of a folder: letters, digits, '_', '-' and single dots, "
            "a letter or digit first"
        )
    return f"{key}: {message}. Received: {quote(fault['input'])}"


def _nearest(key: str, tables: type) -> str:
    """Return ``, nearest: <known key>``, empty if no known key is similar."""
    names = [field.name for field in dataclasses.fields(tables)]
    known = _known_keys(tables) if "." in key else names + _known_keys(tables)
    same = [name for name in known if name.split(".")[-1] == key.split(".")[-1]]
    return f", nearest: {same[0]}" if same else nearest(key, known)


def _known_keys(tables: type) -> list[str]:
    """Return every key of every table as ``table.key``."""
    return [
        f"{table.name}.{field.name}"
        for table in dataclasses.fields(tables)
        for kind in (table.type, *typing.get_args(table.type))  # or of `table | None`
        if dataclasses.is_dataclass(kind)
        for field in dataclasses.fields(kind)
    ]
