"""Shards in an object store: the bytes of a folder, each shard downloaded once."""

import gc
import io
import json
from unittest import mock

import numpy as np
import pytest
from made_up_features import (
    IDENTITY,
    IDS,
    VALUES,
    Writer,
    all_values,
    content,
    write,
)
from refusals import refused

from show_attend_tell.data import shard_store
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.shard_store import (
    ObjectStore,
    open_store,
    require_url,
    shards_folder,
)
from show_attend_tell.runtime.errors import FeatureError

SHARDS = ["000000.h5", "000001.h5", "000002.h5"]
OBJECTS = [*SHARDS, "header.json"]


@pytest.fixture(params=["memory", "s3"])
def url(request, tmp_path, monkeypatch):
    """Return the URL of an empty store."""
    pytest.importorskip("fsspec", reason="needs the packages of '.[cluster]'")
    monkeypatch.setenv(shard_store.CACHE, str(tmp_path / "cache"))
    if request.param == "memory":
        from fsspec.implementations.memory import MemoryFileSystem

        MemoryFileSystem.store.clear()
        return "memory://bucket/features"
    return request.getfixturevalue("s3") + "/" + tmp_path.name


@pytest.fixture
def path(tmp_path):
    (tmp_path / "prepared").mkdir()
    return tmp_path / "prepared" / "features.h5"


def objects(url):
    store = ObjectStore(url)
    contents = {}
    for name in store.sizes():
        with store.open(name) as file:
            contents[name] = file.read()
    return contents


def test_the_shards_of_a_store_are_those_of_a_folder(path, url, tmp_path):
    other = tmp_path / "other.h5"
    assert write(path, url=url) == [0, 1, 2]
    write(other, shards=True)
    there = content(path)
    assert json.loads(there.pop("store.json")) == {"url": url}
    assert sorted(there) == ["header.json", "index.h5"]
    assert {**there, **objects(url)} == content(other)
    with Writer(path, IDENTITY, IDS) as writer:
        assert writer.complete
        assert writer.size() > sum(map(len, content(other).values()))
    assert all_values(path) == all_values(other)


def test_an_interrupted_extraction_continues_in_its_store(path, url):
    write(path, url=url, numbers=[1], finish=False)
    with pytest.raises(FeatureError, match="run the extraction again to continue"):
        FeatureReader(path)
    assert write(path) == [0, 2]  # its store is remembered
    assert sorted(objects(url)) == OBJECTS
    assert write(path, url=url) == []


def test_each_shard_is_downloaded_once_again_if_replaced_and_named_if_absent(
    path, url, tmp_path, monkeypatch
):
    write(path, url=url)
    download = mock.Mock(wraps=shard_store.atomic_path)
    monkeypatch.setattr(shard_store, "atomic_path", download)

    def loaded():
        return [call.args[0].name for call in download.call_args_list]

    for _ in range(2):
        with FeatureReader(path) as reader:
            assert loaded() in ([SHARDS[0]], SHARDS)  # the first is verified
            reader.read([0, 42, 20, 1])
        assert sorted(loaded()) == SHARDS
    (cache,) = (tmp_path / "cache").iterdir()
    (cache / SHARDS[1]).write_bytes(b"of a full disk")
    with FeatureReader(path) as reader:
        np.testing.assert_array_equal(reader.read([20])[0], VALUES[20])
    assert loaded()[3:] == [SHARDS[1]]
    write(path, url=url, values=VALUES[::-1].copy(), overwrite=True)
    with FeatureReader(path) as reader:
        np.testing.assert_array_equal(reader.read([0])[0], VALUES[-1])
    store = ObjectStore(url)
    store._system.rm(f"{store._root}/{SHARDS[2]}")
    with pytest.raises(FeatureError, match=r"the shard 000002\.h5 is absent"):
        FeatureReader(path)


def test_a_store_with_other_objects_is_refused_and_nothing_is_written(path, url):
    ObjectStore(url).write("notes.txt", b"precious")
    with pytest.raises(FeatureError, match=r"must be empty\. Received: objects"):
        write(path, url=url)
    assert not shards_folder(path).exists()
    assert list(objects(url)) == ["notes.txt"]


def test_features_elsewhere_are_kept_unless_they_are_overwritten(path, url, tmp_path):
    write(path, shards=True)
    with pytest.raises(FeatureError, match="its shards are in this folder; pass --ove"):
        write(path, url=url)
    write(path, url=url, overwrite=True)
    assert sorted(objects(url)) == OBJECTS
    with pytest.raises(FeatureError, match=f"its shards are in {url}; pass --overwr"):
        write(path, url=f"{url}/other")
    write(path, overwrite=True)  # one file
    assert objects(url) == {}
    with pytest.raises(FeatureError, match="already present as a file"):
        write(path, url=url)


def test_an_object_that_another_process_writes_is_seen(url, tmp_path):
    store = ObjectStore(url, tmp_path / "cache")
    store.write("header.json", b"{}")
    assert store.sizes() == {"header.json": 2}
    system = type(store._system)(skip_instance_cache=True)
    system.pipe_file(f"{store._root}/000000.h5", b"content")
    with store.open("000000.h5") as file:
        assert file.read() == b"content"
    assert store.local("000000.h5").read_bytes() == b"content"
    assert store.sizes() == {"000000.h5": 7, "header.json": 2}


def test_no_object_of_hdf5_can_be_freed_while_hdf5_reads_a_store(
    path, url, monkeypatch
):
    real, enabled = ObjectStore.open, []

    class Recording(io.BytesIO):
        def readinto(self, buffer):
            enabled.append(gc.isenabled())
            return super().readinto(buffer)

    def recorded(self, name):
        with real(self, name) as file:
            return Recording(file.read())

    monkeypatch.setattr(ObjectStore, "open", recorded)
    write(path, url=url)
    assert enabled
    assert not any(enabled)
    assert gc.isenabled()


@pytest.mark.parametrize(
    "text", ["/data/features", "http://host/x", "s3:/bucket", "s3://", "s3://a b"]
)
def test_other_addresses_are_one_line(tmp_path, text):
    with refused(FeatureError, "must be the URL of an object store"):
        require_url(text)
    (tmp_path / "store.json").write_text(json.dumps({"url": text}))
    with refused(FeatureError, r"store\.json: cannot be read .*`url` must"):
        open_store(tmp_path)


def test_a_store_that_does_not_answer_is_one_line_and_writes_nothing(path, monkeypatch):
    pytest.importorskip("s3fs", reason="needs the packages of '.[test]'")
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with refused(FeatureError, "s3://silent/x: cannot be listed"):
        write(path, url="s3://silent/x")
    S3FileSystem.clear_instance_cache()
    assert not shards_folder(path).exists()


def test_a_bucket_that_cannot_be_written_is_one_line_and_writes_nothing(path, s3):
    with pytest.raises(FeatureError, match="s3://absent/x: cannot be written"):
        write(path, url="s3://absent/x")
    assert not shards_folder(path).exists()


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    fsspec = pytest.importorskip("fsspec", reason="needs the packages of '.[cluster]'")
    absent = mock.Mock(side_effect=ImportError("Install s3fs to access S3"))
    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    with pytest.raises(FeatureError, match=r"Install s3fs .*install fsspec, and s3fs"):
        ObjectStore("s3://bucket/x")
