"""Read JSON files whose rows may be odd, and say which file it was."""

import json

from data_prep.locate import TextFile
from data_prep.problems import ODD_LINE, Problems
from show_attend_tell.runtime.errors import DataError


def load_table(file: TextFile, *keys: str) -> list[list]:
    """Return some lists of a JSON object.

    Args:
        file: the JSON file.
        keys: names of the lists.

    Raises:
        DataError: the file is not JSON or has no such lists.
    """
    try:
        content = json.loads(file.text())
    except json.JSONDecodeError as error:
        raise DataError(f"{file.label}: not JSON ({error}); fetch it again") from None
    for key in keys:
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise DataError(
                f"{file.label}: must be a JSON object with the list `{key}`; "
                "is it another file of that name?"
            )
    return [content[key] for key in keys]


def sound_rows(
    rows: list, kinds: dict[str, type], label: str, problems: Problems
) -> list[dict]:
    """Return the rows that have all keys with values of the right type.

    Args:
        rows: of any kind.
        kinds: key -> type of its value.
        label: names the rows in the list of problems, with their number from 1.
        problems: takes the others.
    """
    sound = []
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict) and all(
            isinstance(row.get(key), kind) for key, kind in kinds.items()
        ):
            sound.append(row)
        else:
            problems.add(ODD_LINE, f"{label}:{number}")
    return sound
