"""Test that interruptions do not change the bytes of a feature file."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_prep.feature_writer import PART, FeatureWriter
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.runtime.errors import FeatureError

COUNT = 2 * PART + 3  # three parts
IDENTITY = {"network": "net", "grid": [2, 2], "width": 3, "precision": "float32"}

# Write the file and kill the process before or after the given rename: of the header
# (1), of a part (2 to 4) or of the feature file (5).
ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {paths}
from test_feature_writer import write
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


def write(path: Path, identity: dict = IDENTITY, **options) -> list[int]:
    """Write or finish the file; return the parts written by this call."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(COUNT, 4, 3)).astype(np.float16)
    problems = ["broken" if row == 70 else "" for row in range(COUNT)]
    ids = [f"{row}.jpg" for row in range(COUNT)]
    with FeatureWriter(path, identity, ids, **options) as writer:
        if writer.complete:
            return []
        written = list(writer.missing)
        for part in writer.missing:
            rows = slice(writer.rows(part).start, writer.rows(part).stop)
            writer.write(part, values[rows], problems[rows])
        writer.finish()
    return written


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "features.h5"
    assert write(path) == [0, 1, 2]
    return path.read_bytes()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 3, 5])
def test_a_killed_writer_is_resumed_to_the_same_bytes(
    tmp_path, uninterrupted, call, after
):
    path = tmp_path / "features.h5"
    folders = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]
    script = CHILD.format(paths=folders, call=call, after=after)
    child = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert child.returncode == -signal.SIGKILL
    done = max(0, call - 2 + after)
    assert write(path) == ([] if done > 3 else list(range(done, 3)))
    assert path.read_bytes() == uninterrupted
    assert not list(tmp_path.glob("*.parts"))
    assert not list(tmp_path.glob(".writing-*"))


def test_the_bytes_do_not_depend_on_the_time(tmp_path, uninterrupted):
    time.sleep(1.1)  # HDF5 stores times in whole seconds
    write(tmp_path / "features.h5")
    assert (tmp_path / "features.h5").read_bytes() == uninterrupted


def test_a_finished_file_is_kept(tmp_path, uninterrupted):
    path = tmp_path / "features.h5"
    path.write_bytes(uninterrupted)
    (tmp_path / "features.h5.parts").mkdir()  # as after a kill while deleting it
    assert write(path) == []
    assert path.read_bytes() == uninterrupted
    assert not (tmp_path / "features.h5.parts").exists()


def test_a_finished_file_of_another_encoder_is_refused(tmp_path, uninterrupted):
    path = tmp_path / "features.h5"
    path.write_bytes(uninterrupted)
    other = {**IDENTITY, "network": "other"}
    with pytest.raises(FeatureError, match=r"net instead of other.*--overwrite"):
        write(path, other)
    assert write(path, other, overwrite=True) == [0, 1, 2]
    with FeatureReader(path, other) as reader:
        assert reader.problems == {"70.jpg": "broken"}


def test_a_finished_file_of_other_photos_is_refused(tmp_path, uninterrupted):
    path = tmp_path / "features.h5"
    path.write_bytes(uninterrupted)
    with (
        pytest.raises(FeatureError, match="other photos"),
        FeatureWriter(path, IDENTITY, ["a.jpg"]),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"network": "other"}, "network net instead of other"),
        ({"precision": "bfloat16"}, "precision or library versions"),
    ],
)
def test_parts_of_another_encoder_are_refused(tmp_path, change, reason):
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a", "b"]):
        pass
    with (
        pytest.raises(FeatureError, match=reason),
        FeatureWriter(path, {**IDENTITY, **change}, ["a", "b"]),
    ):
        pass


def test_parts_with_a_malformed_header_are_refused(tmp_path):
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a"]):
        (tmp_path / "features.h5.parts" / "header.json").write_bytes(b"{")
    with (
        pytest.raises(FeatureError, match=r"header .* malformed .*--overwrite"),
        FeatureWriter(path, IDENTITY, ["a"]),
    ):
        pass


def test_parts_of_other_photos_are_refused(tmp_path):
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a", "b"]):
        pass
    with (
        pytest.raises(FeatureError, match=r"photos 2 instead of 3.*--overwrite"),
        FeatureWriter(path, IDENTITY, ["a", "b", "c"]),
    ):
        pass
    with FeatureWriter(path, IDENTITY, ["a", "b", "c"], overwrite=True) as writer:
        assert writer.missing == [0]


