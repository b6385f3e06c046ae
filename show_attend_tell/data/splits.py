"""Open the prepared data sets of an experiment: their splits and their features.

An experiment reads ``data.name`` and the sets of ``data.also`` as one data set. Prepare
each set and extract its features as if it were alone, then prepare the experiment that
names them all: ``prepare`` builds its vocabulary from the training captions of all sets
and stores it beside the vocabulary of ``data.name`` alone. Each set keeps its manifest
and its feature files, in its own folder.

The ids of the photos of a further set begin with its name, ``SET/ID``. A split is the
union of the sets' splits of this name. The weight of a set is the number of times that
an epoch of training shows its captions; everything else reads each photo once. To
evaluate one set alone, pass ``--set data.also={}``, with ``--set data.name=SET`` for a
further set.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.config.settings import AnyExperiment, Experiment
from show_attend_tell.data.encoder_identity import Identity, settings_difference
from show_attend_tell.data.features import FeatureReader, Features, feature_path
from show_attend_tell.data.manifest import Photo, read_manifest
from show_attend_tell.data.vocabulary import TOKENIZERS, Vocabulary
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.gc_pause import uncollected

logger = logging.getLogger(__name__)


class Split(NamedTuple):
    """The photos of one split that have features and a caption."""

    name: str
    photos: list[Photo]  # in the order of the manifests
    rows: np.ndarray  # (photos,), row of each photo in the reader of the features
    captions: list[list[list[str]]]  # tokenized captions of each photo
    weights: np.ndarray  # (photos,), times that an epoch shows each photo's captions
    sets: np.ndarray  # (photos,), the data set of each photo: 0, 1 and so on


def folder_of(experiment: AnyExperiment, work: str | Path) -> Path:
    """Return ``<work>/<data.name>``, the experiment's prepared folder."""
    name: str = experiment.data.name
    return Path(work) / name


def data_folders(experiment: AnyExperiment, work: str | Path) -> list[Path]:
    """Return the prepared folders of all of the experiment's data sets."""
    data = experiment.data
    # The data settings of plug-ins have no further sets.
    names = (data.name, *sorted(getattr(data, "also", ())))
    return [Path(work) / name for name in names]


def vocabulary_path(experiment: Experiment, work: str | Path) -> Path:
    """Return the path of the vocabulary, named after the texts that it counts.

    The file records the settings of :func:`vocabulary_settings`.
    """
    name = "vocabulary-keep" if experiment.data.punctuation == "keep" else "vocabulary"
    name = "+".join([name, *sorted(experiment.data.also)])
    return folder_of(experiment, work) / f"{name}.json"


def vocabulary_settings(experiment: Experiment) -> dict[str, int]:
    """Return the settings that choose the words of the captions, by their keys."""
    return {
        "vocabulary_size": experiment.data.vocabulary_size,
        "min_count": experiment.data.min_count,
    }


def load_vocabulary(experiment: Experiment, work: str | Path) -> Vocabulary:
    """Read the vocabulary of an experiment's prepared data.

    Raises:
        DataError: the file is absent or damaged, or was prepared with other settings.
    """
    path = vocabulary_path(experiment, work)
    return Vocabulary.load(path, vocabulary_settings(experiment))


def read_photos(
    experiment: AnyExperiment, work: str | Path, further: bool = False
) -> list[Photo]:
    """Read the manifests of an experiment's data sets.

    Args:
        experiment: settings of the data.
        work: the folder of prepared data.
        further: whether to read the sets of ``data.also`` alone.

    Returns:
        All photos; the id of a photo of ``data.also`` is ``SET/ID``.

    Raises:
        DataError: a manifest is absent or malformed, or two photos have one id.
    """
    folders = data_folders(experiment, work)[1 if further else 0 :]
    sets = _read_sets(experiment, folders).values()
    return [photo for photos in sets for photo in photos]


def _read_sets(
    experiment: AnyExperiment, folders: Sequence[Path]
) -> dict[Path, list[Photo]]:
    """Return the photos of each data set, by its folder."""
    sets: dict[Path, list[Photo]] = {}
    ids: set[str] = set()
    for folder in folders:
        photos = read_manifest(folder / "manifest.jsonl")
        if folder.name != experiment.data.name:
            photos = [
                dataclasses.replace(photo, id=_joint_id(experiment, folder, photo.id))
                for photo in photos
            ]
        sets[folder] = photos
        names = {photo.id for photo in photos}
        if names & ids:
            raise DataError(
                f"{folder}: a photo becomes {min(names & ids)!r}, the id of another "
                "photo; rename the data set"
            )
        ids |= names
    return sets


