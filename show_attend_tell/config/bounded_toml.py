"""Parse TOML of a bounded size, as a malformed text may take the parser minutes."""

import tomllib
from pathlib import Path

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


def read_toml(path: Path) -> dict:
    """Read a TOML file; no more of it than may be parsed.

    Raises:
        ValueError, RecursionError: the file is too long, or not TOML.
        OSError: the file cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        return parse_toml(file.read(_LONGEST_TEXT + 1))
