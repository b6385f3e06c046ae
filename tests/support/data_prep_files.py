"""Write tiny data sets for the tests of data_prep."""

import csv
import json
import zipfile
from pathlib import Path

from show_attend_tell.config.settings import Experiment, experiment_from_dict

JPEG = b"\xff\xd8 not a real photo, which readers never decode \xff\xd9"


def make_file(path: Path, content: bytes | str = JPEG) -> Path:
    """Write a file and its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def make_zip(path: Path, entries: dict[str, bytes | str]) -> Path:
    """Write a zip archive of name -> content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def an_experiment(source: str, **changes) -> Experiment:
    """Return the settings of a tiny data set."""
    data = {"name": "tiny", "source": source, "vocabulary_size": 50, **changes}
    tables = {key: {} for key in ("encoder", "model", "training", "decoding")}
    return experiment_from_dict({"name": "tiny", "data": data, **tables})


def flickr8k_texts(**changes: str) -> dict[str, str]:
    """Return the text files of a Flickr8k of five photos; change them by stem."""
    tokens = [
        f"{name}.jpg#{number}\tA {name} runs ."
        for name in ("dog", "cat", "hen", "cow", "pig")
        for number in range(2)
    ]
    texts = {
        "Flickr8k.token": "\n".join(tokens) + "\n",
        "Flickr_8k.trainImages": "dog.jpg\ncat.jpg\n",
        "Flickr_8k.devImages": "hen.jpg\n",
        "Flickr_8k.testImages": "cow.jpg\n",
    }
    return {f"{name}.txt": text for name, text in {**texts, **changes}.items()}


FLICKR8K_PHOTOS = {
    f"Flicker8k_Dataset/{name}.jpg": JPEG
    for name in ("dog", "cat", "hen", "cow", "pig")
}


def make_flickr8k(folder: Path, packed: bool, **changes: str) -> Path:
    """Write a tiny Flickr8k, as its archives or as their unpacked folders."""
    texts = flickr8k_texts(**changes)
    if packed:
        junk = {"__MACOSX/Flicker8k_Dataset/._dog.jpg": b"junk"}
        make_zip(folder / "Flickr8k_Dataset.zip", {**FLICKR8K_PHOTOS, **junk})
        make_zip(folder / "Flickr8k_text.zip", texts)
        return folder
    for name, content in FLICKR8K_PHOTOS.items():
        make_file(folder / "images" / name, content)
    for name, text in texts.items():
        make_file(folder / "text" / name, text)
    return folder


def karpathy_json(rows: list[tuple[str, str, list[str]]]) -> str:
    """Return one of Karpathy's files from (file name, split, captions)."""
    images = [
        {
            "filename": name,
            "split": split,
            "sentences": [{"raw": caption} for caption in captions],
        }
        for name, split, captions in rows
    ]
    return json.dumps({"images": images, "dataset": "tiny"})


def coco_json(rows: dict[str, list[str]], first: int = 1) -> str:
    """Return an annotation file of COCO from file name -> captions."""
    images, annotations = [], []
    for image_id, (name, captions) in enumerate(rows.items(), start=first):
        images.append({"id": image_id, "file_name": name})
        for caption in captions:
            number = first * 1000 + len(annotations)
            annotations.append({"id": number, "image_id": image_id, "caption": caption})
    return json.dumps({"images": images, "annotations": annotations})


def make_csv(path: Path, rows: list[list[str]]) -> Path:
    """Write rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path
