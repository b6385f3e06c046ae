"""The layout of feature files, and files that a reader refuses."""

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from made_up_features import (
    COUNT,
    IDENTITY,
    UNREADABLE,
    VALUES,
    all_values,
    write,
)
from refusals import refused

from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.features import FORMAT, FeatureReader
from show_attend_tell.runtime.errors import DataError


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "features.h5")
    return tmp_path / "features.h5"


def test_the_file_has_the_documented_layout(path):
    with h5py.File(path) as file:
        assert file["features"].shape == (COUNT, 6, 4)
        assert file["features"].dtype == np.float16
        assert file["features"].chunks == (1, 6, 4)
        assert file["image_ids"].asstr()[0] == "photo é 0.jpg"
        assert file["written"].dtype == bool
        assert file["written"][:].sum() == COUNT - 1
        assert json.loads(file.attrs["identity"]) == IDENTITY
        np.testing.assert_array_equal(file["features"][:], VALUES)


@pytest.mark.parametrize("rows", [[9, 3, 3, COUNT - 1, 0, 9], [0, 1, 2], []])
def test_photos_are_read_in_any_order_and_repeatedly(path, rows):
    with FeatureReader(path, IDENTITY) as reader:
        features = reader.read(rows)
        assert reader.shape == (COUNT, 6, 4)
    assert features.dtype == np.float16
    np.testing.assert_array_equal(features, VALUES[np.array(rows, int)])


def test_photos_that_could_not_be_read_have_no_row_and_a_reason(path):
    name = f"photo é {UNREADABLE}.jpg"
    with FeatureReader(path) as reader:
        assert len(reader.rows) == COUNT - 1
        assert reader.rows["photo é 6.jpg"] == 6
        assert reader.problems == {name: "cut short"}
        with pytest.raises(DataError, match=f"{name}.*cut short"):
            reader.read([UNREADABLE])


@pytest.mark.parametrize("row", [-1, COUNT])
def test_a_row_out_of_range_is_refused(path, row):
    with FeatureReader(path) as reader, pytest.raises(DataError, match="from 0 to"):
        reader.read([0, row])


def test_threads_read_the_same_file(path):
    rows = [[(first + 7 * step) % 5 for step in range(50)] for first in range(4)]
    with FeatureReader(path) as reader, ThreadPoolExecutor(4) as pool:
        for chosen, features in zip(rows, pool.map(reader.read, rows), strict=True):
            np.testing.assert_array_equal(features, VALUES[chosen])


def test_another_encoder_is_refused_with_the_differences(path):
    other = {**IDENTITY, "layer": "block5_conv3", "weights_digest": "b" * 64}
    with pytest.raises(DataError) as caught:
        FeatureReader(path, other)
    message = str(caught.value)
    assert "layer block5_conv4 instead of block5_conv3" in message
    assert "weights_digest aaaaaaaaaaaa... instead of bbbbbbbbbbbb..." in message
    assert "network" not in message


def test_a_key_that_one_identity_lacks_is_a_difference_and_versions_are_not():
    assert identity_difference(IDENTITY, {**IDENTITY, "versions": {}}) is None
    less = {key: value for key, value in IDENTITY.items() if key != "grid"}
    assert identity_difference(IDENTITY, less) == ("grid none instead of [2, 3]")
    assert identity_difference(less, IDENTITY) == "grid [2, 3] instead of none"


def test_absent_and_truncated_files_are_refused(path, tmp_path):
    with pytest.raises(DataError, match="no such feature file"):
        FeatureReader(tmp_path / "absent.h5")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match="cannot be read"):
        FeatureReader(path)


def test_features_are_read_while_another_process_locks_the_file(path):
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with FeatureReader(path) as reader:
            assert len(reader.read([0])) == 1


def test_a_file_that_another_process_writes_is_named_as_such(path):
    path.write_bytes(path.read_bytes()[:1000])
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with refused(DataError, "another process has this file open for writing"):
            FeatureReader(path)
    with refused(DataError, "cannot be read .* extract the features again"):
        FeatureReader(path)


