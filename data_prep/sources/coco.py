"""COCO 2014: two annotation files, Karpathy's splits if wanted, and the photos.

Chen et al., "Microsoft COCO Captions", arXiv:1504.00325.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from data_prep.locate import DataFolder, TextFile
from data_prep.problems import DUPLICATE_ID, MISSING_PHOTO, Problems
from data_prep.sources import karpathy
from data_prep.sources.assemble import assemble, splits_of_lists
from data_prep.sources.json_rows import load_table, sound_rows
from show_attend_tell.data.manifest import Photo

ANNOTATIONS = {"train": "captions_train2014.json", "val": "captions_val2014.json"}
SPLITS = "dataset_coco.json"

Captions = dict[str, list[str]]


def _names_by_id(rows: list, label: str, problems: Problems) -> dict[int, str]:
    names: dict[int, str] = {}
    kinds = {"id": int, "file_name": str}
    for row in sound_rows(rows, kinds, f"{label} images", problems):
        if row["id"] in names:
            problems.add(DUPLICATE_ID, f"{label}: image {row['id']}")
        names.setdefault(row["id"], row["file_name"])
    return names


def read_annotations(file: TextFile, problems: Problems) -> Captions:
    """Return the captions of every photo of one annotation file, possibly none.

    Args:
        file: ``captions_train2014.json`` or the like.
        problems: takes odd rows, ids that occur twice and captions of images that
            the file does not list.

    Raises:
        DataError: the file is not an annotation file.
    """
    images, annotations = load_table(file, "images", "annotations")
    names = _names_by_id(images, file.label, problems)
    captions: Captions = {name: [] for name in names.values()}
    seen = set()
    kinds = {"id": int, "image_id": int, "caption": str}
    label = f"{file.label} annotations"
    for row in sound_rows(annotations, kinds, label, problems):
        if row["id"] in seen:
            problems.add(DUPLICATE_ID, f"{file.label}: annotation {row['id']}")
        elif row["image_id"] not in names:
            problems.add(MISSING_PHOTO, f"{file.label}: image {row['image_id']}")
        else:
            captions[names[row["image_id"]]].append(row["caption"])
        seen.add(row["id"])
    return captions


def _merge(parts: Iterable[Captions], problems: Problems) -> Captions:
    merged: Captions = {}
    for part in parts:
        for name, said in part.items():
            if name in merged:
                problems.add(DUPLICATE_ID, name)
            merged.setdefault(name, said)
    return merged


def _annotations(data: DataFolder, problems: Problems) -> dict[str, Captions]:
    return {
        split: read_annotations(data.require_text(name), problems)
        for split, name in ANNOTATIONS.items()
    }


def read(
    data: DataFolder, photo_folder: Path, restval: bool = True
) -> tuple[list[Photo], Problems]:
    """Read COCO 2014.

    Args:
        data: where the annotation files, the photos (``train2014/``, ``val2014/``)
            and possibly ``dataset_coco.json`` lie, unpacked or in zip archives.
        photo_folder: where packed photos will be unpacked to.
        restval: whether Karpathy's ``restval`` is trained on.

    Returns:
        The photos and what is odd. Without ``dataset_coco.json`` the splits are
        COCO's own: 82,783 photos to train, 40,504 to validate, none to test.

    Raises:
        DataError: annotations or photos are absent.
    """
    problems = Problems()
    karpathy_file = data.text(SPLITS)
    if karpathy_file is None:
        parts = _annotations(data, problems)
        captions = _merge(parts.values(), problems)
        lists: Mapping[str, Iterable[str]] = parts
        problems.notes.append(f"no {SPLITS}: the splits are COCO's own, without test")
    else:
        splits = karpathy.read(karpathy_file, problems, restval)
        lists, captions = splits.lists, splits.captions
        if any(map(data.text, ANNOTATIONS.values())):
            captions = _merge(_annotations(data, problems).values(), problems)
        else:
            problems.notes.append(f"no annotations: the captions come from {SPLITS}")
    by_name = splits_of_lists(lists, problems)
    return assemble(data.places(photo_folder), captions, by_name, problems), problems
