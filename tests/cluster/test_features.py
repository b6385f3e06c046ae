"""Features written on a cluster, while workers are killed."""

import logging
import os
from pathlib import Path

import pytest
import tiny_run
from new_process import python
from tiny_pipeline import write_photos

from data_prep.feature_writer import FeatureWriter
from show_attend_tell.cluster.features import extract_on_cluster, part_writer
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.manifest import Photo, write_manifest
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import SetupError

ROWS = 32  # of a part, so that a few photos have several
PHOTOS = 12 * ROWS - 5
BROKEN, ABSENT = 3, 40
SETTINGS = {
    "network": "SceneNet",
    "layer": "annotations",
    "weights": "scenes",
    "image_size": 112,
}
NAME = "features-SceneNet-annotations"


def experiment():
    return tiny_run.experiment(data={"name": "tiny"}, encoder=SETTINGS)


def test_a_worker_with_another_encoder_refuses_to_work():
    settings = EncoderSettings(**{**SETTINGS, "weights": "none", "resize": "crop"})
    identity = Encoder(settings).identity()
    part_writer(settings, identity, 1)
    with pytest.raises(SetupError, match=r"must be the driver's.*weights_digest"):
        part_writer(settings, {**identity, "weights_digest": "0" * 64}, 1)
    with pytest.raises(SetupError, match=r"versions .* instead of \{'keras': '0'\}"):
        part_writer(settings, {**identity, "versions": {"keras": "0"}}, 1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Write photos that take milliseconds to decode, and their manifest."""
    folder = tmp_path_factory.mktemp("work") / "tiny"
    names = [f"{number}.jpg" for number in range(PHOTOS)]
    write_photos(folder / "photos", names, 1000, names[BROKEN], names[ABSENT])
    rows = [Photo(name, f"photos/{name}", "train", ("a photo",)) for name in names]
    write_manifest(folder / "manifest.jsonl", rows)
    return folder.parent


TESTS = Path(__file__).parents[1]
IMPORTS = f"""
import sys
sys.path[:0] = {[str(p) for p in (TESTS.parent, TESTS / "support", TESTS / "cluster")]}
from data_prep.extract import extract
from data_prep.feature_writer import FeatureWriter
from test_features import ROWS, experiment
from show_attend_tell.cluster.features import extract_on_cluster
FeatureWriter.part_rows = ROWS
"""
LOCAL = "extract(experiment(), sys.argv[1], progress=False)"
CHILD = "extract_on_cluster(experiment(), *sys.argv[1:], 1, progress=False)"


@pytest.fixture(scope="module")
def expected(photos) -> bytes:
    """Return the file of a local process, which has one thread as workers have."""
    one = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1"}
    assert python("-c", IMPORTS + LOCAL, photos, env=one).returncode == 0
    return file_of(photos).read_bytes()


def file_of(work: Path) -> Path:
    return work / "tiny" / f"{NAME}.h5"


def parts_of(work: Path) -> Path:
    return work / "tiny" / f"{NAME}.h5.parts"


@pytest.fixture
def work(photos, expected, monkeypatch) -> Path:
    """Return the prepared folder without features."""
    file_of(photos).unlink()
    monkeypatch.setattr(FeatureWriter, "part_rows", ROWS)
    return photos


@pytest.mark.cluster
def test_a_killed_driver_worker_and_node_change_no_byte(work, expected, nodes, caplog):
    from local_cluster import kill_driver_worker_and_node

    def extract_rest():
        with pytest.raises(ValueError, match="run the extraction again"):
            FeatureReader(file_of(work))
        options = {"progress": False}
        return extract_on_cluster(experiment(), work, nodes.address, 2, **options)

    with caplog.at_level(logging.WARNING):
        report = kill_driver_worker_and_node(
            nodes,
            ["-c", IMPORTS + CHILD, work, nodes.address],
            parts_of(work) / "0*.h5",
            extract_rest,
        )
    assert caplog.text.count("a worker has ended") >= 1
    assert file_of(work).read_bytes() == expected
    assert not parts_of(work).exists()
    file = report[0]
    assert file.photos == PHOTOS > file.extracted
    assert list(file.unreadable) == [f"{BROKEN}.jpg", f"{ABSENT}.jpg"]
    again = extract_on_cluster(experiment(), work, nodes.address, progress=False)
    assert again[0].extracted == 0
