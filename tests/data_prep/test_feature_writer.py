"""A file or a folder of shards: the same values and bytes, whatever interrupts them."""

import shutil
import signal
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from made_up_features import (
    COUNT,
    IDENTITY,
    IDS,
    OTHER,
    ROWS,
    UNREADABLE,
    VALUES,
    Writer,
    all_values,
    content,
    write,
)
from new_process import python

from show_attend_tell.data import features
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.shard_store import shards_folder
from show_attend_tell.runtime.errors import FeatureError

FORMS = pytest.mark.parametrize("shards", [False, True], ids=["file", "shards"])
TESTS = Path(__file__).parents[1]
CHILD = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = {[str(TESTS.parent), str(TESTS / "support")]}
from made_up_features import write
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[bool, dict[str, bytes]]:
    """Return the bytes of a file and of a folder of shards."""
    sets = {}
    for shards in (False, True):
        path = tmp_path_factory.mktemp("whole") / "features.h5"
        assert write(path, shards=shards) == [0, 1, 2]
        assert path.exists() != shards
        sets[shards] = content(path)
    return sets


@pytest.fixture
def path(tmp_path):
    return tmp_path / "features.h5"


# The process is killed before or after the given rename: of the header (1), of a shard
# (2 to 4), or of the file or the index (5).
DEADLY = """
replace, calls = os.replace, []

def deadly(source, target):
    calls.append(target)
    if {after}:
        replace(source, target)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    if not {after}:
        replace(source, target)

os.replace = deadly
write(Path(sys.argv[1]), shards={shards})
"""


@pytest.mark.parametrize(
    ("shards", "call", "after"),
    [(False, 1, True), (False, 3, False), (False, 3, True), (False, 5, False)]
    + [(False, 5, True), (True, 3, False), (True, 5, False)],
)
def test_a_killed_writer_is_resumed_to_the_same_bytes(
    path, uninterrupted, shards, call, after
):
    script = DEADLY.format(call=call, after=after, shards=shards)
    child = python("-c", CHILD + script, path)
    assert child.returncode == -signal.SIGKILL, child.stderr
    done = max(0, call - 2 + after)
    if done <= 3:
        with pytest.raises(FeatureError, match="extraction again to continue|no such"):
            FeatureReader(path)
    assert write(path, shards=shards) == list(range(done, 3))
    assert content(path) == uninterrupted[shards]
    assert not list(path.parent.rglob(".writing-*"))
    assert not list(path.parent.glob("*.parts"))


def test_the_bytes_do_not_depend_on_the_time_or_the_order(path, uninterrupted):
    time.sleep(1.1)  # HDF5 stores times in whole seconds
    write(path, [2, 0], finish=False, shards=True)
    assert write(path) == [1]  # the form of what was begun
    assert content(path) == uninterrupted[True]
    write(path, overwrite=True)
    assert content(path) == uninterrupted[False]


def test_shards_and_one_file_are_read_alike(path, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_OPEN", 1)
    write(path, shards=True)
    write(tmp_path / "one.h5")
    assert all_values(path) == all_values(tmp_path / "one.h5")
    with FeatureReader(path, IDENTITY) as reader:
        assert reader.path == tmp_path / "features.shards"
        for row in [0, ROWS, 1, COUNT - 1, 2]:
            np.testing.assert_array_equal(reader.read([row])[0], VALUES[row])
            assert len(reader._shards) == 1
        with pytest.raises(FeatureError, match=rf"{UNREADABLE}\.jpg.*cut short"):
            reader.read([UNREADABLE])
    with pytest.raises(FeatureError, match="closed"):
        reader.read([0])


@FORMS
def test_a_finished_set_is_kept_and_of_another_encoder_refused_or_overwritten(
    path, uninterrupted, shards
):
    write(path, shards=shards)
    assert write(path, shards=not shards) == []
    assert content(path) == uninterrupted[shards]
    with pytest.raises(FeatureError, match=r"VGG19 instead of other.*--overwrite"):
        write(path, identity=OTHER)
    with pytest.raises(FeatureError, match="other photos"):
        Writer(path, IDENTITY, ["a.jpg"]).__enter__()
    assert write(path, identity=OTHER, overwrite=True, shards=not shards) == [0, 1, 2]
    assert path.exists() == shards
    assert shards_folder(path).exists() != shards
    FeatureReader(path, OTHER).close()


@FORMS
@pytest.mark.parametrize(
    ("identity", "ids", "reason"),
    [
        (OTHER, IDS, "network VGG19 instead of other"),
        ({**IDENTITY, "precision": "bfloat16"}, IDS, "precision or library versions"),
        (IDENTITY, IDS[1:], rf"photos {COUNT} instead of {COUNT - 1}.*--overwrite"),
    ],
)
def test_a_set_begun_with_other_settings_is_refused(
    path, shards, identity, ids, reason
):
    write(path, [0], finish=False, shards=shards)
    with pytest.raises(FeatureError, match=reason):
        Writer(path, identity, ids).__enter__()
    with Writer(path, identity, ids, overwrite=True) as writer:
        assert writer.missing == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b"null", b'{"identity": 3}', b"[" * 10**5, b"9" * 5000, b"\xff"],
)
def test_a_malformed_header_is_refused(path, text):
    write(path, [0], finish=False)
    path.with_name("features.h5.parts").joinpath("header.json").write_bytes(text)
    with pytest.raises(
        FeatureError, match=r"header\.json: cannot be read .*--overwrite"
    ):
        write(path)


