"""Read COCO 2014: two annotation files, the photos, and optionally Karpathy's splits.

Chen et al., "Microsoft COCO Captions", arXiv:1504.00325.
"""

from data_prep.locate import DataFolder, TextFile
from data_prep.problems import DUPLICATE_ID, MISSING_PHOTO, Problems
from data_prep.sources.captions import invert_split_lists, join_by_name
from data_prep.sources.karpathy import (
    parse_lists,
    read_karpathy_file,
    select_valid_rows,
)
from show_attend_tell.data.manifest import Photo

ANNOTATIONS = {"train": "captions_train2014.json", "val": "captions_val2014.json"}
SPLITS = "dataset_coco.json"

Captions = dict[str, list[str]]


def read_annotation_file(file: TextFile, problems: Problems) -> Captions:
    """Return the captions of every photo that an annotation file lists.

    Args:
        file: an annotation file, such as ``captions_train2014.json``.
        problems: receives malformed rows, duplicate ids and captions of images that
            the file does not list.

    Returns:
        File name -> captions, possibly none.

    Raises:
        DataError: the file is not an annotation file.
    """
    images, annotations = parse_lists(file, "images", "annotations")
    names: dict[int, str] = {}
    kinds = {"id": int, "file_name": str}
    for row in select_valid_rows(images, kinds, f"{file.label} images", problems):
        if row["id"] in names:
            problems.add(DUPLICATE_ID, f"{file.label}: image {row['id']}")
        names.setdefault(row["id"], row["file_name"])
    captions: Captions = {name: [] for name in names.values()}
    seen = set()
    kinds = {"id": int, "image_id": int, "caption": str}
    label = f"{file.label} annotations"
    for row in select_valid_rows(annotations, kinds, label, problems):
        if row["id"] in seen:
            problems.add(DUPLICATE_ID, f"{file.label}: annotation {row['id']}")
        elif row["image_id"] not in names:
            problems.add(MISSING_PHOTO, f"{file.label}: image {row['image_id']}")
        else:
            captions[names[row["image_id"]]].append(row["caption"])
        seen.add(row["id"])
    return captions


def _read_annotations(
    data: DataFolder, problems: Problems
) -> tuple[dict[str, Captions], Captions]:
    """Return the captions of each split, and of all splits."""
    parts = {
        split: read_annotation_file(data.require_text(name), problems)
        for split, name in ANNOTATIONS.items()
    }
    merged: Captions = {}
    for part in parts.values():
        for name, texts in part.items():
            if name in merged:
                problems.add(DUPLICATE_ID, name)
            merged.setdefault(name, texts)
    return parts, merged


def read_coco(data: DataFolder) -> tuple[list[Photo], Problems]:
    """Read COCO 2014.

    Without ``dataset_coco.json`` the splits are COCO's: 82,783 training and 40,504
    validation photos, no test photos.

    Raises:
        DataError: annotations or photos are absent.
    """
    problems = Problems()
    karpathy_file = data.text(SPLITS)
    if karpathy_file is None:
        lists, captions = _read_annotations(data, problems)
        problems.notes.append(f"no {SPLITS}: the splits are COCO's, without test")
    else:
        lists, captions = read_karpathy_file(karpathy_file, problems)
        if any(map(data.text, ANNOTATIONS.values())):
            _, captions = _read_annotations(data, problems)
        else:
            problems.notes.append(f"no annotations: the captions come from {SPLITS}")
    splits = invert_split_lists(lists, problems)
    photos = join_by_name(data.places(), captions, splits, problems, data.found_twice)
    return photos, problems
