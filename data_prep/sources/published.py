"""Read Flickr8k, Flickr30k, COCO 2014 or 2017 and data sets with Karpathy's JSON.

Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task", 2013;
Young et al., "From image descriptions to visual denotations", 2014; Chen et al.,
"Microsoft COCO Captions", arXiv:1504.00325. Karpathy and Fei-Fei, "Deep Visual-Semantic
Alignments for Generating Image Descriptions", 2015, published splits and captions of
all three in one JSON format, in ``caption_datasets.zip``; Flickr30k has no other
splits.
"""

import re
from collections.abc import Iterator, Mapping

from data_prep.data_folder import DataFolder, TextFile
from data_prep.preparation import Problem, Problems
from data_prep.sources.captions import Captions, Lists, join_by_name
from data_prep.sources.tables import BY_HASH, lists_by_hash, read_table
from show_attend_tell.data.manifest import Photo
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.untrusted import is_encodable, parse_json, reading

FLICKR8K_TOKENS = "Flickr8k.token.txt"
FLICKR8K_LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
FLICKR30K_TOKENS = ("results_20130124.token", "results.token", "results.csv")
FLICKR30K_SPLITS = "dataset_flickr30k.json"
COCO_ANNOTATIONS = {
    year: {split: f"captions_{split}{year}.json" for split in ("train", "val")}
    for year in (2014, 2017)
}
KAGGLE = "captions.txt"  # of Flickr8k, with the columns image and caption
COCO_SPLITS = "dataset_coco.json"

# "1000268201_693b08cb0e.jpg#0<tab>A child in a pink dress ..."
_TOKEN = re.compile(r"(?P<name>[^\t#]+)#(?P<number>\d+)\t(?P<caption>.*)")
# "1000092795.jpg| 0| Two young guys ...": Flickr30k's results.csv
_BARS = re.compile(r"(?P<name>[^|]+)\|\s*(?P<number>\d+)\s*\|(?P<caption>.*)")
_HEADER = re.compile(r"image_name\s*\|\s*comment_number\s*\|\s*comment\s*")


def read_flickr8k(data: DataFolder) -> list[Photo]:
    """Read Flickr8k; photos that no list names are in the split ``none``.

    Kaggle's copy has ``captions.txt`` in place of the token file; the lists are used if
    they are there.

    Raises:
        DataError: the token file, the training list or the photos are absent.
    """
    if data.text(FLICKR8K_TOKENS) is None and (file := data.text(KAGGLE)):
        return _read_kaggle(data, file)
    captions = read_tokens(data.require_text(FLICKR8K_TOKENS), data.problems)
    data.require_text(FLICKR8K_LISTS["train"])
    lists = {}
    for split, name in FLICKR8K_LISTS.items():
        file = data.text(name)
        if file is None:
            data.problems.notes.append(f"no {name}: the split {split!r} is empty")
        else:
            lists[split] = read_names(file, data.problems)
    return join_by_name(data, captions, lists)


def _read_kaggle(data: DataFolder, file: TextFile) -> list[Photo]:
    """Read Kaggle's copy of Flickr8k."""
    captions: Captions = {}
    for row in read_table(file, data):
        captions.setdefault(row.name, []).extend(row.captions)
    texts = {split: data.text(name) for split, name in FLICKR8K_LISTS.items()}
    if texts["train"] is None:
        data.problems.notes.append(BY_HASH)
        return join_by_name(data, captions, lists_by_hash(captions))
    lists = {
        split: read_names(text, data.problems) for split, text in texts.items() if text
    }
    return join_by_name(data, captions, lists)