def _joint_id(experiment: AnyExperiment, folder: Path, photo: str) -> str:
    """Return the id of a photo among the photos of all data sets."""
    first = folder.name == experiment.data.name
    return photo if first else f"{folder.name}/{photo}"


def open_features(
    experiment: Experiment,
    work: str | Path,
    mirrored: str | None = None,
    identity: Identity | None = None,
) -> Features:
    """Open the features of all of the experiment's data sets.

    Args:
        experiment: settings of the data and the encoder.
        work: the folder of prepared data.
        mirrored: the split of mirrored photos; by default the photos are as they are.
        identity: identity of the encoder that must have made the features; by default
            only the experiment's encoder settings are compared.

    Raises:
        DataError: a feature set is absent, incomplete, or made by another encoder or
            with other encoder settings.
    """
    settings = experiment.encoder
    folders = data_folders(experiment, work)
    paths = {folder: feature_path(folder, settings, mirrored) for folder in folders}
    if mirrored:
        # A set may have no photo of the split. Without any file the first is reported.
        present = {folder: path for folder, path in paths.items() if path.exists()}
        paths = present or paths
    readers: dict[Path, FeatureReader] = {}
    with contextlib.ExitStack() as stack:
        for folder, path in paths.items():
            if mirrored not in (None, "train") and not path.exists():
                raise DataError(
                    f"{path}: no such feature file; run `features --mirror-split "
                    f"{mirrored}`"
                )
            reader = stack.enter_context(FeatureReader(path, identity))
            _require_settings(reader, settings, mirrored is not None)
            readers[folder] = reader
            # The first set decides which encoder the others must have.
            identity = identity or reader.attributes["identity"]
        # All are open: the caller closes them from here on.
        stack.pop_all()
    if not experiment.data.also:
        return readers[folder_of(experiment, work)]
    rows: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for number, (folder, reader) in enumerate(readers.items()):
        for name, row in reader.rows.items():
            rows[_joint_id(experiment, folder, name)] = len(places)
            places.append((number, row))
    return JointReader([*readers.values()], rows, np.array(places).reshape(-1, 2))


def _require_settings(
    reader: FeatureReader, settings: EncoderSettings, mirror: bool
) -> None:
    difference = settings_difference(settings, reader.attributes["identity"])
    if not difference and reader.attributes["mirrored"] != mirror:
        difference = f"mirrored photos {not mirror} instead of {mirror}"
    if difference:
        raise DataError(
            f"{reader.path}: made with other settings of [encoder]: {difference}; run "
            "`features --overwrite`, or restore the settings (drop the --set)"
        )


