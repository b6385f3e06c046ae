"""Read Flickr8k and Flickr30k: a token file, lists or Karpathy's splits, and photos.

Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task", 2013.
Young, Lai, Hodosh and Hockenmaier, "From image descriptions to visual denotations",
2014. Flickr30k has no lists of its own; Karpathy's are the usual ones.
"""

import re

from data_prep.locate import DataFolder, TextFile
from data_prep.problems import DUPLICATE_ID, MALFORMED_LINE, Problems
from data_prep.sources.captions import invert_split_lists, join_by_name
from data_prep.sources.karpathy import read_karpathy_file
from show_attend_tell.data.manifest import Photo

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
TOKENS_30K = ("results_20130124.token", "results.token", "results.csv")
SPLITS_30K = "dataset_flickr30k.json"

# "1000268201_693b08cb0e.jpg#0<tab>A child in a pink dress ..."
_TOKEN = re.compile(r"(?P<name>[^\t#]+)#(?P<number>\d+)\t(?P<caption>.*)")
# "1000092795.jpg| 0| Two young guys ...": Flickr30k's results.csv
_BARS = re.compile(r"(?P<name>[^|]+)\|\s*(?P<number>\d+)\s*\|(?P<caption>.*)")
_HEADER = re.compile(r"image_name\s*\|\s*comment_number\s*\|\s*comment\s*")


def read_flickr8k(data: DataFolder) -> tuple[list[Photo], Problems]:
    """Read Flickr8k; photos that no list names are in the split ``none``.

    Raises:
        DataError: the token file, the training list or the photos are absent.
    """
    problems = Problems()
    captions = _read_tokens(data.require_text(TOKENS), problems)
    data.require_text(LISTS["train"])
    lists = {}
    for split, name in LISTS.items():
        file = data.text(name)
        if file is None:
            problems.notes.append(f"no {name}: the split {split!r} is empty")
        else:
            lists[split] = _read_names(file, problems)
    splits = invert_split_lists(lists, problems)
    photos = join_by_name(data.places(), captions, splits, problems, data.found_twice)
    return photos, problems


def read_flickr30k(data: DataFolder) -> tuple[list[Photo], Problems]:
    """Read Flickr30k with Karpathy's splits; a token file is optional.

    Raises:
        DataError: Karpathy's file or the photos are absent.
    """
    problems = Problems()
    lists, captions = read_karpathy_file(data.require_text(SPLITS_30K), problems)
    tokens = data.text(*TOKENS_30K)
    if tokens is None:
        note = f"no {TOKENS_30K[0]}: the captions come from {SPLITS_30K}"
        problems.notes.append(note)
    else:
        captions = _read_tokens(tokens, problems)
    splits = invert_split_lists(lists, problems)
    photos = join_by_name(data.places(), captions, splits, problems, data.found_twice)
    return photos, problems


def _read_tokens(file: TextFile, problems: Problems) -> dict[str, list[str]]:
    """Return the captions of every photo in a token file: file name -> captions.

    Args:
        file: lines of ``name#number<tab>caption`` or ``name| number| caption``.
        problems: receives malformed lines and numbers that occur twice.
    """
    captions: dict[str, dict[str, str]] = {}
    for row, line in enumerate(file.text.split("\n"), start=1):
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


def _read_names(file: TextFile, problems: Problems) -> list[str]:
    """Return the photo names of a list, one a line, without repetitions."""
    names: dict[str, None] = {}
    for name in map(str.strip, file.text.splitlines()):
        if name in names:
            problems.add(DUPLICATE_ID, f"{file.label}: {name}")
        elif name:
            names[name] = None
    return list(names)