def read_flickr30k(data: DataFolder) -> list[Photo]:
    """Read Flickr30k with Karpathy's splits; a token file is optional.

    Raises:
        DataError: Karpathy's file or the photos are absent.
    """
    file = data.require_text(FLICKR30K_SPLITS)
    captions, lists = _read_karpathy(file, data.problems)
    if tokens := data.text(*FLICKR30K_TOKENS):
        captions = read_tokens(tokens, data.problems)
    else:
        data.problems.notes.append(
            f"no {FLICKR30K_TOKENS[0]}: the captions come from {FLICKR30K_SPLITS}"
        )
    return join_by_name(data, captions, lists)


def read_coco(data: DataFolder) -> list[Photo]:
    """Read COCO 2014 or 2017.

    Without ``dataset_coco.json`` the splits are COCO's: 82,783 training and 40,504
    validation photos in 2014, 118,287 and 5,000 in 2017, no test photos.

    Raises:
        DataError: annotations or photos are absent.
    """
    file = data.text(COCO_SPLITS)
    year = 2014
    if not any(map(data.text, COCO_ANNOTATIONS[2014].values())):
        if any(map(data.text, COCO_ANNOTATIONS[2017].values())):
            year = 2017
    annotated = any(map(data.text, COCO_ANNOTATIONS[year].values()))
    if file is None or annotated:
        captions, lists = read_annotations(data, year)
    if file is None:
        note = f"no {COCO_SPLITS}: the splits are COCO's, without test"
        data.problems.notes.append(note)
    else:
        captions_there, lists = _read_karpathy(file, data.problems)
        if not annotated:
            captions = captions_there
            note = f"no annotations: the captions come from {COCO_SPLITS}"
            data.problems.notes.append(note)
    return join_by_name(data, captions, lists)


def read_karpathy(data: DataFolder) -> list[Photo]:
    """Read any data set whose captions and splits are a JSON file like Karpathy's.

    Raises:
        DataError: there is no such file, or more than one; or the photos are absent.
    """
    names = data.text_names("*.json")
    if len(names) != 1:
        raise DataError(
            f"{data.folder}: must contain one .json file with `images`, such as "
            f"dataset_flickr8k.json. Received: {', '.join(names) or 'none'}; "
            f"{'keep' if names else 'add'} one"
        )
    captions, lists = _read_karpathy(data.require_text(names[0]), data.problems)
    return join_by_name(data, captions, lists)