class JointReader:
    """A reader whose rows are rows of several feature sets, or of one in another order.

    Args:
        readers: readers of the sets, made by one encoder.
        rows: id -> row, of each photo that can be read.
        places: (N, 2): for each row the number of its reader, and the row there.

    Attributes:
        path: the path of the first set, for messages.
        rows: as above.
        shape: (N, L, D).
        attributes: the attributes of the first set.
    """

    def __init__(
        self,
        readers: Sequence[Features],
        rows: dict[str, int],
        places: np.ndarray,
    ):
        self._readers = readers
        self._places = places
        self.rows = rows
        self.path = readers[0].path
        self.attributes = readers[0].attributes
        _, L, D = readers[0].shape
        self.shape = (len(places), L, D)

    def _find(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the reader of each row, and its row there, (B,) each."""
        rows = np.asarray(rows, np.int64)
        numbers, places = self._places[rows].T
        # A reader of several sets would take -1 for its last row.
        if (places < 0).any():
            raise DataError(
                f"{self.path}: `rows` must be of photos that have features. Received: "
                f"{rows[places < 0][0]}"
            )
        return numbers, places

    def read(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read photos by their rows; see :meth:`FeatureReader.read`."""
        numbers, places = self._find(rows)
        features = np.empty((len(numbers), *self.shape[1:]), np.float16)
        for number in np.unique(numbers):
            (chosen,) = np.nonzero(numbers == number)
            features[chosen] = self._readers[number].read(places[chosen])
        return features

    def digest(self, rows: Sequence[int] | np.ndarray) -> str:
        """Return a digest of the encoder and of the features of rows."""
        numbers, places = self._find(rows)
        # In one byte order, so that machines agree on the digest.
        digest = hashlib.sha256(numbers.astype("<i8").tobytes())
        for number in np.unique(numbers):
            of_reader = places[numbers == number]
            digest.update(self._readers[number].digest(of_reader).encode())
        return digest.hexdigest()

    def close(self) -> None:
        """Close all sets."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close all sets."""
        self.close()


def digest_of_splits(splits: Sequence[Split]) -> dict[str, str]:
    """Return digests of which photos splits have, and of their captions."""
    ids = hashlib.sha256()
    captions = hashlib.sha256()
    for split in splits:
        for photo, weight in zip(split.photos, split.weights, strict=True):
            ids.update(json.dumps([split.name, photo.id, float(weight)]).encode())
            captions.update(json.dumps(photo.captions).encode())
    return {"splits": ids.hexdigest(), "captions": captions.hexdigest()}


@uncollected()
def load_splits(
    experiment: Experiment, work: str | Path, names: Sequence[str], reader: Features
) -> list[Split]:
    """Read the photos of splits with their captions and feature rows.

    Photos without features or captions are left out; the log counts them.

    Raises:
        DataError: a manifest is absent or malformed, or a split is empty.
    """
    sets = _read_sets(experiment, data_folders(experiment, work))
    return [_select_split(experiment, sets, name, reader) for name in names]


def _select_split(
    experiment: Experiment,
    sets: dict[Path, list[Photo]],
    name: str,
    reader: Features,
) -> Split:
    photos: list[Photo] = []
    weights: list[float] = []
    set_numbers: list[int] = []
    for number, (folder, everything) in enumerate(sets.items()):
        of_split = [photo for photo in everything if photo.split == name]
        kept = [p for p in of_split if p.id in reader.rows and any(p.captions)]
        if left_out := len(of_split) - len(kept):
            logger.warning("%s: %d photos of %s left out", folder, left_out, name)
        photos += kept
        weights += [experiment.data.also.get(folder.name, 1.0)] * len(kept)
        set_numbers += [number] * len(kept)
    if not photos:
        raise DataError(
            f"{next(iter(sets))}: split {name!r} has no photo with a caption and "
            "features; choose another split, or run `prepare` and `features` again"
        )
    tokenizer = TOKENIZERS[experiment.data.punctuation]
    captions = [[tokenizer(text) for text in p.captions] for p in photos]
    rows = np.asarray([reader.rows[p.id] for p in photos], np.int64)
    return Split(name, photos, rows, captions, np.array(weights), np.array(set_numbers))


def open_mirror(
    experiment: Experiment, work: str | Path, reader: Features, data: Split
) -> JointReader:
    """Open the features of the mirrored photos of a split.

    Args:
        experiment: settings of the data and the encoder.
        work: the folder of prepared data.
        reader: reader of the unmirrored photos, whose rows the result takes.
        data: the split.

    Raises:
        DataError: the file is absent, incomplete, made by another encoder, or lacks
            a photo of `data`.
    """
    identity = reader.attributes["identity"]
    mirror = open_features(experiment, work, data.name, identity)
    missing = [photo.id for photo in data.photos if photo.id not in mirror.rows]
    if missing:
        mirror.close()
        raise DataError(
            f"{mirror.path}: {len(missing)} photos of {data.name} are missing, the "
            f"first is {missing[0]}; run `features` again"
        )
    # Photos of other splits have no mirror image; their rows are refused.
    places = np.full((reader.shape[0], 2), (0, -1))
    places[data.rows, 1] = [mirror.rows[photo.id] for photo in data.photos]
    rows = {photo.id: row for photo, row in zip(data.photos, data.rows, strict=True)}
    return JointReader([mirror], rows, places)


class ViewsReader:
    """A reader of photos together with their mirror images.

    Args:
        reader: reader of the photos.
        mirror: reader of their mirror images by the same rows.
    """

    def __init__(self, reader: Features, mirror: Features):
        self._readers = (reader, mirror)

    def read(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read photos by their rows; return (N, 2, L, D)."""
        return np.stack([reader.read(rows) for reader in self._readers], axis=1)