def test_parts_without_a_header_are_deleted(tmp_path, uninterrupted):
    path = tmp_path / "features.h5"
    parts = tmp_path / "features.h5.parts"
    parts.mkdir()
    (parts / "000000.h5").write_bytes(b"of unknown origin")
    assert write(path) == [0, 1, 2]
    assert path.read_bytes() == uninterrupted


def test_two_extractions_into_one_file_are_refused(tmp_path):
    path = tmp_path / "features.h5"
    with (
        FeatureWriter(path, IDENTITY, ["a"]),
        pytest.raises(FeatureError, match="another extraction"),
        FeatureWriter(path, IDENTITY, ["a"]),
    ):
        pass
    with FeatureWriter(path, IDENTITY, ["a"]) as writer:
        assert writer.missing == [0]
    shutil.rmtree(tmp_path / "features.h5.parts")


def test_the_remaining_bytes_are_those_of_missing_parts_and_the_file(tmp_path):
    path = tmp_path / "features.h5"
    ids = [f"{row}.jpg" for row in range(4 * PART)]
    values = np.ones((PART, 4, 3), np.float16)
    with FeatureWriter(path, IDENTITY, ids) as writer:
        assert writer.remaining_bytes() == 0  # unknown
        writer.write(0, values, [""] * PART)
        writer.write(1, values, [""] * PART)
        part = (tmp_path / "features.h5.parts" / "000000.h5").stat().st_size
        assert writer.remaining_bytes() == 2 * part + 4 * part


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(tmp_path, value):
    features = np.zeros((2, 4, 3), np.float16)
    features[1, 2, 0] = value
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a.jpg", "b.jpg"]) as writer:
        with pytest.raises(FeatureError, match=r"photo 'b\.jpg' must be finite"):
            writer.write(0, features, ["", ""])
        assert [file.name for file in (tmp_path / "features.h5.parts").iterdir()] == [
            "header.json"
        ]


FULL = """
import resource, sys
from pathlib import Path
sys.path[:0] = {paths}
from show_attend_tell.runtime.errors import FeatureError
from test_feature_writer import write
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
try:
    write(Path(sys.argv[1]))
except FeatureError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_a_full_disk_is_one_line_and_the_writer_resumes(tmp_path, uninterrupted, share):
    path = tmp_path / "features.h5"
    folders = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]
    script = FULL.format(paths=folders, size=int(share * len(uninterrupted)))
    child = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert child.returncode == 1, child
    assert len(child.stderr.splitlines()) == 1, child.stderr
    assert "cannot be written" in child.stderr
    assert not path.exists()
    assert not list(tmp_path.glob(".writing-*"))
    write(path)
    assert path.read_bytes() == uninterrupted


def test_a_damaged_part_is_refused_by_name(tmp_path):
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a.jpg"]) as writer:
        (tmp_path / "features.h5.parts" / "000000.h5").write_bytes(b"no part")
        with pytest.raises(
            FeatureError, match=r"000000\.h5: damaged .*delete the file"
        ):
            writer.finish()


def test_a_flipped_bit_in_a_part_is_refused_by_name(tmp_path):
    features = np.arange(24, dtype=np.float16).reshape(2, 4, 3)
    part = tmp_path / "features.h5.parts" / "000000.h5"
    with FeatureWriter(tmp_path / "features.h5", IDENTITY, ["a.jpg", "b"]) as writer:
        writer.write(0, features, ["", ""])
        content = bytearray(part.read_bytes())
        content[content.index(features[1].tobytes()) + 5] ^= 8
        part.write_bytes(content)
        with pytest.raises(FeatureError, match=r"000000\.h5: .*digest differs.*delete"):
            writer.finish()


def test_parts_of_an_earlier_version_are_joined(tmp_path, uninterrupted):
    path = tmp_path / "features.h5"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureWriter, "finish", lambda _: None)
        write(path)
    for part in (tmp_path / "features.h5.parts").glob("*.h5"):
        with h5py.File(part, "r+") as file:
            del file.attrs["digest"]
    assert write(path) == []
    assert path.read_bytes() == uninterrupted


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b'{"identity": 3}', b"[" * 10**5, b"9" * 5000, b"\xff"]
)
def test_malformed_headers_of_parts_are_refused(tmp_path, content):
    path = tmp_path / "features.h5"
    with FeatureWriter(path, IDENTITY, ["a"]):
        (tmp_path / "features.h5.parts" / "header.json").write_bytes(content)
    with (
        pytest.raises(FeatureError, match=r"header .* malformed .*--overwrite"),
        FeatureWriter(path, IDENTITY, ["a"]),
    ):
        pass