def test_parts_of_a_finished_file_and_shards_without_a_header_are_deleted(
    path, uninterrupted
):
    parts = path.with_name("features.h5.parts")
    for written in ([0, 1, 2], []):
        parts.mkdir()  # as after a kill while they are deleted
        (parts / "000000.h5").write_bytes(b"of unknown origin")
        assert write(path) == written
        assert content(path) == uninterrupted[False]
        assert not parts.exists()


def test_two_extractions_into_one_set_are_refused_in_any_form(path):
    write(path, shards=True)
    with (
        Writer(path, IDENTITY, IDS),
        pytest.raises(FeatureError, match="another extraction"),
    ):
        Writer(path, IDENTITY, IDS, overwrite=True).__enter__()
    assert write(path) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(path, value):
    values = VALUES.copy()
    values[7, 2, 0] = value
    with pytest.raises(FeatureError, match=r"photo 'photo é 7\.jpg' must be finite"):
        write(path, values=values)
    files = path.with_name("features.h5.parts").iterdir()
    assert [file.name for file in files] == ["header.json"]


def test_maps_that_are_mostly_zeros_take_a_quarter_at_most(path, rng):
    dense = np.maximum(rng.normal(-1.6, 1, (ROWS, 196, 64)), 0).astype(np.float16)
    assert 0.93 < (dense == 0).mean() < 0.96  # as VGG's conv5
    identity = {**IDENTITY, "grid": [14, 14], "width": 64}
    with Writer(path, identity, IDS[:ROWS]) as writer:
        writer.shard(0).write(dense, [""] * ROWS)
        writer.finish()
    assert path.stat().st_size < dense.nbytes / 4


FULL = """
import resource
from show_attend_tell.runtime.errors import FeatureError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    write(Path(sys.argv[1]))
except FeatureError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
def test_a_full_disk_is_one_line_and_the_writer_resumes(path, uninterrupted, share):
    size = len(uninterrupted[False]["features.h5"])
    child = python("-c", CHILD + FULL, path, int(share * size))
    assert child.returncode == 1, child
    assert len(child.stderr.splitlines()) == 1, child.stderr
    assert "cannot be written" in child.stderr
    assert not path.exists()
    assert not list(path.parent.glob(".writing-*"))
    write(path)
    assert content(path) == uninterrupted[False]


@pytest.mark.parametrize("lost", ["index.h5", "000000.h5", "000001.h5"])
def test_a_lost_file_of_a_folder_is_written_again_and_no_other(
    path, uninterrupted, lost
):
    write(path, shards=True)
    (shards_folder(path) / lost).unlink()
    message = "incomplete" if lost == "index.h5" else f"the shard {lost} is absent"
    with pytest.raises(FeatureError, match=message):
        FeatureReader(path)
    with pytest.raises(FeatureError, match="begun with other settings"):
        write(path, identity=OTHER)
    assert write(path) == ([] if lost == "index.h5" else [int(lost[:6])])
    assert content(path) == uninterrupted[True]


def flip_a_bit(shard: Path, row: int = 0) -> None:
    """Flip a bit of a photo's values, which no digest of the shard covers."""
    with h5py.File(shard) as file:
        chunk = file["features"].id.get_chunk_info(row)
    damaged = bytearray(shard.read_bytes())
    damaged[chunk.byte_offset + 20] ^= 1
    shard.write_bytes(damaged)


def exchange(shard: Path) -> None:
    shutil.copy(shard.with_name("000001.h5"), shard)


def test_a_damaged_chunk_and_exchanged_shards_are_found(path, uninterrupted):
    write(path, shards=True)
    first = shards_folder(path) / "000000.h5"
    whole = first.read_bytes()
    exchange(first)
    with FeatureReader(path) as reader, pytest.raises(FeatureError, match="checksum"):
        reader.read([0])
    first.write_bytes(whole)
    flip_a_bit(first, 5)
    with FeatureReader(path) as reader:
        damage = r" 5\.jpg': cannot be read .*; delete .*000000\.h5; then run"
        with pytest.raises(FeatureError, match=damage):
            reader.read([5])
        assert reader.read([4, 6]).shape == (2, 6, 4)
    first.unlink()
    assert write(path) == [0]
    assert content(path) == uninterrupted[True]


@pytest.mark.parametrize(
    ("shards", "damage", "reason"),
    [
        (False, lambda shard: shard.write_bytes(b"no shard"), "file signature"),
        (False, flip_a_bit, "its checksum differs"),
        (False, exchange, "digest differs"),
        (True, exchange, "digest differs"),
    ],
)
def test_a_damaged_shard_is_refused_by_name_at_the_end(path, shards, damage, reason):
    write(path, finish=False, shards=shards)
    folder = shards_folder(path) if shards else path.with_name("features.h5.parts")
    damage(folder / "000000.h5")
    message = rf"000000\.h5: cannot be read \(.*{reason}.*\); delete it"
    with pytest.raises(FeatureError, match=message):
        write(path)
    (folder / "000000.h5").unlink()
    assert write(path) == [0]
