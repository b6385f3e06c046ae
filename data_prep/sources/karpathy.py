"""Karpathy's splits: ``dataset_coco.json`` and ``dataset_flickr30k.json``.

From ``caption_datasets.zip`` of Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments
for Generating Image Descriptions", 2015. The files hold the captions too.
"""

from dataclasses import dataclass

from data_prep.locate import TextFile
from data_prep.problems import DUPLICATE_ID, Problems
from data_prep.sources.assemble import NO_SPLIT
from data_prep.sources.json_rows import load_table, sound_rows


@dataclass(frozen=True)
class Karpathy:
    """What such a file says.

    Attributes:
        lists: split -> names of its photos.
        captions: name -> its raw captions.
    """

    lists: dict[str, list[str]]
    captions: dict[str, list[str]]


def read(file: TextFile, problems: Problems, restval: bool = True) -> Karpathy:
    """Read splits and captions.

    Args:
        file: the JSON file.
        problems: takes odd rows and photos that occur twice.
        restval: whether COCO's ``restval``, what remains of its validation photos,
            is trained on, as is usual; else it is in no split.

    Raises:
        DataError: the file is not one of Karpathy's.
    """
    (rows,) = load_table(file, "images")
    kinds = {"filename": str, "split": str, "sentences": list}
    lists: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    for row in sound_rows(rows, kinds, f"{file.label} images", problems):
        name, split = row["filename"], row["split"]
        if name in captions:
            problems.add(DUPLICATE_ID, f"{file.label}: {name}")
        if split == "restval":
            split = "train" if restval else NO_SPLIT
        lists.setdefault(split, []).append(name)
        label = f"{file.label} {name}"
        sentences = sound_rows(row["sentences"], {"raw": str}, label, problems)
        captions.setdefault(name, [sentence["raw"] for sentence in sentences])
    return Karpathy(lists, captions)
