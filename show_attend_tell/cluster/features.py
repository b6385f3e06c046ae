"""Extract features on a Ray cluster, one part of the feature file a work item.

The driver reads the manifest, writes the header and joins the parts; the workers read
the photos and write the parts. All use the same paths.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_prep.extract import FeatureReport, extract
from data_prep.feature_part import Part
from data_prep.feature_writer import FeatureWriter
from data_prep.photo_features import decoded_photos, encode_photos
from show_attend_tell.cluster.pool import Cluster, WorkItem, connected
from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import Photo
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import SetupError
from show_attend_tell.runtime.keras_startup import start_keras

_DECODERS = 2  # threads of a worker


def part_writer(
    settings: EncoderSettings, identity: dict, photos: int
) -> Callable[[tuple[Part, tuple[Path, ...]]], None]:
    """Build the encoder in a worker process; return the function that writes a part.

    The argument of the function is a part and the paths of its photos.

    Args:
        settings: settings of the driver's encoder.
        identity: the identity of the driver's encoder.
        photos: the number of photos that the driver's encoder expects.

    Raises:
        ModelFileError: the encoder cannot be built here.
        SetupError: the encoder differs from the driver's.
    """
    start_keras()
    encoder = Encoder(settings)
    encoder.expect(photos)
    identity_here = encoder.identity()
    # Equal in everything, also in the versions that a comparison of encoders ignores:
    # parts of one file must not differ by rounding.
    if identity_here != identity:
        difference = identity_difference(identity, identity_here, exact=True)
        versions = f"{identity_here['versions']} instead of {identity['versions']}"
        raise SetupError(
            "the encoder must be the driver's. Received: "
            f"{difference or f'versions {versions}'}; install the same packages and "
            "weights on every node"
        )

    def write(job: tuple[Part, tuple[Path, ...]]) -> None:
        part, photos = job
        decoded = decoded_photos(encoder, photos, part.mirrored, _DECODERS)
        part.write(encode_photos(encoder, decoded))

    return write


def extract_on_cluster(
    experiment: Experiment,
    work: str | Path,
    address: str,
    workers: int | None = None,
    **options: Any,
) -> list[FeatureReport]:
    """Extract the features of an experiment's data on a cluster.

    The bytes of the file do not depend on the workers if their processors are of the
    same kind.

    Args:
        experiment: see :func:`data_prep.extract.extract`.
        work: the folder of prepared data, which all nodes see.
        address: see :func:`cluster.pool.connected`.
        workers: number of workers; by default one per processor.
        **options: further arguments of :func:`data_prep.extract.extract`.

    Raises:
        SetupError: see :meth:`cluster.pool.Cluster.run`.
        ModelFileError, DataError: see :func:`data_prep.extract.extract`.
    """
    with connected(address) as cluster:
        return extract(
            experiment,
            work,
            write_parts=functools.partial(_write_parts, cluster, workers),
            **options,
        )


def _write_parts(
    cluster: Cluster,
    workers: int | None,
    encoder: Encoder,
    writer: FeatureWriter,
    photos: list[Photo],
    progress: bool,
) -> None:
    """Write all missing parts; see :func:`data_prep.extract.write_parts_here`."""
    arguments = encoder.settings, encoder.identity(), encoder.expected
    with writer.progress_bar(progress) as bar:
        written = cluster.run(part_writer, arguments, _items(writer, photos), workers)
        for item, _ in written:
            bar.update(len(item.payload[1]))


def _items(writer: FeatureWriter, photos: list[Photo]) -> Iterator[WorkItem]:
    """Yield the missing parts."""
    for number in writer.missing:
        paths = tuple(photos[row].path for row in writer.rows(number))
        # The header and photos show whether a worker sees the same folders.
        files = writer.header_file, *paths
        name = f"part {number} of {writer.path}"
        yield WorkItem(name, (writer.part(number), paths), files)
