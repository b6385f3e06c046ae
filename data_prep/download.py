"""Fetch the data sets that may be fetched by URL."""

from pathlib import Path

from data_prep.fetch import Progress, Remote, fetch
from show_attend_tell.runtime.errors import DownloadError

_COCO = "http://images.cocodataset.org"  # its https has another host's certificate
# Sizes and checksums as TensorFlow Datasets records them (url_checksums/coco.txt).
COCO = (
    Remote(
        f"{_COCO}/annotations/annotations_trainval2014.zip",
        252_872_794,
        "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
    ),
    # No checksum of this file was ever published by its author.
    Remote(
        "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
        36_745_453,
    ),
    Remote(
        f"{_COCO}/zips/train2014.zip",
        13_510_573_713,
        "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
    ),
    Remote(
        f"{_COCO}/zips/val2014.zip",
        6_645_013_297,
        "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
    ),
)
# What may be fetched, by source. Flickr8k and Flickr30k photos are given out on
# request only; Karpathy's splits of Flickr30k come with COCO's.
FILES = {"coco": COCO, "flickr30k": (COCO[1],)}


def download(source: str, folder: Path, progress: Progress | None = None) -> list[Path]:
    """Fetch the files of a data set into a folder that ``prepare`` can read.

    Args:
        source: ``coco``, or ``flickr30k`` for Karpathy's splits alone.
        folder: where to; files that are there already are kept.
        progress: called with the file, the bytes that are there and those of the
            whole.

    Returns:
        The files.

    Raises:
        DownloadError: the source gives nothing out by URL, or a file could not be
            fetched.
    """
    if source not in FILES:
        raise DownloadError(
            f"`source` must be one of {sorted(FILES)}. Received: {source!r}; other "
            "data sets are given out by their authors on request"
        )
    return [fetch(remote, folder, progress=progress) for remote in FILES[source]]


def size_of(source: str) -> int:
    """Return the bytes that :func:`download` fetches for a source."""
    return sum(remote.size for remote in FILES.get(source, ()))
