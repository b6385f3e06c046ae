"""Read the photos of the everyday models that are not Flickr8k's, by a list of names.

``experiments/everyday_photos.txt`` names photos of COCO 2014, of Flickr30k and of the
UIUC Pascal sentences (Rashtchian et al., 2010), with their splits; its head explains
the keys. The user's folder has these data sets in sub-folders, as each is published:
COCO's ``captions_*2014.json`` and photos, Flickr30k's token file and photos, and
Pascal's photos with a text of five lines for each, ``2008_003575.txt``. A photo gets
all its captions. What is absent is left out and counted.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from data_prep.data_folder import DataFolder, TextFile
from data_prep.preparation import Preparation, Prepared, Problem, Problems
from data_prep.sources.captions import (
    MANIFEST,
    Captions,
    Lists,
    join_by_name,
    prepare_photos,
)
from data_prep.sources.published import (
    COCO_ANNOTATIONS,
    FLICKR30K_TOKENS,
    parse_annotations,
    read_annotations,
    read_tokens,
    rows,
)
from show_attend_tell.config.experiments import shipped_experiments, whole_folder
from show_attend_tell.data.manifest import Photo, read_manifest
from show_attend_tell.runtime.errors import DataError, plural
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.json_lines import read_rows
from show_attend_tell.runtime.untrusted import is_text, read_text_bytes, reading

LIST = "everyday_photos.txt"
BOXES = "people_boxes.jsonl"
COCO_INSTANCES = ("instances_train2014.json", "instances_val2014.json")
_SOURCES = ("coco", "coco-caption", "flickr30k", "pascal")
_YEAR = 2014
_DIGITS = 16  # of the SHA-1 of a caption
_COCO_ID = re.compile(r"(\d+)\.\w+$")  # COCO_val2014_000000000071.jpg
_PERSON = 1  # COCO's category
_MOST_PIXELS = 1_000_000  # in a row or column of a photo

Boxes = dict[str, list[list[float]]]
"""Photo -> boxes [x0, y0, x1, y1] in shares of its width and height."""


class Listed(NamedTuple):
    """A line of the list."""

    split: str
    source: str
    key: str


def prepare_everyday(preparation: Preparation) -> Prepared:
    """Prepare the listed photos, and where COCO's instances are there, boxes of people.

    The boxes, a file that ``eval --boxes`` reads, are only those of validation photos:
    they measure where attention looks, and train nothing.
    """
    found: Boxes = {}

    def read(data: DataFolder) -> list[Photo]:
        photos = read_everyday(data)
        # Here, so that malformed boxes are among the problems of the preparation.
        found.update(_people(data, _validation(photos)))
        return photos

    if preparation.data is None:  # the photos are those of the whole set
        found = _boxes_of_whole(preparation.folder)
    prepared = prepare_photos(read, preparation)
    chosen = _validation(read_manifest(preparation.folder / MANIFEST))
    boxes = {name: people for name, people in found.items() if name in chosen}
    path = preparation.folder / BOXES
    if not boxes:
        path.unlink(missing_ok=True)  # it describes an earlier preparation
        return prepared
    lines = [json.dumps({"file": k, "people": v}) for k, v in sorted(boxes.items())]
    atomic_write(path, "\n".join(lines) + "\n")
    prepared.facts.append(
        f"boxes of people in {plural(len(boxes), 'validation photo')}: {path}"
    )
    return prepared


def _validation(photos: Collection[Photo]) -> set[str]:
    return {photo.id for photo in photos if photo.split == "val"}


def _boxes_of_whole(folder: Path) -> Boxes:
    """Return the boxes of the whole data set of a limited one, if it has any.

    Args:
        folder: the prepared folder of the limited set.

    Raises:
        DataError: their file cannot be read or is malformed.
    """
    whole = whole_folder(folder)
    if whole is None or not (whole / BOXES).is_file():
        return {}
    path = whole / BOXES
    advice = "prepare the whole data set again"
    with reading(path, DataError, advice):
        # Of ASCII, as json.dumps wrote them: no name has U+2028, at which this splits.
        lines = read_text_bytes(path).decode().splitlines()
    rows_of_file = read_rows(path, lines, _fault_of_boxes, "file", advice)
    return {row["file"]: row["people"] for row in rows_of_file}


def _fault_of_boxes(row: object) -> str | None:
    if (
        not isinstance(row, dict)
        or not is_text(row.get("file"))
        or not isinstance(row.get("people"), list)
    ):
        return "must have `file`, a name, and `people`, a list of boxes"
    return None


def read_everyday(data: DataFolder) -> list[Photo]:
    """Read the listed photos that the folder has.

    Raises:
        DataError: COCO's annotations, or all listed photos, are absent.
    """
    by_source = [_read_coco(data), _read_flickr30k(data), _read_pascal(data)]
    captions: Captions = {}
    names: dict[tuple[str, str], str] = {}
    for found, keys in by_source:
        captions |= found
        names |= keys
    lists: Lists = {}
    absent = dict.fromkeys(_SOURCES, 0)
    for split, source, key in read_list():
        name = names.get((source, key))
        if name is None or name not in data.photos:
            absent[source] += 1
        else:
            lists.setdefault(split, []).append(name)
    for source, count in absent.items():
        if count:
            data.problems.notes.append(
                f"{source}: {plural(count, 'listed photo')} left out, without photo or "
                "captions here"
            )
    if not lists:
        reasons = [*data.problems.notes, *data.problems.summary()]
        raise DataError(
            f"{data.folder}: no photo of {LIST} is here with its captions "
            f"({'; '.join(reasons)}); add the photos to this folder, unpacked or in "
            "zip archives, or name another folder"
        )
    listed = {name for of_split in lists.values() for name in of_split}
    captions = {name: texts for name, texts in captions.items() if name in listed}
    places = {name: data.photos[name] for name in listed}
    return join_by_name(data, captions, lists, places)


def read_list(path: Path | None = None) -> list[Listed]:
    """Return the lines of the list, by default of the shipped one.

    Raises:
        DataError: the file is absent, or a line is malformed.
    """
    if path is None:
        folder = next(iter(shipped_experiments().values()), Path(LIST)).parent
        path = folder / LIST
    try:
        text = read_text_bytes(path).decode()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); install the package "
            "again"
        ) from None
    listed = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or fields[1] not in _SOURCES:
            raise DataError(
                f"{path}, line {number}: must be a split, one of {list(_SOURCES)} and "
                f"a key. Received: {line[:80]!r}"
            )
        listed.append(Listed._make(fields))
    return listed


def caption_digest(caption: str) -> str:
    """Return the key of a caption: digits of the SHA-1 of its words in lower case."""
    words = " ".join(re.findall(r"[a-z0-9]+", caption.lower()))
    return hashlib.sha1(words.encode()).hexdigest()[:_DIGITS]


Named = tuple[Captions, dict[tuple[str, str], str]]
"""Captions by photo, and the photo of each (source, key)."""


def _read_coco(data: DataFolder) -> Named:
    """Return COCO's captions; a caption of two photos is no key."""
    if not all(map(data.text, COCO_ANNOTATIONS[_YEAR].values())):
        raise DataError(
            f"{data.folder}: {' and '.join(COCO_ANNOTATIONS[_YEAR].values())} must be "
            "in this folder, below it or in a zip archive there; download them from "
            "cocodataset.org, or with `show-attend-tell download coco`"
        )
    captions, _ = read_annotations(data, _YEAR)
    names = {}
    owners: dict[str, set[str]] = {}
    for name, texts in captions.items():
        if number := _COCO_ID.search(name):
            names["coco", str(int(number[1]))] = name
        for text in texts:
            owners.setdefault(caption_digest(text), set()).add(name)
    for digest, photos in owners.items():
        if len(photos) == 1:
            names["coco-caption", digest] = next(iter(photos))
    return captions, names


