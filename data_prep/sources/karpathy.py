"""Read JSON files of captions: Karpathy's splits, and lists of rows in general.

``dataset_coco.json`` and ``dataset_flickr30k.json`` are in ``caption_datasets.zip`` of
Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments for Generating Image
Descriptions", 2015, and contain the captions too.
"""

from data_prep.locate import TextFile
from data_prep.problems import DUPLICATE_ID, MALFORMED_LINE, Problems
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.json_text import is_encodable, parse_json

Lists = dict[str, list[str]]


def read_karpathy_file(file: TextFile, problems: Problems) -> tuple[Lists, Lists]:
    """Read Karpathy's splits and captions.

    As usual, COCO's ``restval``, its other validation photos, joins the training split.

    Args:
        file: the JSON file.
        problems: receives malformed rows and photos that occur twice.

    Returns:
        Split -> names of its photos, and name -> raw captions.

    Raises:
        DataError: the file has no list of images.
    """
    (rows,) = parse_lists(file, "images")
    kinds = {"filename": str, "split": str, "sentences": list}
    lists: Lists = {}
    captions: Lists = {}
    for row in select_valid_rows(rows, kinds, f"{file.label} images", problems):
        name, split = row["filename"], row["split"]
        if name in captions:
            problems.add(DUPLICATE_ID, f"{file.label}: {name}")
        split = "train" if split == "restval" else split
        lists.setdefault(split, []).append(name)
        label = f"{file.label} {name}"
        sentences = select_valid_rows(row["sentences"], {"raw": str}, label, problems)
        captions.setdefault(name, [sentence["raw"] for sentence in sentences])
    return lists, captions


def parse_lists(file: TextFile, *keys: str) -> list[list]:
    """Parse a JSON object and return its lists under the keys.

    Raises:
        DataError: the file is not JSON or has no such lists.
    """
    try:
        content = parse_json(file.text)
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
