"""Open the prepared data of an experiment: the splits of its manifest, and features."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.encoder_identity import settings_difference
from show_attend_tell.data.feature_shards import feature_set
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.manifest import Photo, read_manifest
from show_attend_tell.data.vocabulary import TOKENIZERS
from show_attend_tell.runtime.errors import FeatureError, ManifestError
from show_attend_tell.runtime.gc_pause import uncollected

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split:
    """The photos of one split that have features and a caption.

    Attributes:
        name: name of the split.
        photos: photos in the order of the manifest.
        rows: row of each photo in the feature file, (photos,).
        captions: tokenized captions of each photo.
    """

    name: str
    photos: list[Photo]
    rows: np.ndarray
    captions: list[list[list[str]]]


def folder_of(experiment: Experiment, work: str | Path) -> Path:
    """Return ``<work>/<data.name>``, the experiment's prepared folder."""
    return Path(work) / experiment.data.name


def vocabulary_path(experiment: Experiment, work: str | Path) -> Path:
    """Return the path of the vocabulary, which depends on ``data.punctuation``."""
    keeps = experiment.data.punctuation == "keep"
    name = "vocabulary-keep.json" if keeps else "vocabulary.json"
    return folder_of(experiment, work) / name


def open_features(
    experiment: Experiment,
    work: str | Path,
    mirror: bool = False,
    identity: dict | None = None,
    split: str = "train",
) -> FeatureReader:
    """Open the experiment's feature file.

    Args:
        experiment: settings of the data and the encoder.
        work: the folder of prepared data.
        mirror: whether to open the file of the mirrored photos.
        identity: identity of the encoder that must have made the features; by default
            only the experiment's encoder settings are compared.
        split: split of the mirrored photos.

    Raises:
        FeatureError: the file is absent, incomplete, or made by another encoder or
            with other encoder settings.
    """
    folder, settings = folder_of(experiment, work), experiment.encoder
    path = feature_path(folder, settings, mirror, split)
    reader = FeatureReader(path, identity)
    difference = settings_difference(settings, reader.attributes["identity"])
    if not difference and reader.attributes["mirrored"] != mirror:
        difference = f"mirrored photos {not mirror} instead of {mirror}"
    if difference:
        reader.close()
        raise FeatureError(
            f"{reader.path}: made with other settings of [encoder]: {difference}; run "
            "`features --overwrite`, or restore the settings (drop the --set)"
        )
    return reader


def load_split(
    experiment: Experiment, work: str | Path, name: str, reader: FeatureReader
) -> Split:
    """Read the photos of a split with their captions and feature rows.

    Photos without features or captions are left out; the log counts them.

    Raises:
        ManifestError: the manifest is absent or malformed, or the split is empty.
    """
    return load_splits(experiment, work, [name], reader)[0]


@uncollected()
def load_splits(
    experiment: Experiment, work: str | Path, names: Sequence[str], reader
) -> list[Split]:
    """Read several splits, see :func:`load_split`; the manifest is read once."""
    path = folder_of(experiment, work) / "manifest.jsonl"
    photos = read_manifest(path)
    tokenizer = TOKENIZERS[experiment.data.punctuation]
    return [_select_split(photos, name, reader, path, tokenizer) for name in names]


def _select_split(
    everything: Sequence[Photo],
    name: str,
    reader: FeatureReader,
    path: Path,
    tokenizer: Callable[[str], list[str]],
) -> Split:
    of_split = [photo for photo in everything if photo.split == name]
    photos = [p for p in of_split if p.id in reader.rows and any(p.captions)]
    if not photos:
        raise ManifestError(
            f"{path}: split {name!r} has no photo with a caption and features; choose "
            "another split, or run `prepare` and `features` again"
        )
    if len(photos) < len(of_split):
        left_out = len(of_split) - len(photos)
        logger.warning("%s: %d photos of %s left out", path, left_out, name)
    captions = [[tokenizer(text) for text in p.captions] for p in photos]
    rows = np.asarray([reader.rows[p.id] for p in photos], np.int64)
    return Split(name, photos, rows, captions)


def open_mirror(
    experiment: Experiment, work: str | Path, reader: FeatureReader, data: Split
) -> "ReorderedReader":
    """Open the features of the mirrored photos of a split.

    Args:
        experiment: settings of the data and the encoder.
        work: the folder of prepared data.
        reader: reader of the unmirrored photos, whose rows the result takes.
        data: the split.

    Raises:
        FeatureError: the file is absent, incomplete, made by another encoder, or lacks
            a photo of `data`.
    """
    path = feature_path(
        folder_of(experiment, work), experiment.encoder, True, data.name
    )
    if data.name != "train" and not feature_set(path).exists():
        raise FeatureError(
            f"{path}: no such feature file; run `features --mirror-split {data.name}`"
        )
    identity = reader.attributes["identity"]
    mirror = open_features(experiment, work, True, identity, data.name)
    missing = [photo.id for photo in data.photos if photo.id not in mirror.rows]
    if missing:
        mirror.close()
        raise FeatureError(
            f"{mirror.path}: {len(missing)} photos of {data.name} are missing, the "
            f"first is {missing[0]}; run `features` again"
        )
    return ReorderedReader(mirror, reader)


class ReorderedReader:
    """A reader addressed by the rows of another file that holds the same photos."""

    def __init__(self, own: FeatureReader, other: FeatureReader):
        self._own, self.shape, self.close = own, own.shape, own.close
        ids = {row: name for name, row in other.rows.items()}
        shared = {row: name for row, name in ids.items() if name in own.rows}
        self._rows = {row: own.rows[name] for row, name in shared.items()}

    def read(self, rows) -> np.ndarray:
        """Read photos by their rows in the other file."""
        return self._own.read([self._rows[int(row)] for row in rows])


class ViewsReader:
    """A reader of photos together with their mirror images.

    Args:
        reader: reader of the photos.
        mirror: reader of their mirror images by the same rows.
    """

    def __init__(self, reader: FeatureReader, mirror: ReorderedReader):
        self._readers = (reader, mirror)

    def read(self, rows) -> np.ndarray:
        """Read photos by their rows; return (N, 2, L, D)."""
        return np.stack([reader.read(rows) for reader in self._readers], axis=1)