def _read_flickr30k(data: DataFolder) -> Named:
    file = data.text(*FLICKR30K_TOKENS)
    if file is None:
        return {}, {}
    captions = read_tokens(file, data.problems)
    return captions, {("flickr30k", name): name for name in captions}


def _read_pascal(data: DataFolder) -> Named:
    captions: Captions = {}
    for listed in read_list():
        if listed.source == "pascal":
            text = data.text(f"{Path(listed.key).stem}.txt")
            if text is not None:
                captions[listed.key] = text.text.splitlines()
    return captions, {("pascal", name): name for name in captions}


def _people(data: DataFolder, names: Collection[str]) -> Boxes:
    """Return the boxes of people in some of COCO's photos.

    A region of many people together, ``iscrowd``, is a box too.

    Args:
        data: the folder, with or without the instances; its problems receive malformed
            rows.
        names: the photos.
    """
    boxes: Boxes = {}
    for instances in COCO_INSTANCES:
        file = data.text(instances)
        if file is not None:
            boxes |= _people_of(file, data.problems, names)
    return boxes


def _people_of(file: TextFile, problems: Problems, names: Collection[str]) -> Boxes:
    content = parse_annotations(file)
    kinds: Mapping[str, type] = {"id": int, "file_name": str, "width": int}
    # The asked photos by COCO's ids, with their sides.
    images = {}
    for row in rows(file, content, "images", {**kinds, "height": int}, problems):
        sides = (row["width"], row["height"])
        if row["file_name"] in names and all(0 < n <= _MOST_PIXELS for n in sides):
            images[row["id"]] = row
    boxes: Boxes = {}
    empty = 0
    kinds = {"image_id": int, "category_id": int, "bbox": list}
    for row in rows(file, content, "annotations", kinds, problems):
        image = images.get(row["image_id"])
        if image is None or row["category_id"] != _PERSON:
            continue
        if not _is_bbox(row["bbox"]):
            problems.add(
                Problem.MALFORMED_LINE, f"{file.label}: a box of {image['id']}"
            )
            continue
        # From a corner and sides in pixels to two corners in shares, cut at the edges.
        x, y, width, height = row["bbox"]
        box = [
            x / image["width"],
            y / image["height"],
            (x + width) / image["width"],
            (y + height) / image["height"],
        ]
        x0, y0, x1, y1 = [round(min(max(share, 0.0), 1.0), 4) for share in box]
        if x0 < x1 and y0 < y1:
            boxes.setdefault(image["file_name"], []).append([x0, y0, x1, y1])
        else:
            empty += 1
    if empty:
        problems.notes.append(
            f"{file.label}: boxes of people left out that have no width or no height "
            f"inside their photo: {empty}"
        )
    return boxes


def _is_bbox(sides: list[object]) -> bool:
    """Return whether a list is four numbers of pixels, x, y, width and height."""
    # The comparison is false for NaN.
    return len(sides) == 4 and all(
        isinstance(side, int | float) and abs(side) <= _MOST_PIXELS for side in sides
    )
