"""Parse JSON files and separate their malformed rows from the valid ones."""

from data_prep.locate import TextFile
from data_prep.problems import MALFORMED_LINE, Problems
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.json_text import is_encodable, parse_json


def parse_lists(file: TextFile, *keys: str) -> list[list]:
    """Return some lists of a JSON object.

    Args:
        file: the JSON file.
        keys: names of the lists.

    Returns:
        The lists in the order of the keys.

    Raises:
        DataError: the file is not JSON or has no such lists.
    """
    text = file.text()
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{file.label}: not JSON ({error}); download it again"
        ) from None
    for key in keys:
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise DataError(
                f"{file.label}: must be a JSON object with the list `{key}`; "
                "is it another file of that name?"
            )
    return [content[key] for key in keys]


def select_valid_rows(
    rows: list, kinds: dict[str, type], label: str, problems: Problems
) -> list[dict]:
    """Return the rows that have all keys with values of the right type.

    Args:
        rows: rows of any type.
        kinds: key -> type of its value.
        label: prefix of a row in the list of problems; its number, from 1, follows.
        problems: receives the malformed rows.
    """
    valid = []
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict) and all(
            isinstance(row.get(key), kind)
            and (kind is not str or is_encodable(row[key]))
            for key, kind in kinds.items()
        ):
            valid.append(row)
        else:
            problems.add(MALFORMED_LINE, f"{label}:{number}")
    return valid
