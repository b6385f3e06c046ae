"""Extract features in the workers of a Ray cluster, a shard at a time in each.

The driver reads the manifest and writes the header and the index; the workers read the
photos and write the shards. All use the same paths.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.extract import (
    ExtractReport,
    decoded_batches,
    encode_batches,
    extract,
    extraction_bar,
    require_disk_space,
)
from data_prep.feature_shard import Shard
from data_prep.feature_writer import FeatureWriter
from show_attend_tell.cluster.pool import Cluster, connected
from show_attend_tell.cluster.worker import Task, visible
from show_attend_tell.config.settings import EncoderSettings, Experiment
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.manifest import Photo
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import EncoderError

_DECODERS = 2  # threads of a worker


@dataclass(frozen=True)
class ShardJob:
    """The payload of a task: one shard, and the paths of its photos."""

    shard: Shard
    photos: tuple[Path, ...]


class FeatureWorker:
    """Encode photos and write shards in a worker process."""

    def __init__(self, settings: EncoderSettings, identity: dict, photos: int):
        """Build the encoder.

        Args:
            settings: settings of the driver's encoder.
            identity: its identity.
            photos: the number of photos that it expects.

        Raises:
            EncoderError: the encoder cannot be built here, or is another one.
        """
        self._encoder = Encoder(settings)
        self._encoder.expect(photos)
        found = self._encoder.identity()
        if found != identity:
            difference = identity_difference(identity, found, exact=True)
            versions = f"{found['versions']} instead of {identity['versions']}"
            raise EncoderError(
                "the encoder must be that of the driver. Received: "
                f"{difference or f'versions {versions}'}; install the same packages "
                "and weights on every node"
            )

    def run(self, job: ShardJob) -> int:
        """Write a shard; return the number of its photos that could not be decoded.

        Raises:
            FeatureError: a feature is not finite, or the disk cannot be written.
        """
        encoder, mirror = self._encoder, job.shard.mirrored
        decoded = decoded_batches(encoder, [job.photos], mirror, _DECODERS)
        features, problems = encode_batches(encoder, decoded)
        job.shard.write(features, problems)
        return sum(map(bool, problems))


def make_worker(
    settings: EncoderSettings, identity: dict, photos: int
) -> FeatureWorker:
    """Start TensorFlow in a worker process and return its worker."""
    from show_attend_tell.runtime.tensorflow_startup import start_keras

    start_keras()
    return FeatureWorker(settings, identity, photos)


def extract_on_cluster(
    experiment: Experiment,
    work: str | Path,
    address: str,
    workers: int | None = None,
    **options: object,
) -> ExtractReport:
    """Extract the features of an experiment's data in the workers of a cluster.

    New features become a folder of shards. Its bytes do not depend on the workers, as
    long as their processors are of the same kind.

    Args:
        experiment: see :func:`data_prep.extract.extract`.
        work: the folder of prepared data, which all nodes see.
        address: see :func:`cluster.pool.connected`.
        workers: number of workers; by default one for each processor.
        **options: further arguments of :func:`data_prep.extract.extract`.

    Raises:
        ClusterError: see :func:`cluster.pool.connected`.
        EncoderError: see :func:`data_prep.extract.extract`, as the errors below.
        FeatureError: see there.
        ManifestError: see there.
    """
    with connected(address) as cluster:
        return extract(
            experiment,
            os.path.abspath(work),  # workers have another working directory
            shards=True,
            write_shards=functools.partial(_write_shards, cluster, workers),
            **options,
        )


def _write_shards(
    cluster: Cluster,
    workers: int | None,
    encoder: Encoder,
    writer: FeatureWriter,
    photos: list[Photo],
    progress: bool,
) -> None:
    """Write all missing shards by the workers of a cluster."""
    settings = encoder.settings
    if os.path.isfile(settings.weights):  # workers have another working directory
        weights = os.path.abspath(settings.weights)
        settings = dataclasses.replace(settings, weights=weights)
    arguments = settings, encoder.identity(), encoder.expected
    tasks = _tasks(writer, photos)
    with extraction_bar(writer, progress) as bar:
        done = cluster.run(make_worker, arguments, tasks, workers)
        for count, (task, _) in enumerate(done):
            bar.update(len(task.payload.photos))
            if count == 0:  # the size of one shard is known
                require_disk_space(writer)


def _tasks(writer: FeatureWriter, photos: list[Photo]) -> Iterator[Task]:
    """Yield the tasks of the missing shards."""
    header = visible(writer.header_file)
    for number in writer.missing:
        paths = tuple(photos[row].path for row in writer.rows(number))
        present = next((path for path in paths if path.is_file()), None)
        seen = (header,) if present is None else (header, visible(present))
        job = ShardJob(writer.shard(number), paths)
        yield Task(f"shard {number} of {writer.path}", job, seen)
