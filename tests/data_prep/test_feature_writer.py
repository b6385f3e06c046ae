"""A feature file has the same bytes, whatever interrupts its extraction."""

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
    write,
)
from new_process import python
from nightly import nightly

from data_prep.feature_part import PartContent
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.runtime.errors import DataError

TESTS = Path(__file__).parents[1]
CHILD = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = {[str(TESTS.parent), str(TESTS / "support")]}
from made_up_features import write
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Return the path of a file."""
    path = tmp_path_factory.mktemp("whole") / "features.h5"
    assert write(path) == [0, 1, 2]
    return path


@pytest.fixture(scope="module")
def uninterrupted(whole) -> bytes:
    """Return the bytes of a file."""
    return whole.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "features.h5"


def parts_of(path: Path) -> Path:
    return path.with_name("features.h5.parts")


# The process is killed before or after the given rename: of the header (1), of a part
# (2 to 4), or of the file (5).
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
write(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [(3, False), (5, True), *nightly((1, True), (3, True), (5, False))],
)
def test_a_killed_writer_is_resumed_to_the_same_bytes(path, uninterrupted, call, after):
    script = DEADLY.format(call=call, after=after)
    child = python("-c", CHILD + script, path)
    assert child.returncode == -signal.SIGKILL, child.stderr
    done = max(0, call - 2 + after)
    if done <= 3:
        with pytest.raises(DataError, match="extraction again to continue|no such"):
            FeatureReader(path)
    assert write(path) == list(range(done, 3))
    assert path.read_bytes() == uninterrupted
    assert not list(path.parent.rglob(".writing-*"))
    assert not parts_of(path).exists()


def test_the_bytes_do_not_depend_on_the_time_or_the_order(path, whole, uninterrupted):
    while time.time() < whole.stat().st_mtime + 1.1:  # HDF5 stores whole seconds
        time.sleep(0.1)
    write(path, [2, 0], finish=False)
    assert write(path) == [1]
    assert path.read_bytes() == uninterrupted
    write(path, overwrite=True)
    assert path.read_bytes() == uninterrupted


def test_rows_are_read_in_any_order_and_with_h5py_alone(path):
    write(path)
    with FeatureReader(path, IDENTITY) as reader:
        for row in [0, ROWS, 1, COUNT - 1, 2]:
            np.testing.assert_array_equal(reader.read([row])[0], VALUES[row])
        with pytest.raises(DataError, match=rf"{UNREADABLE}\.jpg.*cut short"):
            reader.read([UNREADABLE])
    with pytest.raises(DataError, match="closed"):
        reader.read([0])
    # The line of docs/datasets.md for other programs.
    script = "import sys, h5py, hdf5plugin; f = h5py.File(sys.argv[1])['features']; "
    child = python("-c", script + "print(f.shape, f.dtype, float(f[1][0, 0]))", path)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == f"(43, 6, 4) float16 {float(VALUES[1, 0, 0])}"


def test_a_finished_file_is_kept_and_of_another_encoder_refused_or_overwritten(
    path, uninterrupted
):
    write(path)
    assert write(path) == []
    assert path.read_bytes() == uninterrupted
    with pytest.raises(DataError, match=r"VGG19 instead of other.*--overwrite"):
        write(path, identity=OTHER)
    with pytest.raises(DataError, match="other photos"):
        Writer(path, IDENTITY, ["a.jpg"]).__enter__()
    assert write(path, identity=OTHER, overwrite=True) == [0, 1, 2]
    FeatureReader(path, OTHER).close()


@pytest.mark.parametrize(
    ("identity", "ids", "reason"),
    [
        (OTHER, IDS, "network VGG19 instead of other"),
        ({**IDENTITY, "precision": "bfloat16"}, IDS, "precision or library versions"),
        (IDENTITY, IDS[1:], rf"photos {COUNT} instead of {COUNT - 1}.*--overwrite"),
    ],
)
def test_a_file_begun_with_other_settings_is_refused(path, identity, ids, reason):
    write(path, [0], finish=False)
    with pytest.raises(DataError, match=reason):
        Writer(path, identity, ids).__enter__()
    with Writer(path, identity, ids, overwrite=True) as writer:
        assert writer.missing == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b"null", b'{"identity": 3}', b"[" * 10**5, b"9" * 5000, b"\xff"],
)
def test_a_malformed_header_is_refused(path, text):
    write(path, [0], finish=False)
    parts_of(path).joinpath("header.json").write_bytes(text)
    with pytest.raises(DataError, match=r"header\.json: cannot be read .*--overwrite"):
        write(path)


def test_parts_of_a_finished_file_and_parts_without_a_header_are_deleted(
    path, uninterrupted
):
    for written in ([0, 1, 2], []):
        parts_of(path).mkdir()  # as after a kill while they are deleted
        (parts_of(path) / "000000.h5").write_bytes(b"of unknown origin")
        assert write(path) == written
        assert path.read_bytes() == uninterrupted
        assert not parts_of(path).exists()


def test_two_extractions_into_one_file_are_refused(path):
    write(path)
    with (
        Writer(path, IDENTITY, IDS),
        pytest.raises(DataError, match="another extraction"),
    ):
        Writer(path, IDENTITY, IDS, overwrite=True).__enter__()
    assert write(path) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(path, value):
    values = VALUES.copy()
    values[7, 2, 0] = value
    with pytest.raises(DataError, match=r"photo 'photo é 7\.jpg' must be finite"):
        write(path, values=values)
    files = parts_of(path).iterdir()
    assert [file.name for file in files] == ["header.json"]


def test_maps_that_are_mostly_zeros_take_a_quarter_at_most(path, rng):
    dense = np.maximum(rng.normal(-1.6, 1, (ROWS, 196, 64)), 0).astype(np.float16)
    assert 0.93 < (dense == 0).mean() < 0.96  # as VGG's conv5
    identity = {**IDENTITY, "grid": [14, 14], "width": 64}
    with Writer(path, identity, IDS[:ROWS]) as writer:
        writer.part(0).write(PartContent(dense, [""] * ROWS))
        writer.finish()
    assert path.stat().st_size < dense.nbytes / 4


FULL = """
import resource
from show_attend_tell.runtime.errors import DataError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    write(Path(sys.argv[1]))
except DataError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("share", [0.3, 0.999, *nightly(0.001, 0.9)])
def test_a_full_disk_is_one_line_and_the_writer_resumes(path, uninterrupted, share):
    child = python("-c", CHILD + FULL, path, int(share * len(uninterrupted)))
    assert child.returncode == 1, child
    assert len(child.stderr.splitlines()) == 1, child.stderr
    assert "cannot be written" in child.stderr
    assert not path.exists()
    assert not list(path.parent.glob(".writing-*"))
    write(path)
    assert path.read_bytes() == uninterrupted