def replace(name, **options):
    def change(file):
        del file[name]
        file.create_dataset(name, **options)

    return change


def set_attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


def external_link(file):
    del file["features"]
    file["features"] = h5py.ExternalLink("other.h5", "features")


def external_storage(file):
    del file["written"]
    outside = [("/etc/hostname", 0, COUNT)]
    file.create_dataset("written", (COUNT,), bool, external=outside)


def virtual(file):
    del file["features"]
    layout = h5py.VirtualLayout((COUNT, 6, 4), np.float16)
    layout[:] = h5py.VirtualSource("other.h5", "features", (COUNT, 6, 4))
    file.create_virtual_dataset("features", layout)


def group(file):
    del file["features"]
    file.create_group("features")


MALFORMED = {
    "another program's": lambda file: file.clear(),
    "two dimensions": replace("features", data=np.zeros((COUNT, 24), np.float16)),
    "float32": replace("features", data=np.zeros((COUNT, 6, 4), np.float32)),
    "no channels": replace("features", shape=(COUNT, 6, 0), dtype=np.float16),
    "another grid": replace("features", data=np.zeros((COUNT, 5, 4), np.float16)),
    "another width": replace("features", data=np.zeros((COUNT, 6, 5), np.float16)),
    "too few rows": replace("features", data=np.zeros((3, 6, 4), np.float16)),
    "a group": group,
    "an external link": external_link,
    "external storage": external_storage,
    "a virtual dataset": virtual,
    "written as floats": replace("written", data=np.ones(COUNT)),
    "written empty": replace("written", data=np.zeros(0, bool)),
    "written too short": replace("written", data=np.ones(3, bool)),
    "written a scalar": replace("written", data=True),
    "written without values": replace("written", shape=(COUNT,), dtype=bool),
    "checksums as floats": replace("checksums", data=np.full(COUNT, np.nan)),
    "all written": replace("written", data=np.ones(COUNT, bool)),
    "ids as numbers": replace("image_ids", data=np.arange(COUNT)),
    "ids equal": replace("image_ids", data=["a"] * COUNT),
    "ids not in UTF-8": replace("image_ids", data=[b"\xff"] * COUNT),
    "problems too long": replace("problems", data=["a"] * (COUNT + 1)),
    "identity a list": set_attribute("identity", "[]"),
    "identity a number": set_attribute("identity", 3),
    "identity nested": set_attribute("identity", "[" * 30_000),
    "format a text": set_attribute("format", "one"),
    "format an array": set_attribute("format", [1, 2]),
    "complete an array": set_attribute("complete", [True, False]),
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_file_of_another_layout_is_refused_in_one_line(path, change):
    with h5py.File(path, "r+") as file:
        change(file)
    with refused(DataError, "cannot be read") as caught:
        FeatureReader(path)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_damaged_chunk_is_refused_with_its_photo(path):
    with h5py.File(path, "r+") as file:
        file["features"].id.write_direct_chunk((7, 0, 0), b"no chunk of Blosc")
    with FeatureReader(path) as reader:
        with pytest.raises(DataError, match=r"photo é 7\.jpg.* cannot be read"):
            reader.read([7])
        assert reader.read([8]).shape == (1, 6, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_attribute("complete", False), "incomplete"),
        (set_attribute("format", FORMAT + 1), "must be 1. Received"),
        (lambda file: file.pop("checksums"), "`checksums` must be a dataset"),
        (lambda file: file.attrs.pop("digest"), "cannot be read .*digest"),
    ],
)
def test_an_incomplete_later_or_unchecked_file_is_refused(path, change, message):
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError, match=message):
        FeatureReader(path)


def test_a_flipped_bit_anywhere_never_changes_what_is_read(path, rng):
    expected, whole = all_values(path), path.read_bytes()
    refusals = []
    for bit in rng.integers(8 * len(whole), size=100):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            assert all_values(path) == expected, f"bit {bit}"
        except DataError as error:
            refusals.append(str(error))
    assert len(refusals) > 15
    assert not any("\n" in refusal for refusal in refusals)
