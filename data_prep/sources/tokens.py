"""Parse token files of the Flickr data sets: one caption a line."""

import re

from data_prep.locate import TextFile
from data_prep.problems import DUPLICATE_ID, MALFORMED_LINE, Problems

# "1000268201_693b08cb0e.jpg#0<tab>A child in a pink dress ..."
_TOKEN = re.compile(r"(?P<name>[^\t#]+)#(?P<number>\d+)\t(?P<caption>.*)")
# "1000092795.jpg| 0| Two young guys ...": Flickr30k's results.csv
_BARS = re.compile(r"(?P<name>[^|]+)\|\s*(?P<number>\d+)\s*\|(?P<caption>.*)")
_HEADER = re.compile(r"image_name\s*\|\s*comment_number\s*\|\s*comment\s*")


def read_token_file(file: TextFile, problems: Problems) -> dict[str, list[str]]:
    """Return the captions of every photo in a token file.

    Args:
        file: lines of ``name#number<tab>caption`` or ``name| number| caption``.
        problems: receives malformed lines and numbers that occur twice.

    Returns:
        File name -> captions.
    """
    captions: dict[str, dict[str, str]] = {}
    for row, line in enumerate(file.text().split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or (row == 1 and _HEADER.fullmatch(line)):
            continue
        match = _TOKEN.fullmatch(line) or _BARS.fullmatch(line)
        if match is None:
            problems.add(MALFORMED_LINE, f"{file.label}:{row}")
            continue
        name, number, caption = match.groups()
        numbered = captions.setdefault(name.strip(), {})
        if number in numbered:
            problems.add(DUPLICATE_ID, f"{name.strip()}#{number}")
        else:
            numbered[number] = caption
    return {name: list(numbered.values()) for name, numbered in captions.items()}


def read_name_list(file: TextFile, problems: Problems) -> list[str]:
    """Return the photo names of a list file: one name a line.

    Args:
        file: the list.
        problems: receives names that occur twice.
    """
    names: dict[str, None] = {}
    for line in file.text().splitlines():
        name = line.strip()
        if name in names:
            problems.add(DUPLICATE_ID, f"{file.label}: {name}")
        elif name:
            names[name] = None
    return list(names)