def flip_a_bit(file: Path, row: int = 0) -> None:
    """Flip a bit of a photo's values, which no digest covers."""
    with h5py.File(file) as opened:
        chunk = opened["features"].id.get_chunk_info(row)
    damaged = bytearray(file.read_bytes())
    damaged[chunk.byte_offset + 20] ^= 1
    file.write_bytes(damaged)


def exchange(part: Path) -> None:
    shutil.copy(part.with_name("000001.h5"), part)


def test_a_damaged_chunk_is_found(path):
    write(path)
    flip_a_bit(path, 5)
    with FeatureReader(path) as reader:
        damage = r" 5\.jpg': cannot be read .*checksum.*; run `features --overwrite`"
        with pytest.raises(DataError, match=damage):
            reader.read([5])
        assert reader.read([4, 6]).shape == (2, 6, 4)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda part: part.write_bytes(b"no part"), "file signature"),
        (flip_a_bit, "its checksum differs"),
        (exchange, "digest differs"),
    ],
)
def test_a_damaged_part_is_refused_by_name_at_the_end(path, damage, reason):
    write(path, finish=False)
    damage(parts_of(path) / "000000.h5")
    message = rf"000000\.h5: cannot be read \(.*{reason}.*\); delete it"
    with pytest.raises(DataError, match=message):
        write(path)
    (parts_of(path) / "000000.h5").unlink()
    assert write(path) == [0]
