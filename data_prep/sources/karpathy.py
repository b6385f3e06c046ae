"""Read Karpathy's splits: ``dataset_coco.json`` and ``dataset_flickr30k.json``.

They are in ``caption_datasets.zip`` of Karpathy and Fei-Fei, "Deep Visual-Semantic
Alignments for Generating Image Descriptions", 2015, and contain the captions too.
"""

from dataclasses import dataclass

from data_prep.locate import TextFile
from data_prep.problems import DUPLICATE_ID, Problems
from data_prep.sources.assemble import NO_SPLIT
from data_prep.sources.json_rows import parse_lists, select_valid_rows


@dataclass(frozen=True)
class KarpathySplits:
    """Splits and captions of one file.

    Attributes:
        lists: split -> names of its photos.
        captions: name -> its raw captions.
    """

    lists: dict[str, list[str]]
    captions: dict[str, list[str]]


def read_karpathy_file(
    file: TextFile, problems: Problems, restval: bool = True
) -> KarpathySplits:
    """Read splits and captions of one of Karpathy's files.

    Args:
        file: the JSON file.
        problems: receives malformed rows and photos that occur twice.
        restval: whether COCO's ``restval``, the rest of its validation photos, is
            added to the training split, as is usual; else its photos have no split.

    Raises:
        DataError: the file is not one of Karpathy's.
    """
    (rows,) = parse_lists(file, "images")
    kinds = {"filename": str, "split": str, "sentences": list}
    lists: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    for row in select_valid_rows(rows, kinds, f"{file.label} images", problems):
        name, split = row["filename"], row["split"]
        if name in captions:
            problems.add(DUPLICATE_ID, f"{file.label}: {name}")
        if split == "restval":
            split = "train" if restval else NO_SPLIT
        lists.setdefault(split, []).append(name)
        label = f"{file.label} {name}"
        sentences = select_valid_rows(row["sentences"], {"raw": str}, label, problems)
        captions.setdefault(name, [sentence["raw"] for sentence in sentences])
    return KarpathySplits(lists, captions)
