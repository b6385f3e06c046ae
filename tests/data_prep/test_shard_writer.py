"""Folders of shards: the values of one file, by any writers, with one reader."""

import shutil

import h5py
import numpy as np
import pytest

from data_prep.feature_writer import FeatureWriter
from data_prep.shard_writer import ShardWriter, open_writer
from show_attend_tell.data import feature_shards
from show_attend_tell.data.feature_shards import SHARD_ROWS, feature_set, shards_folder
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.runtime.errors import FeatureError

COUNT = 2 * SHARD_ROWS + 3  # three shards
UNREADABLE = SHARD_ROWS + 1
IDENTITY = {"network": "net", "grid": [2, 2], "width": 3, "precision": "float32"}
IDS = [f"{row}.jpg" for row in range(COUNT)]


@pytest.fixture(scope="module")
def values():
    values = np.random.default_rng(3).normal(size=(COUNT, 4, 3)).astype(np.float16)
    values[UNREADABLE] = 0
    return values


PROBLEMS = ["broken" if row == UNREADABLE else "" for row in range(COUNT)]


def write(path, values, parts=None, finish=True, identity=IDENTITY, **options):
    with open_writer(path, identity, IDS, **options) as writer:
        if writer.complete:
            return []
        written = writer.missing if parts is None else parts
        for part in written:
            rows = slice(writer.rows(part).start, writer.rows(part).stop)
            writer.write(part, values[rows], PROBLEMS[rows])
        if finish:
            writer.finish()
    return written


@pytest.fixture
def path(tmp_path, values):
    path = tmp_path / "features.h5"
    assert write(path, values, shards=True) == [0, 1, 2]
    assert not path.exists()
    return path


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_shards_and_one_file_are_read_alike(path, values, tmp_path):
    one = tmp_path / "one.h5"
    write(one, values)
    rows = [COUNT - 1, 3, SHARD_ROWS, SHARD_ROWS - 1, 3, 0]
    with FeatureReader(path, IDENTITY) as shards, FeatureReader(one) as file:
        assert shards.path == tmp_path / "features.shards"
        for name in ("image_ids", "shape", "rows", "problems", "attributes"):
            assert getattr(shards, name) == getattr(file, name)
        np.testing.assert_array_equal(shards.read(rows), values[rows])
        np.testing.assert_array_equal(shards.read(rows), file.read(rows))
        with pytest.raises(FeatureError, match=r"257\.jpg.*broken"):
            shards.read([UNREADABLE])
    with pytest.raises(FeatureError, match="closed"):
        shards.read([0])


def test_few_shards_are_open_together(path, values, monkeypatch):
    monkeypatch.setattr(feature_shards, "_OPEN", 1)
    rows = [0, SHARD_ROWS, 1, COUNT - 1, 2]
    with FeatureReader(path) as reader:
        for row in rows:
            np.testing.assert_array_equal(reader.read([row])[0], values[row])
            assert len(reader._shards._open) == 1


def test_the_bytes_do_not_depend_on_order_or_interruptions(path, values, tmp_path):
    other = tmp_path / "other.h5"
    write(other, values, [2, 0], finish=False, shards=True)
    (shards_folder(other) / ".writing-1234-000001.h5").write_bytes(b"of a killed one")
    with pytest.raises(FeatureError, match="run the extraction again to continue"):
        FeatureReader(other)
    assert write(other, values) == [1]  # the form of what was begun
    assert content(shards_folder(other)) == content(shards_folder(path))


def test_an_absent_index_is_made_again_from_the_shards(path, values):
    folder = shards_folder(path)
    before = content(folder)
    (folder / "index.h5").unlink()
    assert write(path, values) == []
    assert content(folder) == before


@pytest.mark.parametrize("name", ["000001.h5", "000000.h5"])
def test_an_absent_shard_is_named(path, name):
    (shards_folder(path) / name).unlink()
    with pytest.raises(FeatureError, match=f"the shard {name} is absent"):
        FeatureReader(path)


def test_a_lost_shard_is_written_again_and_no_other(path, values):
    folder = shards_folder(path)
    before = content(folder)
    (folder / "000001.h5").unlink()
    with pytest.raises(FeatureError, match="begun with other settings"):
        write(path, values, identity={**IDENTITY, "network": "other"})
    assert (folder / "index.h5").exists()
    assert write(path, values) == [1]
    assert content(folder) == before


def test_a_damaged_chunk_and_exchanged_shards_are_found(path, values):
    folder = shards_folder(path)
    first, second = folder / "000000.h5", folder / "000001.h5"
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with FeatureReader(path) as reader, pytest.raises(FeatureError, match="checksum"):
        reader.read([0])
    first.write_bytes(whole)
    with h5py.File(first) as file:
        chunk = file["features"].id.get_chunk_info(5)
    damaged = bytearray(whole)
    damaged[chunk.byte_offset + 20] ^= 1
    first.write_bytes(damaged)
    with FeatureReader(path) as reader:
        damage = r"photo '5\.jpg' cannot be read .*; delete .*000000\.h5; then run"
        with pytest.raises(FeatureError, match=damage):
            reader.read([5])
        assert reader.read([4, 6]).shape == (2, 4, 3)
    first.unlink()
    assert write(path, values) == [0]
    assert first.read_bytes() == whole


def test_a_damaged_shard_is_refused_by_name_when_the_index_is_written(tmp_path, values):
    path = tmp_path / "features.h5"
    write(path, values, finish=False, shards=True)
    folder = shards_folder(path)
    shutil.copy(folder / "000000.h5", folder / "000001.h5")
    with pytest.raises(FeatureError, match=r"000001\.h5: damaged .*digest differs"):
        write(path, values)
    (folder / "000001.h5").unlink()
    assert write(path, values) == [1]


def test_shards_of_another_encoder_are_refused_or_overwritten_by_a_file(path, values):
    other = {**IDENTITY, "network": "other"}
    with pytest.raises(FeatureError, match=r"net instead of other.*--overwrite"):
        write(path, values, identity=other)
    write(path, values, identity=other, overwrite=True)
    assert path.is_file()
    assert feature_set(path) == path
    assert not shards_folder(path).exists()
    write(path, values, overwrite=True, shards=True)
    assert not path.exists()


def test_features_that_exist_keep_their_form(path, values, tmp_path):
    assert isinstance(open_writer(path, IDENTITY, IDS), ShardWriter)
    file = tmp_path / "one.h5"
    with open_writer(file, IDENTITY, IDS) as writer:  # begun
        assert type(writer) is FeatureWriter
    assert type(open_writer(file, IDENTITY, IDS, shards=True)) is FeatureWriter


def test_file_and_shards_of_one_name_share_a_lock(path):
    busy = pytest.raises(FeatureError, match="another extraction")
    with (
        open_writer(path, IDENTITY, IDS),
        busy,
        FeatureWriter(path, IDENTITY, IDS),
    ):
        pass