def read_tokens(file: TextFile, problems: Problems) -> Captions:
    """Return the captions of every photo in a token file.

    Args:
        file: lines of ``name#number<tab>caption`` or ``name| number| caption``.
        problems: receives malformed lines and numbers that occur twice.
    """
    captions: dict[str, dict[str, str]] = {}
    # Not by splitlines, which splits captions at U+0085 and U+2028 too.
    for row, line in enumerate(file.text.split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or (row == 1 and _HEADER.fullmatch(line)):
            continue
        match = _TOKEN.fullmatch(line) or _BARS.fullmatch(line)
        if match is None:
            problems.add(Problem.MALFORMED_LINE, f"{file.label}:{row}")
            continue
        name, number, caption = match.groups()
        numbered = captions.setdefault(name.strip(), {})
        if number in numbered:
            problems.add(Problem.DUPLICATE_ID, f"{name.strip()}#{number}")
        numbered.setdefault(number, caption)
    return {name: list(numbered.values()) for name, numbered in captions.items()}


def read_names(file: TextFile, problems: Problems) -> list[str]:
    """Return the photo names of a list, one a line, without repetitions."""
    names: dict[str, None] = {}
    for name in map(str.strip, file.text.splitlines()):
        if name in names:
            problems.add(Problem.DUPLICATE_ID, f"{file.label}: {name}")
        elif name:
            names[name] = None
    return list(names)


def _read_karpathy(file: TextFile, problems: Problems) -> tuple[Captions, Lists]:
    """Read Karpathy's captions and splits.

    As usual, COCO's ``restval``, its other validation photos, joins the training split.
    """
    captions: Captions = {}
    lists: Lists = {}
    kinds = {"filename": str, "split": str, "sentences": list}
    for row in rows(file, parse_annotations(file), "images", kinds, problems):
        name = row["filename"]
        split = row["split"]
        if name in captions:
            problems.add(Problem.DUPLICATE_ID, f"{file.label}: {name}")
        lists.setdefault("train" if split == "restval" else split, []).append(name)
        label = TextFile(f"{file.label} {name}", "")
        sentences = rows(label, row, "sentences", {"raw": str}, problems)
        captions.setdefault(name, [sentence["raw"] for sentence in sentences])
    return captions, lists


def read_annotations(data: DataFolder, year: int) -> tuple[Captions, Lists]:
    """Read COCO's annotation files; return captions, possibly none, and lists."""
    captions: Captions = {}
    lists: Lists = {}
    for split, file_name in COCO_ANNOTATIONS[year].items():
        file = data.require_text(file_name)
        texts = read_annotations_file(file, parse_annotations(file), data.problems)
        for name in sorted(texts.keys() & captions.keys()):
            data.problems.add(Problem.DUPLICATE_ID, name)
        # Of a photo in both files the captions of the first stay.
        captions = {**texts, **captions}
        lists[split] = list(texts)
    return captions, lists


def read_annotations_file(
    file: TextFile, content: object, problems: Problems
) -> Captions:
    """Return the captions, possibly none, of every photo in a file of COCO's form.

    Args:
        file: names the file in messages.
        content: its JSON document.
        problems: receives malformed rows, ids that occur twice and unknown photos.

    Raises:
        DataError: the document has another form.
    """
    names: dict[int, str] = {}
    kinds = {"id": int, "file_name": str}
    for row in rows(file, content, "images", kinds, problems):
        if row["id"] in names:
            problems.add(Problem.DUPLICATE_ID, f"{file.label}: image {row['id']}")
        names.setdefault(row["id"], row["file_name"])
    texts: Captions = {name: [] for name in names.values()}
    seen = set()
    kinds = {"id": int, "image_id": int, "caption": str}
    for row in rows(file, content, "annotations", kinds, problems):
        if row["id"] in seen:
            problems.add(Problem.DUPLICATE_ID, f"{file.label}: annotation {row['id']}")
        elif row["image_id"] not in names:
            problems.add(
                Problem.MISSING_PHOTO, f"{file.label}: image {row['image_id']}"
            )
        else:
            texts[names[row["image_id"]]].append(row["caption"])
        seen.add(row["id"])
    return texts


def is_coco(content: object) -> bool:
    """Return whether a JSON document has the form of COCO's captions."""
    if not isinstance(content, dict):
        return False
    annotations = content.get("annotations")
    return (
        isinstance(content.get("images"), list)
        and isinstance(annotations, list)
        and any(isinstance(row, dict) and "caption" in row for row in annotations)
    )


def parse_annotations(file: TextFile) -> object:
    """Return the JSON document of a file.

    Raises:
        DataError: it is malformed.
    """
    with reading(file.label, DataError, "download it again"):
        return parse_json(file.text)


def rows(
    file: TextFile,
    content: object,
    key: str,
    kinds: Mapping[str, type],
    problems: Problems,
) -> Iterator[dict]:
    """Yield the rows of a JSON list that have all keys with values of the right type.

    Args:
        file: names the list in messages.
        content: an object that has the list.
        key: key of the list.
        kinds: key of a row -> type of its value.
        problems: receives the malformed rows.

    Raises:
        DataError: there is no such list.
    """
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        raise DataError(
            f"{file.label}: must be a JSON object with the list `{key}`; is it another "
            "file of that name?"
        )
    for number, row in enumerate(content[key], start=1):
        if isinstance(row, dict) and all(
            isinstance(row.get(name), kind)
            and (kind is not str or is_encodable(row[name]))
            for name, kind in kinds.items()
        ):
            yield row
        else:
            problems.add(Problem.MALFORMED_LINE, f"{file.label} {key}:{number}")
