"""Parse JSON from an untrusted source."""

import json
from collections.abc import Callable


def parse_json(
    text: str | bytes,
    object_pairs_hook: Callable[[list[tuple[str, object]]], object] | None = None,
) -> object:
    """Parse a JSON document.

    Args:
        text: the document; bytes are decoded as UTF-8, UTF-16 or UTF-32.
        object_pairs_hook: see ``json.loads``; it must not raise an error.

    Raises:
        ValueError: the document is malformed, nested too deeply or has a huge number;
            the message is short and on one line.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise ValueError(f"{error.msg}: {place}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not {error.encoding} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:  # of int, which converts at most 4300 digits
        raise ValueError("a number has too many digits") from None


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text; JSON may contain lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
