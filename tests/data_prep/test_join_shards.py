"""A folder of shards, as version 0.3 wrote it, is joined to one file."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from made_up_features import COUNT, IDENTITY, IDS, PROBLEMS, ROWS, write

from data_prep.join_shards import is_shards_folder, join_shards
from show_attend_tell.cli.convert import convert
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.runtime.errors import DataError, ModelFileError


@pytest.fixture
def shards(tmp_path) -> Path:
    """A folder of three shards with its index."""
    path = tmp_path / "features.h5"
    write(path, finish=False)
    folder = tmp_path / "features.shards"
    os.rename(f"{path}.parts", folder)
    texts = h5py.string_dtype("utf-8")
    with h5py.File(folder / "index.h5", "w") as index:
        index.attrs["format"] = 1
        index.attrs["identity"] = json.dumps(IDENTITY)
        index.attrs["mirrored"] = False
        index.attrs["complete"] = True
        index.attrs["shard_rows"] = ROWS
        index.create_dataset("image_ids", data=IDS, dtype=texts)
        index.create_dataset("problems", data=PROBLEMS, dtype=texts)
        index.create_dataset("written", data=np.array([not p for p in PROBLEMS]))
    return folder


def test_the_joined_file_is_what_an_extraction_writes(shards, tmp_path):
    expected = tmp_path / "other" / "features.h5"
    expected.parent.mkdir()
    write(expected)
    assert is_shards_folder(shards)
    path = join_shards(shards)
    assert path == tmp_path / "features.h5"
    assert path.read_bytes() == expected.read_bytes()
    assert len(list(shards.glob("0*.h5"))) == 3  # the folder stays
    with pytest.raises(DataError, match="already present; delete it"):
        join_shards(shards)


def test_a_reader_names_the_remedy(shards):
    with pytest.raises(DataError, match=r"0\.3 wrote it; run .*convert .*\.shards"):
        FeatureReader(shards.with_suffix(".h5"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "index.h5").unlink(), "incomplete, without index"),
        (lambda folder: (folder / "index.h5").write_bytes(b"no"), "cannot be read"),
        (lambda folder: (folder / "header.json").write_bytes(b"{"), "cannot be read"),
        (lambda folder: (folder / "000001.h5").unlink(), r"000001\.h5: absent"),
        (lambda folder: (folder / "000001.h5").write_bytes(b"no"), "cannot be read"),
        (
            lambda folder: (folder / "store.json").write_text(
                json.dumps({"url": "s3://bucket/folder"})
            ),
            r"its shards are in s3://bucket/folder; copy them",
        ),
    ],
)
def test_an_incomplete_or_damaged_folder_is_one_line(shards, damage, reason):
    damage(shards)
    with pytest.raises(DataError, match=reason) as error:
        join_shards(shards)
    assert "\n" not in str(error.value)
    assert not shards.with_suffix(".h5").exists()
    assert not Path(f"{shards.with_suffix('.h5')}.parts").exists()


def test_the_command_joins_a_folder_and_refuses_others(shards, tmp_path):
    done = CliRunner().invoke(convert, [str(shards)])
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'features.h5'}: joined from {shards}" in done.output
    FeatureReader(tmp_path / "features.h5", IDENTITY).close()
    with pytest.raises(ModelFileError, match="must be a run or a preset"):
        CliRunner().invoke(convert, [str(tmp_path)], catch_exceptions=False)


def test_other_folders_are_no_shards(tmp_path):
    assert not is_shards_folder(tmp_path)
    assert COUNT > 2 * ROWS  # so that the folder of the other tests has three shards
